"""The classes that users derive modules from: aggregates give a value for a window, operators any rows.

Rows are mappings (or an Arrow table). Time-sensitive operators may give `rc.Event` in place of a mapping to
say when the row is true; a row without a lifetime lives as long as its window.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from recension.core.events import Event, Payload
from recension.modules.members import Events, Payloads, Window
from recension.modules.module import IncrementalOnEvents, IncrementalOnPayloads, Module


class Aggregate(Module):
    """One value from the payloads of a window; it does not see time.

    >>> class MyAverage(Aggregate):
    ...     inputs = {"v": "float64"}
    ...     result = "float64"
    ...     def compute(self, payloads):
    ...         return payloads["v"].mean()
    >>> print(MyAverage())
    MyAverage()
    """

    @abstractmethod
    def compute(self, payloads: Payloads) -> Any:
        """The value."""


class ArrayFunction(Aggregate):
    """A plain function of one array, in a query that has modules too."""

    def __init__(self, fn: Callable[[Any], Any], result: Any, values: Any) -> None:
        super().__init__(values=values)
        self._fn, self.result = fn, result  # type: ignore[misc]
        self._name = str(getattr(fn, "__name__", type(fn).__name__))

    def compute(self, payloads: Payloads) -> Any:
        return self._fn(payloads["values"])

    def structure_parts(self) -> tuple[Any, ...]:
        return type(self), self._fn, self.result


class TimeSensitiveAggregate(Module):
    """One value from the events of a window; it sees the window and lifetimes, clipped as the query says."""

    is_time_sensitive: ClassVar[bool] = True

    @abstractmethod
    def compute(self, events: Events, window: Window) -> Any:
        """The value."""


class IncrementalAggregate(IncrementalOnPayloads):
    """One value for each window, from a state that payloads are added to and removed from."""

    @abstractmethod
    def compute(self, state: Any) -> Any:
        """The value."""


class IncrementalTimeSensitiveAggregate(IncrementalOnEvents):
    """One value for each window, from a state that events are added to and removed from."""

    @abstractmethod
    def compute(self, state: Any, window: Window) -> Any:
        """The value."""


class Operator(Module):
    """Rows made from the payloads of a window; it does not see time."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, payloads: Payloads) -> Iterable[Payload]:
        """The rows."""


class TimeSensitiveOperator(Module):
    """Rows, with lifetimes or without, made from the events of a window and the window itself."""

    is_time_sensitive: ClassVar[bool] = True
    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, events: Events, window: Window) -> Iterable[Event | Payload]:
        """The rows."""


class IncrementalOperator(IncrementalOnPayloads):
    """Rows for each window, from a state that payloads are added to and removed from."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, state: Any) -> Iterable[Payload]:
        """The rows."""


class IncrementalTimeSensitiveOperator(IncrementalOnEvents):
    """Rows, with lifetimes or without, from a state that events are added to and removed from."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, state: Any, window: Window) -> Iterable[Event | Payload]:
        """The rows."""
