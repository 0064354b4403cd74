"""Events as people and tests write them: one small frozen value per stream element.

Engines never build these; they work on :class:`~recension.core.batch.EventBatch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from recension.core.ticks import FOREVER

Payload: TypeAlias = Mapping[str, Any]


def _interval(vs: int, ve: int) -> str:
    return f"[{vs}, {'∞' if ve == FOREVER else ve})"


@dataclass(frozen=True, slots=True)
class Event:
    """A row of a history: a payload that is true during ``[vs, ve)``."""

    payload: Payload
    vs: int
    ve: int = FOREVER

    def __str__(self) -> str:
        return f"{_interval(self.vs, self.ve)} {dict(self.payload)}"


@dataclass(frozen=True, slots=True)
class Insert:
    """A new event."""

    payload: Payload
    vs: int
    ve: int = FOREVER

    def __str__(self) -> str:
        return f"insert {_interval(self.vs, self.ve)} {dict(self.payload)}"


@dataclass(frozen=True, slots=True)
class Retract:
    """The event ``(payload, vs, ve)`` now ends at ``new_ve``; ``new_ve == vs`` removes it."""

    payload: Payload
    vs: int
    ve: int
    new_ve: int

    def __str__(self) -> str:
        end = "∞" if self.new_ve == FOREVER else self.new_ve
        return f"retract {_interval(self.vs, self.ve)} -> {end} {dict(self.payload)}"


@dataclass(frozen=True, slots=True)
class Cti:
    """Nothing before ``t`` changes any more."""

    t: int

    def __str__(self) -> str:
        return f"cti {'∞' if self.t == FOREVER else self.t}"


@dataclass(frozen=True, slots=True)
class ExternalCti:
    """``count`` elements have their sync time in ``[vs, ve)``; only Finalize reads it."""

    vs: int
    ve: int
    count: int

    def __str__(self) -> str:
        return f"external_cti {_interval(self.vs, self.ve)} #{self.count}"


Element: TypeAlias = Insert | Retract | Cti | ExternalCti
