"""Aggregates: what events that are alive together say, as one value or as rows.

They agree with `recension.denote.aggregates`: ``count()`` counts events, ``count(c)`` values that are not
null; ``sum mean min max stddev quantile any all arg_max arg_min`` ignore nulls and are null of none;
``first last collect`` and functions of the user's own keep them, the former in (vs, ve, payload) order, the
latter by start and value.

A condition on the events that count makes nulls of the others' values, where nulls do not count; the
aggregates that keep nulls have it as ``where``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import SchemaError
from recension.plan.deviations import deviations
from recension.plan.expressions import Expression, column, require_boolean, result_type
from recension.plan.schemas import type_name

Numbers: TypeAlias = npt.NDArray[Any]
Interpolation: TypeAlias = Literal["linear", "lower", "higher", "nearest", "midpoint"]
"""What a quantile is that lies between two values."""
SUM_DIGITS: Final = 10
"""So many digits the sum of decimals has that they do not have, as in Spark."""
MEAN_DIGITS: Final = 4
"""So many digits the mean of decimals has that they do not have, as in Spark."""
_MOST_DIGITS: Final = 38


@dataclass(frozen=True)
class Aggregate(ABC):
    """One aggregate; ``argument`` is what it reads of each event, if it reads anything."""

    argument: Expression | None

    name: ClassVar[str]
    is_order_sensitive: ClassVar[bool] = False
    """Does the answer depend on the order (vs, ve, payload), and so on every column of the payload?"""
    yields_rows: ClassVar[bool] = False
    """Does it give whole rows in place of one value?"""
    is_sum: ClassVar[bool] = False
    """Is it made of numbers that are added up over events, so that it can be made in parts?"""

    @abstractmethod
    def result_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the answer over events of this schema, or a SchemaError."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """All that it reads of each event, the argument first."""
        return () if self.argument is None else (self.argument,)

    def map_inputs(self, change: Callable[[Expression], Expression]) -> Self:
        """The same aggregate of what a function makes of each of its inputs."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(
            self, **{name: change(value) for name, value in own.items() if isinstance(value, Expression)}
        )

    @property
    def references(self) -> frozenset[str]:
        """The columns it reads by name; one that is order sensitive reads them all."""
        return frozenset().union(*(computed.references for computed in self.inputs))

    def combining(self, name: str, schema: pa.Schema) -> Aggregate | None:
        """What makes one answer of the answers ``name`` of several parts of the events, if anything does."""
        return None

    def argument_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of what it reads."""
        assert self.argument is not None
        return result_type(self.argument, schema, str(self))

    def __str__(self) -> str:
        return f"{self.name}({'' if self.argument is None else self.argument})"


@dataclass(frozen=True)
class FilteredAggregate(Aggregate):
    """An aggregate that keeps nulls: the events for which ``where`` is not true do not count."""

    where: Expression | None = field(default=None, kw_only=True)

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return super().inputs if self.where is None else (*super().inputs, self.where)

    @property
    def without_filter(self) -> FilteredAggregate:
        """The same of all events."""
        return replace(self, where=None)

    def argument_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of what it reads; the condition must be true or false of each event."""
        if self.where is not None:
            require_boolean(self.where, schema, f"{self.name}(where={self.where})")
        return super().argument_type(schema)

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return self.argument_type(schema)

    def _show(self, *parts: str) -> str:
        """A call with these arguments and the condition."""
        where = [] if self.where is None else [f"where={self.where}"]
        return f"{self.name}({', '.join([*parts, *where])})"

    def __str__(self) -> str:
        return self._show(str(self.argument))


@dataclass(frozen=True)
class Count(Aggregate):
    """How many events, or how many values that are not null."""

    argument: Expression | None = None
    name = "count"
    is_sum = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        if self.argument is not None:
            self.argument_type(schema)
        return pa.int64()

    def combining(self, name: str, schema: pa.Schema) -> Aggregate:
        return Sum(column(name))


@dataclass(frozen=True)
class Sum(Aggregate):
    """The sum: int64 of whole numbers and truth values, float64 of floats; ten more digits of decimals."""

    name = "sum"
    is_sum = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        kind = _numeric_type(self, schema, takes_decimals=True)
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(kind.precision + SUM_DIGITS, _MOST_DIGITS), kind.scale)
        return pa.float64() if pa.types.is_floating(kind) else pa.int64()

    def combining(self, name: str, schema: pa.Schema) -> Aggregate | None:
        """Floats would be rounded twice."""
        kind = self.result_type(schema)
        if pa.types.is_floating(kind):
            return None
        return SumOfSums(column(name)) if pa.types.is_decimal(kind) else Sum(column(name))


@dataclass(frozen=True)
class SumOfSums(Sum):
    """The sum of sums of decimals, which has all their digits already."""

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return self.argument_type(schema)


