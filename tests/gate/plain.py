"""Which row is refused, and why, in plain Python: a row at a time, and nothing shared with the gate.

    decode -> place -> repeats -> open and close -> declared properties -> validity

Only for the policy ``raise``: then no row after the first faulty one matters.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from tests.gate.cases import Case, Row, element_of

from recension.core.errors import StreamError
from recension.core.events import Element, Insert, Retract
from recension.core.ticks import BEGINNING
from recension.testing.model import Close, Open, OpenClose, StreamModel

_KINDS: Final = ("insert", "retract", "cti", "external_cti", "open", "close")


class _Stream:
    """One stream, or one of the streams in one: its own order and CTI."""

    def __init__(self, *, orphans: bool) -> None:
        self.order, self.model, self.toggles = -1, StreamModel(orphans=orphans), OpenClose()


class PlainGate:
    """Takes rows in turn; `fault` says why the next may not be there."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._streams: defaultdict[Any, _Stream] = defaultdict(lambda: _Stream(orphans=not case.above))
        self._highest: tuple[int, ...] = ()
        options = case.options
        self._start, self._end = options.get("start", "_vs"), options.get("end", "_ve")
        self._is_keyed = "key" in options
        self._takes_retractions = not ("properties" in options or self._is_keyed or case.make == "table")

    def first_fault(self) -> tuple[int, str] | None:
        """The number of the first row that may not be there, and the beginning of the reason."""
        for number, row in enumerate(self._case.rows, start=1):
            if (why := self._take(row)) is not None:
                return number, why
        return None

    def first_undecodable(self) -> tuple[int, str] | None:
        """The same of the first row that no element can be made of."""
        rows = (
            (n, self._decode_fault(self._kind(row), row)) for n, row in enumerate(self._case.rows, start=1)
        )
        return next(((number, why) for number, why in rows if why is not None), None)

    def _kind(self, row: Row) -> Any:
        return row.get("_kind") if "_kind" in self._case.columns else "insert"

    def _take(self, row: Row) -> str | None:
        kind = self._kind(row)
        if (why := self._decode_fault(kind, row)) is not None:
            return why
        stream = self._streams[row.get("part")]
        if "off" in row and row["off"] <= stream.order:
            return "does not come after what its partition has sent"
        stream.order = row.get("off", -1)
        if (number := self._number(row)) is not None and number <= self._highest:
            return None
        self._highest = self._highest if number is None else number
        try:
            element = self._translate(kind, row, stream)
        except StreamError as fault:
            return str(fault.reason)
        if isinstance(element, Retract) and not self._takes_retractions:
            return "a retraction, but the source is "
        return self._validity_fault(element, stream)

    def _decode_fault(self, kind: Any, row: Row) -> str | None:
        if kind not in _KINDS:
            return "_kind is null" if kind is None else f"unknown kind {kind!r}"
        if kind == "open" and row.get("_ve") is not None:
            return "an open row with an end"
        if self._case.make == "source" and kind not in ("cti", "close") and row.get(self._start) is None:
            return f"{self._start} is null"
        return None

    def _number(self, row: Row) -> tuple[int, ...] | None:
        if "_run" in row:
            return row["_batch"], row["_seq"]
        return None if row.get("n") is None else (row["n"],)

    def _translate(self, kind: Any, row: Row, stream: _Stream) -> Element:
        payload = {name: row.get(name) for name in self._case.payload}
        if kind == "open":
            return stream.toggles.translate(Open(payload, row["_vs"]))
        if kind == "close":
            return stream.toggles.translate(Close(payload, row["_ve"]))
        if self._case.make == "table":
            return Insert(payload, BEGINNING)
        lifetime = {"_vs": row.get(self._start), "_ve": row.get(self._end)}
        if self._start != "_vs" and "end" not in self._case.options:
            lifetime["_ve"] = row[self._start] + 1
        element = element_of({**row, **lifetime}, [*self._case.payload])
        assert element is not None
        return stream.toggles.translate(element)

    def _validity_fault(self, element: Element, stream: _Stream) -> str | None:
        why = None if self._is_keyed or self._case.make == "table" else stream.model.fault(element)
        if why is None:
            stream.model.take(element)
        return why


def says(reason: str, gist: str) -> bool:
    """Is a reason what the model says in its own words?"""
    return reason.startswith(gist) or _WORDS.get(gist.split(" (")[0], "?") in reason


_WORDS: Final = {
    "ends before it has begun": "ends before it has begun",
    "breaks an earlier cti": "breaks an earlier cti",
    "goes to an end before the start": "a retraction to an end before the start",
    "changes nothing": "a retraction that changes nothing",
    "retracts an event that is not there": "retracts an event that is not ",
}
