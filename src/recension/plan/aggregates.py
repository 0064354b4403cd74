"""Aggregates: what events that are alive together say, as one value or as rows.

They agree with `recension.denote.aggregates`: ``count()`` counts events, ``count(c)`` values that are not
null; ``sum mean min max stddev quantile`` ignore nulls and are null of none; ``first last collect`` and
functions of the user's own keep them, the former in (vs, ve, payload) order, the latter by start and value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, result_type
from recension.plan.schemas import type_name


@dataclass(frozen=True)
class Aggregate(ABC):
    """One aggregate; ``argument`` is what it reads of each event, if it reads anything."""

    argument: Expression | None

    name: ClassVar[str]
    is_order_sensitive: ClassVar[bool] = False
    """Does the answer depend on the order (vs, ve, payload), and so on every column of the payload?"""
    yields_rows: ClassVar[bool] = False
    """Does it give whole rows in place of one value?"""

    @abstractmethod
    def result_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the answer over events of this schema, or a SchemaError."""

    @property
    def references(self) -> frozenset[str]:
        """The columns it reads by name; one that is order sensitive reads them all."""
        return self.argument.references if self.argument else frozenset()

    def argument_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of what it reads."""
        assert self.argument is not None
        return result_type(self.argument, schema, str(self))

    def __str__(self) -> str:
        return f"{self.name}({'' if self.argument is None else self.argument})"


@dataclass(frozen=True)
class Count(Aggregate):
    """How many events, or how many values that are not null."""

    argument: Expression | None = None
    name = "count"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        if self.argument is not None:
            self.argument_type(schema)
        return pa.int64()


@dataclass(frozen=True)
class Sum(Aggregate):
    """The sum: int64 of whole numbers and truth values, float64 of floats."""

    name = "sum"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        kind = _numeric(self, schema)
        return pa.float64() if pa.types.is_floating(kind) else pa.int64()


@dataclass(frozen=True)
class Mean(Aggregate):
    """The sum divided by the number of values."""

    name = "mean"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        _numeric(self, schema)
        return pa.float64()


@dataclass(frozen=True)
class StdDev(Aggregate):
    """The sample standard deviation (n - 1); null of fewer than two values."""

    name = "stddev"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        _numeric(self, schema)
        return pa.float64()


@dataclass(frozen=True)
class Quantile(Aggregate):
    """The value a part ``q`` of the way through the sorted values, linear between neighbours."""

    q: float
    name = "quantile"

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise SchemaError(f"quantile: q lies between 0 and 1, not {self.q!r}")

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        _numeric(self, schema)
        return pa.float64()

    def __str__(self) -> str:
        return f"quantile({self.argument}, {self.q})"


@dataclass(frozen=True)
class Min(Aggregate):
    """The least value; NaN only if there is nothing else."""

    name = "min"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return _ordered(self, schema)


@dataclass(frozen=True)
class Max(Aggregate):
    """The greatest value; NaN is greater than every number."""

    name = "max"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return _ordered(self, schema)


@dataclass(frozen=True)
class First(Aggregate):
    """The value of the first event."""

    name = "first"
    is_order_sensitive = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return self.argument_type(schema)


@dataclass(frozen=True)
class Last(Aggregate):
    """The value of the last event."""

    name = "last"
    is_order_sensitive = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return self.argument_type(schema)


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values as a list."""

    name = "collect"
    is_order_sensitive = True

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(self.argument_type(schema))


@dataclass(frozen=True)
class FunctionOf(Aggregate):
    """Any function of one column's values, which it gets as an array, nulls included, by start and value.

    No end has a say in that order, so that an end that is not final holds nothing up.
    """

    fn: Callable[[Any], Any]
    result: pa.DataType
    name = "aggregate"

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        self.argument_type(schema)
        return self.result

    def __str__(self) -> str:
        return f"{getattr(self.fn, '__name__', 'function')}({self.argument})"


@dataclass(frozen=True)
class TopK(Aggregate):
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
        _ordered(self, schema)
        if "rank" in schema.names:
            raise SchemaError("top_k adds a column 'rank', and the payload has one; rename it first")
        return schema.append(pa.field("rank", pa.int64()))

    def __str__(self) -> str:
        return f"top_k({self.k}, by={self.argument}{'' if self.descending else ', descending=False'})"


def _numeric(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    kind = aggregate.argument_type(schema)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    if pa.types.is_decimal(kind):
        unit = f" in units of {10.0**-kind.scale:g} (times {10**kind.scale})" if kind.scale > 0 else ""
        raise SchemaError(
            f"{aggregate}: {aggregate.name} does not take decimals, and {aggregate.argument} is "
            f"{type_name(kind)}; cast it to float64, or to be exact to int64{unit}"
        )
    raise SchemaError(
        f"{aggregate}: {aggregate.name} needs numbers, but {aggregate.argument} is {type_name(kind)}"
    )


def _ordered(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    kind = aggregate.argument_type(schema)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise SchemaError(f"{aggregate}: values of type {type_name(kind)} have no order")
    return kind