class FloatAggregate(Aggregate):
    """An aggregate of numbers that is a float."""

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        _numeric_type(self, schema)
        return pa.float64()


@dataclass(frozen=True)
class Mean(Aggregate):
    """The sum divided by the number of values; of decimals with four more digits, rounded half up."""

    name = "mean"
    is_sum = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        kind = _numeric_type(self, schema, takes_decimals=True)
        if not pa.types.is_decimal(kind):
            return pa.float64()
        digits, scale = (min(n + MEAN_DIGITS, _MOST_DIGITS) for n in (kind.precision, kind.scale))
        return pa.decimal128(digits, scale)


@dataclass(frozen=True)
class TimeWeightedMean(FloatAggregate):
    """The mean of the values, each weighted by how long its event lives within the window."""

    name = "time_weighted_mean"


class TruthAggregate(Aggregate):
    """An aggregate of truth values, nulls apart, that is one."""

    is_sum = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        kind = self.argument_type(schema)
        if not pa.types.is_boolean(kind):
            raise SchemaError(
                f"{self}: {self.name} needs truth values, but {self.argument} is {type_name(kind)}; "
                "give a condition, such as col('x') > 0"
            )
        return pa.bool_()

    def combining(self, name: str, schema: pa.Schema) -> Aggregate:
        return replace(self, argument=column(name))


@dataclass(frozen=True)
class AnyTrue(TruthAggregate):
    """Is some value true?"""

    name = "any"


@dataclass(frozen=True)
class AllTrue(TruthAggregate):
    """Are all values true?"""

    name = "all"


@dataclass(frozen=True)
class NUnique(Aggregate):
    """How many different values there are, nulls apart."""

    name = "n_unique"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        self.argument_type(schema)
        return pa.int64()


@dataclass(frozen=True)
class ValueAggregate(Aggregate):
    """An aggregate of the values alone: neither times nor the order of events matter, nulls do not count."""

    @abstractmethod
    def kernel(self, values: pa.Array, count: Index) -> pa.Array:
        """The answers of many windows at once.

        ``values`` are those of one window after the other, ``count`` of each: without nulls, sorted, and at
        least one. Sorted values give the same answer to the last bit, whatever order events come in; so what
        was shown can be retracted.
        """


@dataclass(frozen=True)
class StdDev(FloatAggregate, ValueAggregate):
    """The sample standard deviation (n - 1); null of fewer than two values."""

    name = "stddev"

    def kernel(self, values: pa.Array, count: Index) -> pa.Array:
        kind = values.type
        if not pa.types.is_uint64(kind):
            kind = pa.float64() if pa.types.is_floating(kind) else pa.int64()
        return pa.array(deviations(to_numpy(values, kind), count), mask=count < 2)


@dataclass(frozen=True)
class Quantile(FloatAggregate):
    """The value a part ``q`` of the way through the sorted values; ``interpolation`` is for between two."""

    q: float
    interpolation: Interpolation = "linear"
    name = "quantile"

    def __post_init__(self) -> None:
        if not isinstance(self.q, Real) or not 0 <= self.q <= 1:
            raise SchemaError(f"quantile: q lies between 0 and 1, not {self.q!r}")
        if self.interpolation not in (known := get_args(Interpolation)):
            names = ", ".join(map(repr, known))
            raise SchemaError(f"quantile: interpolation is one of {names}, not {self.interpolation!r}")

    def choose(self, count: Index, find: Callable[[Index], Numbers]) -> pa.Array:
        """The answers of windows with ``count`` values, at least one each.

        ``find`` gives the values of their ranks, from 0, of which it gets several rows.
        """
        place = self.q * (count - 1)
        match self.interpolation:
            case "lower":
                place = np.floor(place)
            case "higher":
                place = np.ceil(place)
            case "nearest":  # of two that are equally near the one with the even rank
                place = np.rint(place)
        low = np.floor(place).astype(np.int64)
        share = place - low
        if self.interpolation == "midpoint":
            share = np.where(share > 0, 0.5, 0.0)
        # -0.0 and 0.0 are one value, and which of them is found is open.
        below, above = find(np.stack([low, low + (share > 0)])) + 0.0
        with np.errstate(invalid="ignore", over="ignore"):  # between infinities that differ lies NaN
            between = below + (above - below) * share
            # The distance of two numbers may be too large for a float; what lies between them is not.
            parts = below * (1 - share) + above * share
        between = np.where(np.isfinite(between), between, parts)
        return pa.array(np.where((share == 0) | (below == above), below, between))

    def __str__(self) -> str:
        between = "" if self.interpolation == "linear" else f", interpolation={self.interpolation!r}"
        return f"quantile({self.argument}, {self.q}{between})"


class ExtremeAggregate(Aggregate):
    """The first of the values in their order."""

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return _ordered_type(self, schema)

    def combining(self, name: str, schema: pa.Schema) -> Aggregate:
        return replace(self, argument=column(name))


