"""Aggregates that are sums: what each event adds, and the answer that sums stand for.

A whole number is added in two halves of 32 bits. Neither overflows, both can be taken back, and put
together they give the sum, or tell that it does not fit in int64: an error, as on the local engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.plan.aggregates import Aggregate, Count, Max, Mean, Min, Sum

EVENTS = "events"
BEYOND = "a sum of whole numbers does not fit in int64; give the column as float64"
_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class Summed:
    """One aggregate: the columns whose sums it needs, by name, and its answer from those sums."""

    parts: dict[str, Column] = field(default_factory=dict)
    answer: Callable[[], Column] = lambda: f.col(EVENTS)


def is_summed(aggregate: Aggregate, schema: pa.Schema) -> bool:
    """Counts, and sums and means of whole numbers; floats need sums that forget nothing."""
    if isinstance(aggregate, Count):
        return True
    return isinstance(aggregate, Sum | Mean) and _is_whole(aggregate.argument_type(schema))


def is_extreme(aggregate: Aggregate) -> bool:
    """The least or the greatest: Spark has the order of values that we have."""
    return isinstance(aggregate, Min | Max)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()))


def summed(aggregate: Aggregate, argument: str | None, name: str) -> Summed:
    """How an aggregate is made of sums; ``name`` tells its parts from those of others."""
    if argument is None:
        return Summed()
    valid = f.col(argument).isNotNull().cast("bigint")
    if isinstance(aggregate, Count):
        return Summed({f"{name}n": valid}, lambda: f.col(f"{name}n"))
    value = f.coalesce(f.col(argument).cast("bigint"), f.lit(0).cast("bigint"))
    halves = {
        f"{name}n": valid,
        f"{name}high": f.shiftright(value, 32),
        f"{name}low": value.bitwiseAND(f.lit(_LOW)),
    }
    return Summed(halves, lambda: _known(name, _whole(name) if isinstance(aggregate, Sum) else _mean(name)))


def _known(name: str, answer: Column) -> Column:
    return f.when(f.col(f"{name}n") > 0, answer)


def _whole(name: str) -> Column:
    low = f.col(f"{name}low")
    high = f.col(f"{name}high") + f.shiftright(low, 32)
    fits = (high >= f.lit(-(1 << 31))) & (high < f.lit(1 << 31))
    total = f.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(f.lit(_LOW)))
    return f.when(fits, total).otherwise(f.raise_error(f.lit(BEYOND)).cast("bigint"))


def _mean(name: str) -> Column:
    high, low, n = (f.col(f"{name}{part}").cast("double") for part in ("high", "low", "n"))
    return (high * f.lit(float(1 << 32)) + low) / n
