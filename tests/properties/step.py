"""A step of a random plan together with what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recension.core.events import Event

History = list[Event]


@dataclass(frozen=True)
class StepKind:
    """A step: how it is written, what it means, and whether it shows everything it knows at once."""

    name: str
    build: Callable[[Any, Any], Any]
    meaning: Callable[[History, History], History]
    is_immediate: bool = True

    def __repr__(self) -> str:
        return self.name


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def is_natural(payload: Any) -> bool:
    return payload["v"] is not None and payload["v"] >= 0
