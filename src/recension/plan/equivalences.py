"""When a reading extends the run of the one before it: trends, bounds, and users' own functions.

An equivalence compares each reading with the previous one of its group, all pairs of a batch at once. It need
not be transitive (temporal coalescing, Appendix B; ruling 23). With several columns it holds for each of
them. Nulls and NaN never extend a run. Without an equivalence equal readings do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Mask
from recension.core.errors import RecensionError, SchemaError, describe_error
from recension.plan.schemas import type_name

IntoEquivalence: TypeAlias = "Equivalence | Callable[[pa.RecordBatch, pa.RecordBatch], Any] | str | None"


@dataclass(frozen=True)
class Trend:
    """Each value greater (smaller) than the one before."""

    direction: Literal["increasing", "decreasing"]

    def __str__(self) -> str:
        return self.direction

    def check(self, schema: pa.Schema) -> None:
        """Raise unless all columns have an order."""
        for field in schema:
            if pa.types.is_nested(field.type) or pa.types.is_null(field.type):
                raise SchemaError(f"coalesce: {field.name!r} is {type_name(field.type)}, which has no order")

    def __call__(self, before: pa.RecordBatch, after: pa.RecordBatch) -> Mask:
        """Row by row."""
        compare = pc.greater if self.direction == "increasing" else pc.less
        return _compare_columns(
            before, after, lambda old, new: _truth(compare(_to_comparable(new), _to_comparable(old)))
        )


@dataclass(frozen=True)
class Within:
    """Each value no further from the one before than ``bound``, or than that part of it if ``relative``."""

    bound: float
    relative: bool = False

    def __str__(self) -> str:
        return f"within {self.bound}{' of the previous value' if self.relative else ''}"

    def check(self, schema: pa.Schema) -> None:
        """Raise unless all columns are numbers."""
        if not self.bound >= 0:
            raise SchemaError(f"within: a bound is 0 or more, not {self.bound!r}")
        for field in schema:
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                kind = type_name(field.type)
                raise SchemaError(f"coalesce: {field.name!r} is {kind}; only numbers lie within a bound")

    def __call__(self, before: pa.RecordBatch, after: pa.RecordBatch) -> Mask:
        """Row by row."""
        return _compare_columns(before, after, self._holds)

    def _holds(self, old: pa.Array, new: pa.Array) -> Mask:
        known = _truth(pc.and_(pc.is_valid(old), pc.is_valid(new)))
        a, b = _numbers(old), _numbers(new)
        with np.errstate(invalid="ignore", over="ignore"):
            limit = self.bound * np.abs(a.astype(np.float64)) if self.relative else self.bound
            near: Mask = known & (_distance(a, b) <= limit)
        return near


@dataclass(frozen=True)
class Custom:
    """A function of two record batches, the readings before and the readings, that gives truth values."""

    fn: Callable[[pa.RecordBatch, pa.RecordBatch], Any]

    def __str__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def check(self, schema: pa.Schema) -> None:
        """Nothing is known of it before it is called."""

    def __call__(self, before: pa.RecordBatch, after: pa.RecordBatch) -> Mask:
        """Row by row; what is null is not true."""
        try:
            found = self.fn(before, after)
            truth = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found)
            truth = truth.combine_chunks() if isinstance(truth, pa.ChunkedArray) else truth
            holds = _truth(truth.cast(pa.bool_()))
        except Exception as why:
            raise RecensionError(f"equivalence {self}: {describe_error(why)}") from why
        if len(holds) != after.num_rows:
            raise RecensionError(f"equivalence {self}: {after.num_rows} pairs went in, {len(holds)} came out")
        return holds


Equivalence: TypeAlias = Trend | Within | Custom


def equivalence_of(given: IntoEquivalence) -> Equivalence | None:
    """An equivalence as users write it."""
    match given:
        case None | "equal":
            return None
        case "increasing" | "decreasing":
            return Trend(given)
        case Trend() | Within() | Custom():
            return given
    if isinstance(given, str) or not callable(given):
        usual = "'equal', 'increasing', 'decreasing', rc.within(bound) or a function of two record batches"
        raise SchemaError(f"coalesce: an equivalence is {usual}, not {given!r}")
    return Custom(given)


def _compare_columns(
    before: pa.RecordBatch, after: pa.RecordBatch, holds: Callable[[pa.Array, pa.Array], Mask]
) -> Mask:
    found = np.ones(after.num_rows, np.bool_)
    for old, new in zip(before.columns, after.columns, strict=True):
        found &= holds(old, new)
    return found


def _truth(values: pa.Array) -> Mask:
    truth: Mask = np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
    return truth


def _to_comparable(values: pa.Array) -> pa.Array:
    """Without encodings that Arrow cannot compare."""
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = pc.fill_null(_to_comparable(values), 0).to_numpy(zero_copy_only=False)
    return numbers


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """How far apart; of whole numbers exactly, though the difference may not fit in 64 bits with a sign."""
    if a.dtype.kind == "f":
        apart: npt.NDArray[Any] = np.abs(b - a)
        return apart
    wide = np.uint64 if a.dtype.kind == "u" else np.int64
    high, low = (f(a, b).astype(wide).view(np.uint64) for f in (np.maximum, np.minimum))
    difference: npt.NDArray[Any] = high - low
    return difference
