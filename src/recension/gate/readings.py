"""Results that are pushed on: a session gives its answer reading by reading, and they must come in order."""

from __future__ import annotations

from typing import NamedTuple

from recension.core.errors import RecensionError


class Position(NamedTuple):
    """How far an answer was read: after so many readings that gave something, with an id of its own."""

    number: int
    id: str


class Reading(NamedTuple):
    """The part of a session's answer that a result is; where nothing is known, as of a table, None."""

    begin: Position | None = None
    end: Position | None = None

    def __str__(self) -> str:
        return "the result" if self.begin is None else f"result {self.begin.number + 1}"

    @property
    def is_whole(self) -> bool:
        """Does it begin with the first reading?"""
        return self.begin is None or self.begin.number == 0

    def follow(self, earlier: Reading) -> Reading:
        """Both as one, if this begins where the earlier one ends."""
        if self.begin and earlier.end and self.begin != earlier.end:
            raise RecensionError(
                f"{self} does not follow result {earlier.end.number}: add the results of one query of one "
                "session, in order"
            )
        return Reading(earlier.begin, self.end)


class Readings:
    """Which answers were pushed to one source, and how far; None where that is not known or needed."""

    def __init__(self, source: str, *, is_needed: bool) -> None:
        self._source = source
        self._reached: set[Position] | None = set() if is_needed else None

    def require_earlier(self, reading: Reading) -> None:
        """Refuse a later reading of a session where those before it were not pushed."""
        if self._reached is not None and not reading.is_whole and reading.begin not in self._reached:
            raise RecensionError(
                f"{self._source}: {reading} does not follow what was pushed here: push the results of "
                "a session in order, or session.history()"
            )

    def note(self, reading: Reading | None, rows: int) -> None:
        """Remember a reading that came in; other data may be earlier readings in another form."""
        begin, end = reading or Reading()
        if end is None:
            self._reached = self._reached if rows == 0 else None
        elif self._reached is not None:
            self._reached = {*self._reached - {begin}, end}

    def forget(self) -> None:
        """Nothing is known of what came before."""
        self._reached = None
