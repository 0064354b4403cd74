"""Calls of users' code: errors that say what it was given, and calls made twice to compare the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.errors import ModuleError
from recension.core.events import Event
from recension.core.time_kind import describe_time_in_message
from recension.modules.members import Window

ROWS_SHOWN: Final = 5
"""How many rows of those a module was given are in an error."""


def module_error(module: str, reason: str, window: Window, given: Sequence[Any]) -> ModuleError:
    """The error in one line: module, window, reason and the first rows it was given.

    >>> print(module_error("Median", "it is tired", Window(0, 5), [1, 2]))
    module Median in the window [0, 5): it is tired; it was given 1, 2
    """
    return ModuleError(
        f"module {module} in the window {describe_interval(window)}: {reason}; {describe_given(given)}"
    )


def describe_interval(window: tuple[int, int]) -> str:
    """A lifetime as people write it."""
    start, end = window
    return f"[{describe_time_in_message(start)}, {describe_time_in_message(end)})"


def describe_given(given: Sequence[Any]) -> str:
    """The first of what was given, and how many more there are."""
    rows = [str(row) if isinstance(row, Event) else repr(row) for row in given[:ROWS_SHOWN]]
    more = f" and {len(given) - ROWS_SHOWN} more" if len(given) > ROWS_SHOWN else ""
    return f"it was given {', '.join(rows) or 'nothing'}{more}"


class NotDeterministicError(Exception):
    """Two calls with the same arguments gave different answers."""

    def __init__(self, answer: Any, again: Any) -> None:
        super().__init__(f"is not deterministic: it gave {answer!r}, then {again!r} of the same")


@dataclass(frozen=True)
class Repeated:
    """A function that is called twice whenever it is called.

    >>> Repeated(len)("four")
    4
    """

    fn: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    @property
    def written_as(self) -> Callable[..., Any]:
        """The function itself: a checkpoint is the same with and without the check."""
        return self.fn

    def __call__(self, *args: Any) -> Any:
        """The answer, if both calls give the same."""
        return call_twice(lambda: self.fn(*args))


def call_twice(call: Callable[[], Any]) -> Any:
    """The answer of a call that is made twice; raises if the answers differ."""
    answer = _as_value(call())
    require_same(answer, _as_value(call()))
    return answer


def require_same(answer: Any, again: Any) -> None:
    """Raise unless the two are equal."""
    if not _is_same(answer, again):
        raise NotDeterministicError(answer, again)


def _as_value(answer: Any) -> Any:
    """The answer, or a list of its items if it can be read only once."""
    is_value = isinstance(answer, str | bytes | Mapping | np.ndarray) or hasattr(answer, "equals")
    return answer if is_value or not hasattr(answer, "__iter__") else list(answer)


def _is_same(a: Any, b: Any) -> bool:
    """Are two answers equal? NaN equals NaN."""
    if isinstance(a, Event) and isinstance(b, Event):
        return (a.vs, a.ve) == (b.vs, b.ve) and _is_same(a.payload, b.payload)
    if isinstance(
        a, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table
    ):  # to Arrow, NaN differs from NaN
        return type(a) is type(b) and _is_same(a.to_pylist(), b.to_pylist())
    if hasattr(a, "equals"):  # frames have no plain ==
        return type(a) is type(b) and bool(a.equals(b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _is_same(a.tolist(), b.tolist())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_is_same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_is_same(x, y) for x, y in zip(a, b, strict=True))
    if a is pa.NA or b is pa.NA:
        return a is b
    return bool(a == b) or (a != a and b != b)
