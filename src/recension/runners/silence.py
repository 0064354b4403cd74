"""Notices a source that sends much and promises nothing: nothing can become final, state only grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ROWS: Final = 1_000_000
# Where less than this part of the rows is held, something else keeps the state small.
_HELD: Final = 0.1


class Silence:
    """Of one source that has sent no CTI; speaks once."""

    def __init__(self) -> None:
        self._next: int | None = ROWS

    def note(self, source: str, rows: int, held: Callable[[], int]) -> str | None:
        """So many rows have come, and no CTI: what there is to say about it, if there is."""
        if self._next is None or rows < self._next:
            return None
        # Counting what is held is not free: it is looked at again when twice as much has come.
        self._next = 2 * rows
        if (kept := held()) < _HELD * rows:
            return None
        self._next = None
        return (
            f"source {source} has sent {rows:,} rows and no cti: nothing can become final, and {kept:,} rows "
            f"of state are held; send ctis, promise times with session.advance({source!r}, t), or put "
            "advance_time(...) on it"
        )
