"""User-defined functions: of each row, for wherever expressions stand; of arrays, for aggregates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.errors import ModuleError, describe_error
from recension.core.values import MISFITS, describe_misfit, exact_array
from recension.modules.calls import ROWS_SHOWN, NotDeterministicError

Over: TypeAlias = Literal["rows", "numpy", "arrow"]
OVER: Final = ("rows", "numpy", "arrow")


class Function:
    """A function over columns: called row by row, or once a batch with NumPy or Arrow arrays.

    >>> twice = Function(lambda x: 2 * x, pa.int64(), "rows")
    >>> twice.over_columns([pa.array([1, 4])]).to_pylist()
    [2, 8]
    """

    def __init__(self, fn: Callable[..., Any], result: pa.DataType, over: Over) -> None:
        self.fn, self.result, self.over = fn, result, over
        self.name = str(getattr(fn, "__name__", type(fn).__name__))

    def structure_parts(self) -> tuple[Any, ...]:
        """What makes two of them the same."""
        return self.fn, self.result, self.over

    def over_columns(self, columns: list[pa.Array]) -> pa.Array:
        """One value a row; a function is never called without rows."""
        if not len(columns[0]):
            return pa.array([], self.result)
        if self.over == "rows":
            return self._of_rows(list(zip(*map(_values, columns), strict=True)))
        try:
            if self.over == "arrow":
                answer = self.fn(*columns)
            else:
                answer = self.fn(*(column.to_numpy(zero_copy_only=False) for column in columns))
        except Exception as why:
            rows = list(zip(*(_values(column.slice(0, ROWS_SHOWN)) for column in columns), strict=True))
            raise self._failure(why, rows, len(columns[0])) from why
        answer = self._to_result(answer)
        if len(answer) != len(columns[0]):
            raise ModuleError(f"udf {self.name}: {len(columns[0])} rows went in and {len(answer)} came out")
        return answer

    def _of_rows(self, rows: list[tuple[Any, ...]]) -> pa.Array:
        answers = [self._of_row(row) for row in rows]
        try:
            return exact_array(answers, self.result)
        except MISFITS as why:
            for row, answer in zip(rows, answers, strict=True):
                if (reason := describe_misfit(answer, self.result)) is not None:
                    given = ", ".join(map(repr, row))
                    raise self._misfit(f"{reason}; it was given ({given})") from None
            raise self._misfit(str(why).splitlines()[0]) from None

    def _of_row(self, row: tuple[Any, ...]) -> Any:
        try:
            return self.fn(*row)
        except Exception as why:
            raise self._failure(why, [row], 1) from why

    def _failure(self, why: Exception, rows: list[tuple[Any, ...]], size: int) -> ModuleError:
        """An error with the first of the rows it was given."""
        reason = str(why) if isinstance(why, NotDeterministicError) else describe_error(why)
        given = ", ".join(f"({', '.join(map(repr, row))})" for row in rows)
        more = f" and {size - len(rows)} more" if size > len(rows) else ""
        return ModuleError(f"udf {self.name}: {reason}; it was given {given}{more}")

    def _to_result(self, answer: Any) -> pa.Array:
        try:
            if isinstance(answer, pa.ChunkedArray):
                answer = answer.combine_chunks()
            if isinstance(answer, pa.Array):
                return answer.cast(self.result)
            column = pa.array(answer, self.result)
            # Of arrays of numbers Arrow itself refuses what would be cut.
            if isinstance(answer, list | tuple) or getattr(answer, "dtype", None) == np.dtype(object):
                exact_array(list(compress(answer, column.is_valid().to_pylist())), self.result)
            return column
        except MISFITS as why:
            raise self._misfit(str(why).splitlines()[0]) from None

    def _misfit(self, reason: str) -> ModuleError:
        return ModuleError(f"udf {self.name} is declared to give {self.result}, but {reason}")


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


@dataclass(frozen=True)
class OfSeries:
    """A function that is given an array and takes a Series."""

    fn: Callable[[Any], Any]

    @property
    def __name__(self) -> str:
        return str(getattr(_wrapped_function(self.fn), "__name__", "function"))

    def __call__(self, values: Any) -> Any:
        """What it gives of the values."""
        import pandas as pd  # whoever gives a function of pandas has it

        return self.fn(pd.Series(values))


def on_arrays(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function as one of arrays.

    >>> on_arrays(len)([1, 2])
    2
    """
    is_of_pandas = (getattr(_wrapped_function(fn), "__module__", None) or "").partition(".")[0] == "pandas"
    return OfSeries(fn) if is_of_pandas else fn


def _wrapped_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn.func if isinstance(fn, partial) else fn
