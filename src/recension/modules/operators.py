"""User-defined operators: any number of rows for the members of a window.

Rows are mappings (or an Arrow table). Time-sensitive operators may give `rc.Event` in place of a mapping, and
so say when the row is true; a row without a lifetime lives as long as its window.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from recension.core.events import Event, Payload
from recension.modules.members import Events, Payloads, Window
from recension.modules.module import Module
from recension.modules.told_states import StateOfEvents, StateOfPayloads


class Operator(Module):
    """Rows made from the payloads of a window; it knows no time."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, payloads: Payloads) -> Iterable[Payload]:
        """The rows."""


class TimeSensitiveOperator(Module):
    """Rows, stamped or not, made from the events of a window and the window itself."""

    is_time_sensitive: ClassVar[bool] = True
    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, events: Events, window: Window) -> Iterable[Event | Payload]:
        """The rows."""


class IncrementalOperator(StateOfPayloads):
    """Rows of a state that is told which payloads come and go."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, state: Any) -> Iterable[Payload]:
        """The rows."""


class IncrementalTimeSensitiveOperator(StateOfEvents):
    """Rows, stamped or not, of a state that is told which events come and go."""

    yields_rows: ClassVar[bool] = True

    @abstractmethod
    def compute(self, state: Any, window: Window) -> Iterable[Event | Payload]:
        """The rows."""
