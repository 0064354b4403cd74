"""Keyed sources: what rows with keys and versions say, one row after the other.

Source: design note 027, rulings K1 to K8. What is late depends on when CTIs come, so these are functions of
what arrives, not of a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recension.core.errors import StreamError
from recension.core.events import Cti, Event, Insert
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.lineage import Bases, Lineage, Region, Seen, Words
from recension.denote.order import Columns, History

Policy: TypeAlias = Literal["raise", "drop", "adjust"]
Arriving: TypeAlias = Iterable[Insert | Cti]


@dataclass(frozen=True)
class RowMeaning:
    """Which columns of a row are the payload, the key, the version and the mark of deletion."""

    payload: Columns
    key: Columns
    version: str | None = None
    deleted: str | None = None
    policy: Policy = "raise"

    def event(self, row: Insert) -> Event | None:
        """What a row states; None if it deletes."""
        if self.deleted is not None and row.payload[self.deleted]:
            return None
        if row.ve < row.vs:
            raise _ViolationError
        return Event({name: row.payload[name] for name in self.payload}, row.vs, row.ve)


class _ViolationError(Exception):
    """A row that may not be there."""


def restate(arriving: Arriving, meaning: RowMeaning, forget: int | None = None) -> History:
    """Of each key what the row of its highest version states.

    >>> rows = [Insert({"job": 7, "seq": 2}, 3, 9), Insert({"job": 7, "seq": 1}, 3)]
    >>> print(*restate(rows, RowMeaning(["job"], ["job"], "seq")))
    [3, 9) {'job': 7}
    """
    return _follow(arriving, meaning, lambda: _Record(meaning, forget))


def changes(arriving: Arriving, meaning: RowMeaning, order: Literal["start", "version"] = "start") -> History:
    """Each row until the next of its key.

    >>> rows = [Insert({"id": 1, "n": 2}, 5), Insert({"id": 1, "n": 1}, 3)]
    >>> print(*changes(rows, RowMeaning(["id", "n"], ["id"])), sep="; ")
    [3, 5) {'id': 1, 'n': 1}; [5, ∞) {'id': 1, 'n': 2}
    """
    return _follow(arriving, meaning, lambda: _Changes(meaning, order))


def _follow(arriving: Arriving, meaning: RowMeaning, make: Any) -> History:
    keys: dict[Any, Any] = {}
    cti = BEGINNING
    for number, row in enumerate(arriving, 1):
        if isinstance(row, Cti):
            cti = max(cti, row.t)
            for one in keys.values():
                one.pass_cti(cti)
            continue
        name = tuple(row.payload[column] for column in meaning.key)
        version = number if meaning.version is None else row.payload[meaning.version]
        try:
            if None in name or version is None:
                raise _ViolationError
            keys.setdefault(name, make()).take(row, version, cti)
        except _ViolationError:
            if meaning.policy == "raise":
                raise StreamError(f"not allowed: {row}") from None
    return [event for one in keys.values() for event in one.output()]


@dataclass
class _Record:
    meaning: RowMeaning
    forget: int | None
    version: int | None = None
    state: Event | None = None
    pieces: list[Event] = field(default_factory=list)
    last: Event | None = None
    """The piece that may still change."""
    over: int = FOREVER
    is_forgotten: bool = False

    def output(self) -> History:
        return [*self.pieces, *([self.last] if self.last else [])]

    def pass_cti(self, t: int) -> None:
        if self.last is not None and self.last.ve < t:
            self.pieces.append(self.last)
            self.last = None
        if self.forget is not None and self.over + self.forget < t:
            self.is_forgotten = True

    def take(self, row: Insert, version: int, t: int) -> None:
        if self.is_forgotten:
            raise _ViolationError
        new = self.meaning.event(row)
        if new is not None and new.vs == new.ve:
            new = None  # A record without duration is nowhere.
        if self.version is not None and version <= self.version:
            if version == self.version and new != self.state:
                raise _ViolationError
            return
        is_late = any(sync < t for sync in _syncs(self.state, new))
        if is_late and self.meaning.policy != "adjust":
            raise _ViolationError
        self._show(new, row, t)
        self.version, self.state = version, new

    def _show(self, new: Event | None, row: Insert, t: int) -> None:
        """Before the CTI what was shown stays; from it on the row counts."""
        begin, old, last = max(row.vs, t), self.state, self.last
        goes_on = old is not None and new is not None and last is not None and old.payload == new.payload
        if goes_on and last is not None and max(last.vs, t) == begin:
            self.last = Event(last.payload, last.vs, max(row.ve, begin))
            self.over = self.last.ve
            return
        if last is not None and last.vs < t:
            self.pieces.append(Event(last.payload, last.vs, t))
        self.last = Event(new.payload, begin, row.ve) if new is not None and begin < row.ve else None
        self.over = begin if self.last is None else row.ve


def _syncs(old: Event | None, new: Event | None) -> list[int]:
    """When the elements take effect that lead from one record to the other."""
    if old == new:
        return []
    if old is not None and new is not None and (old.payload, old.vs) == (new.payload, new.vs):
        return [min(old.ve, new.ve)]
    return [event.vs for event in (old, new) if event is not None]


@dataclass
class _Moment:
    place: int
    version: int
    start: int
    state: Event | None
    number: int


@dataclass
class _Changes:
    meaning: RowMeaning
    order: Literal["start", "version"]
    moments: list[_Moment] = field(default_factory=list)
    pieces: dict[tuple[int, int], Event] = field(default_factory=dict)
    """What is shown, by the row it is of and its start."""
    rows: int = 0

    def output(self) -> History:
        return list(self.pieces.values())

    def _since(self) -> list[int]:
        """When each begins: not before one that stands before it."""
        starts = [moment.start for moment in self.moments]
        return [max(starts[: i + 1]) for i in range(len(starts))]

    def pass_cti(self, t: int) -> None:
        past = [m for m, since in zip(self.moments, self._since(), strict=True) if since < t]
        ahead = self.moments[len(past) :]
        keeps_deleted = self.meaning.policy == "adjust" or self.order == "version"
        still = [m for m in past[-1:] if m.state is not None or keeps_deleted]
        for moment in still:
            moment.start = max(m.start for m in past)
        self.moments = still + ahead

    def take(self, row: Insert, version: int, t: int) -> None:
        place = row.vs if self.order == "start" else version
        start, state = row.vs, self.meaning.event(row)
        content = None if state is None else state.payload
        there = next((m for m in self.moments if m.place == place), None)
        if there is not None:
            said = None if there.state is None else there.state.payload
            if version <= there.version:
                if version == there.version and content != said:
                    raise _ViolationError
                return
            if content == said:
                there.version = version
                return
        since = dict(zip((m.place for m in self.moments), self._since(), strict=True))
        begin = start if self.order == "start" else max([start, *(s for p, s in since.items() if p < place)])
        known_past = t if self.order == "start" else None
        hidden = any(
            p > place and (p < known_past if known_past is not None else s < t) for p, s in since.items()
        )
        if begin < t or hidden:
            if self.meaning.policy != "adjust" or hidden:
                raise _ViolationError
            start = t
        self.moments = [m for m in self.moments if m.place != place]
        self.rows += 1
        self.moments.append(_Moment(place, version, start, state, self.rows))
        self.moments.sort(key=lambda m: m.place)
        self._show(t)

    def _show(self, t: int) -> None:
        begins = self._since()
        wanted = {
            (m.number, begin): Event(m.state.payload, begin, end)
            for m, begin, end in zip(self.moments, begins, [*begins[1:], FOREVER], strict=True)
            if m.state is not None and begin < end
        }
        for name, piece in self.pieces.items():
            if name not in wanted and piece.vs < t:
                wanted[name] = Event(piece.payload, piece.vs, min(piece.ve, t))
        self.pieces = wanted


class RecordLineage(Lineage):
    """What the event of a keyed source rests on: the rows of its key.

    ``names_latest``: of records that are restated the row of the highest version alone decides. Where arrival
    or lateness does, all rows of the key are named.
    """

    def __init__(self, meaning: RowMeaning, names_latest: bool) -> None:
        super().__init__([{name: name for name in meaning.key}])
        self._meaning, self._names_latest = meaning, names_latest

    def reach(self, region: Region) -> list[Region]:
        """A row says something of all times: what went before it no longer holds."""
        return [super().reach(region)[0].for_ever()]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        (basis,) = super().presence(event, inputs)
        version = self._meaning.version
        if self._names_latest and version is not None and basis.kept:
            latest = max(v for row in basis.kept if (v := row.payload[version]) is not None)
            basis.kept = [row for row in basis.kept if row.payload[version] == latest]
        return [basis]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return f"{words.count(0, bases[0].kept, 'row')} of its key: {words.names(bases[0].kept)}"


class ChangesLineage(RecordLineage):
    """What the event of a row that holds until the next rests on: the rows at its start and at its end.

    That is so where starts give the order (``by_start``); else all rows of the key are named.
    """

    def __init__(self, meaning: RowMeaning, by_start: bool) -> None:
        super().__init__(meaning, names_latest=False)
        self._by_start = by_start

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        (basis,) = super().presence(event, inputs)
        if self._by_start:
            basis.kept = [row for row in basis.kept if row.vs in (event.vs, event.ve)]
        return [basis]
