"""Functions of pandas: they work on a Series, where others work on an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class OfSeries:
    """A function that is given an array and takes a Series."""

    fn: Callable[[Any], Any]

    @property
    def __name__(self) -> str:
        return str(getattr(_inside(self.fn), "__name__", "function"))

    def __call__(self, values: Any) -> Any:
        """What it gives of the values."""
        import pandas as pd  # whoever gives a function of pandas has it

        return self.fn(pd.Series(values))


def on_arrays(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function as one of arrays.

    >>> on_arrays(len)([1, 2])
    2
    """
    is_of_pandas = (getattr(_inside(fn), "__module__", None) or "").partition(".")[0] == "pandas"
    return OfSeries(fn) if is_of_pandas else fn


def _inside(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn.func if isinstance(fn, partial) else fn
