"""The states of incremental modules, aggregates and operators alike: what they are told."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from recension.modules.members import Events, Payloads, Window
from recension.modules.module import Incremental


class StateOfPayloads(Incremental):
    """A state that is told which payloads come and go."""

    @abstractmethod
    def initial(self) -> Any:
        """The state of no payloads."""

    @abstractmethod
    def add(self, state: Any, payloads: Payloads) -> Any:
        """The state with these payloads more."""

    @abstractmethod
    def remove(self, state: Any, payloads: Payloads) -> Any:
        """The state with these payloads, which are in it, less."""


class StateOfEvents(Incremental):
    """A state that is told which events come and go; a changed lifetime is one of each."""

    is_time_sensitive: ClassVar[bool] = True

    @abstractmethod
    def initial(self, window: Window) -> Any:
        """The state of no events."""

    @abstractmethod
    def add(self, state: Any, events: Events, window: Window) -> Any:
        """The state with these events more."""

    @abstractmethod
    def remove(self, state: Any, events: Events, window: Window) -> Any:
        """The state with these events, which are in it, less."""
