"""Expressions as functions of payload batches, and the kernels of span steps that are made of them.

Results have exactly the types inferred when the query was built.

A payload without columns has no length, so callers that may hold one pass ``size``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Mask
from recension.plan.expressions import Expression
from recension.plan.expressions.values import values_of

Kernel: TypeAlias = Callable[[pa.RecordBatch], tuple[Mask | None, pa.RecordBatch]]
"""A span step on a batch of payloads: which rows stay (None: all), and their new payload."""


def evaluate(
    computed: Sequence[Expression],
    types: Sequence[pa.DataType],
    payload: pa.RecordBatch,
    size: int | None = None,
) -> list[pa.Array]:
    """One array per expression, as long as the payload and of the given types."""
    rows = payload.num_rows if size is None else size
    arrays: list[pa.Array | None] = [
        _at_once(e, t, payload, rows) for e, t in zip(computed, types, strict=True)
    ]
    rest = [i for i, array in enumerate(arrays) if array is None]
    if rest:
        found = values_of([computed[i].tree for i in rest], payload)
        for i, array in zip(rest, found, strict=True):
            arrays[i] = _cast(array, types[i])
    return arrays


def _at_once(computed: Expression, kind: pa.DataType, payload: pa.RecordBatch, rows: int) -> pa.Array | None:
    """A column or a constant, which need no computation; None for anything else."""
    if computed.column is not None:
        return _cast(payload.column(computed.column), kind)
    if computed.constant is not None:
        return _cast(pa.repeat(computed.constant, rows), kind)
    return None


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


@dataclass(frozen=True)
class Projection:
    """The payload with other columns."""

    outputs: tuple[tuple[str, Expression], ...]
    schema: pa.Schema

    def __call__(self, payload: pa.RecordBatch, size: int | None = None) -> pa.RecordBatch:
        """The output payload."""
        arrays = evaluate(self._expressions, self.schema.types, payload, size)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @cached_property
    def never_fails(self) -> bool:
        """Does it read columns as they are?"""
        return all(computed.column is not None for computed in self._expressions)

    @cached_property
    def _expressions(self) -> list[Expression]:
        return [computed for _, computed in self.outputs]


@dataclass(frozen=True)
class Predicate:
    """Which rows satisfy a condition; where it is null they do not."""

    condition: Expression

    def __call__(self, payload: pa.RecordBatch, size: int | None = None) -> Mask:
        """One truth value a row."""
        (truth,) = evaluate([self.condition], [pa.bool_()], payload, size)
        known = pc.fill_null(truth, False) if truth.null_count else truth
        return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class ComputedColumn:
    """One computed column, such as the argument of an aggregate."""

    value: Expression
    kind: pa.DataType

    @property
    def never_fails(self) -> bool:
        """Does it read a column as it is?"""
        return self.value.column is not None

    def __call__(self, payload: pa.RecordBatch, size: int | None = None) -> pa.Array:
        """One value a row."""
        if self.value.column is not None:
            return _cast(payload.column(self.value.column), self.kind)
        return evaluate([self.value], [self.kind], payload, size)[0]


@dataclass(frozen=True)
class ComputedTogether:
    """Several computed columns as one of structs, such as a value and whether it counts."""

    values: tuple[Expression, ...]
    kinds: tuple[pa.DataType, ...]

    @property
    def never_fails(self) -> bool:
        """Does it read columns as they are?"""
        return all(value.column is not None for value in self.values)

    def __call__(self, payload: pa.RecordBatch, size: int | None = None) -> pa.Array:
        """One struct a row; none is null."""
        arrays = evaluate(self.values, self.kinds, payload, size)
        return pa.StructArray.from_arrays(arrays, [str(i) for i in range(len(arrays))])


def span_kernel(predicates: Sequence[Predicate], projection: Projection | None) -> Kernel:
    """A pass that filters by all predicates, each on what the one before left, and then projects."""

    def kernel(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
        keep: Mask | None = None
        for predicate in predicates:
            holds = predicate(payload)
            payload = payload.filter(pa.array(holds))
            if keep is None:
                keep = holds
            else:
                keep[keep] = holds
        return keep, payload if projection is None else projection(payload)

    return kernel