@dataclass(frozen=True)
class Min(ExtremeAggregate):
    """The least value; NaN only if there is nothing else."""

    name = "min"


@dataclass(frozen=True)
class Max(ExtremeAggregate):
    """The greatest value; NaN is greater than every number."""

    name = "max"


@dataclass(frozen=True)
class First(FilteredAggregate):
    """The value of the first event."""

    name = "first"
    is_order_sensitive = True


@dataclass(frozen=True)
class Last(FilteredAggregate):
    """The value of the last event."""

    name = "last"
    is_order_sensitive = True


@dataclass(frozen=True)
class Collect(FilteredAggregate):
    """All values as a list."""

    name = "collect"
    is_order_sensitive = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(self.argument_type(schema))


@dataclass(frozen=True)
class FunctionOf(FilteredAggregate):
    """Any function of one column's values, which it gets as an array, nulls included, by start and value.

    Ends do not matter for that order, so it need not wait for ends that are not final.
    """

    fn: Callable[[Any], Any]
    result: pa.DataType
    name = "aggregate"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        self.argument_type(schema)
        return self.result

    def __str__(self) -> str:
        return super().__str__().replace(self.name, getattr(self.fn, "__name__", "function"), 1)


@dataclass(frozen=True)
class TopK(FilteredAggregate):
    """The first ``k`` events by a column: whole payloads with their ``rank`` from 1.

    ``argument`` is what the events are sorted by. A null never outranks a value.
    """

    k: int
    descending: bool = True
    name = "top_k"
    is_order_sensitive = True
    yields_rows = True

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise SchemaError(f"top_k: k is a whole number from 1, not {self.k!r}")

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return pa.struct(self.row_schema(schema))

    def row_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the rows: all of the payload's, then ``rank``."""
        _ordered_type(self, schema)
        if "rank" in schema.names:
            raise SchemaError("top_k adds a column 'rank', and the payload has one; rename it first")
        return schema.append(pa.field("rank", pa.int64()))

    def __str__(self) -> str:
        ascending = [] if self.descending else ["descending=False"]
        return self._show(str(self.k), f"by={self.argument}", *ascending)


@dataclass(frozen=True)
class ArgExtreme(Aggregate):
    """The value of the first event, in (vs, ve, payload) order, of those that are extreme ``by`` another.

    An event for which that is null does not count.
    """

    by: Expression
    is_order_sensitive = True

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return (*super().inputs, self.by)

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        _ordered_type(replace(self, argument=self.by), schema)
        return self.argument_type(schema)

    def __str__(self) -> str:
        return f"{self.name}({self.argument}, by={self.by})"


@dataclass(frozen=True)
class ArgMax(ArgExtreme):
    """The greatest decides; NaN is greater than every number."""

    name = "arg_max"


@dataclass(frozen=True)
class ArgMin(ArgExtreme):
    """The least decides; NaN only if there is nothing else."""

    name = "arg_min"


def _numeric_type(aggregate: Aggregate, schema: pa.Schema, *, takes_decimals: bool = False) -> pa.DataType:
    kind = aggregate.argument_type(schema)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    if takes_decimals and pa.types.is_decimal(kind) and kind.scale >= 0 and kind.precision <= _MOST_DIGITS:
        return kind
    if takes_decimals and pa.types.is_decimal(kind):
        raise SchemaError(
            f"{aggregate}: {aggregate.name} takes decimals of at most 38 digits, with a scale from 0, "
            f"and {aggregate.argument} is {type_name(kind)}; cast it to decimal128(38, 0) or float64"
        )
    if pa.types.is_decimal(kind):
        unit = f" in units of {10.0**-kind.scale:g} (times {10**kind.scale})" if kind.scale > 0 else ""
        raise SchemaError(
            f"{aggregate}: {aggregate.name} does not take decimals, and {aggregate.argument} is "
            f"{type_name(kind)}; cast it to float64, or to be exact to int64{unit}"
        )
    is_text, is_duration = (
        pa.types.is_string(kind) or pa.types.is_large_string(kind),
        pa.types.is_duration(kind),
    )
    advice = "; if it holds numbers, cast it to float64 or int64" if is_text else ""
    advice = "; count its seconds" if is_duration else advice
    raise SchemaError(
        f"{aggregate}: {aggregate.name} needs numbers, but {aggregate.argument} is {type_name(kind)}{advice}",
        instead=", as in rc.lifetime().dt.total_seconds()" if is_duration else "",
    )


def _ordered_type(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    kind = aggregate.argument_type(schema)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise SchemaError(f"{aggregate}: values of type {type_name(kind)} have no order")
    return kind


def to_numpy(values: pa.Array, kind: pa.DataType) -> Numbers:
    """Values without nulls as numbers of a type; whole numbers become the nearest floats."""
    numbers: Numbers = values.cast(kind, safe=False).to_numpy(zero_copy_only=False)
    return numbers
