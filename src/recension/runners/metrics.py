"""What operators do while a query runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from recension.core.ticks import BEGINNING


@dataclass(slots=True)
class Metrics:
    """What one operator has done so far."""

    name: str
    events_in: int = 0
    retractions_in: int = 0
    events_out: int = 0
    retractions_out: int = 0
    cti: int = BEGINNING
    state_rows: int = 0
    state_bytes: int = 0
    seconds: float = 0.0
    dropped: int = 0
    skipped: int = 0
    """Elements that no reader wanted, by feedback."""
    inputs: list[str] = field(default_factory=list)
    """Of a merge: whether each input is joining, joined, leaving or has left."""
    anomalies: int = 0
    """Of a merge: what its leading input lacked or had otherwise, though it was settled."""
    warnings: list[str] = field(default_factory=list)
    """What a person should know of it, each said once; the logger ``recension`` has them too."""
    is_halted: bool = False
    """Of a merge: has every input left that could move the output, while others wait for it to move?"""
