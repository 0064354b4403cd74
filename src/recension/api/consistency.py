"""Consistency methods: when answers are shown, and how long the past may still change."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self, TypeAlias

from recension.api.base import StreamBase, plan_of
from recension.core.errors import RecensionError, SchemaError, TimeError
from recension.core.ticks import FOREVER, DurationLike, TimeLike, duration, instant
from recension.core.wall_clock import Length, WallClock
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime, Late
from recension.plan.due import Due, DueBy, Progress
from recension.plan.interval_join import require_lengths
from recension.plan.levels import MIDDLE, Level, at_level

LengthLike: TypeAlias = DurationLike | WallClock


class ConsistencyMethods(StreamBase):
    """The consistency spectrum: how long to wait for order, and how long to remember."""

    __slots__ = ()

    def cleanse(self) -> Self:
        """Show only what is final: without retractions, ordered by start and then by payload.

        An event is shown when neither it nor any event before it can change. A long event holds back all
        events that start after it.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> late = [rc.Insert({"x": 1}, 5, 9), rc.Insert({"x": 2}, 2, 9), rc.Retract({"x": 2}, 2, 9, 4)]
        >>> for element in rc.run(s.cleanse(), {"s": [*late, rc.Cti(8)]}).elements():
        ...     print(element)
        insert [2, 4) {'x': 2}
        cti 5
        """
        return self._then(Cleanse(self.plan))

    def consistency(
        self,
        level: Level = MIDDLE,
        *,
        block: LengthLike | None = None,
        remember: LengthLike | None = None,
    ) -> Self:
        """Run the query so far at a level of consistency; parts that already have a level keep it.

        Parameters
        ----------
        level
            ``rc.STRONG`` waits for CTIs, so that inputs and answers are in order. ``rc.MIDDLE`` waits for
            nothing, forgets nothing and makes aggregates eager. ``rc.WEAK`` waits for nothing and forgets at
            once.
        block
            Overrides the level: how long changes wait to be put in order. FOREVER: until a CTI. In
            application time, or by the clock with ``rc.wall_clock("5s")``.
        remember
            Overrides the level: how long the past may still change, likewise.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> query = s.agg(n=rc.count()).consistency(rc.STRONG, remember="1ms")
        >>> for line in query.explain().splitlines():
        ...     if "columns" not in line:
        ...         print(line)
        align, block forever
        │  known: ordered, (vs, payload) is a key
        │  chosen: shows what a cti has passed, in order
        └─ aggregate n = count(), speculate perfect
           │  known: (vs, payload) is a key, shrink-only
           │  chosen: perfect: shows what has ended, holds its cti at the open snapshot; n by differences
           └─ align, block forever
              │  known: ordered, a CTI at most 1000 behind
              │  chosen: shows what a cti has passed, in order
              └─ finalize, remember 1000
                 │  known: a CTI at most 1000 behind
                 │  chosen: ctis where the past is proven complete, or 1000 behind: what is later is dropped
                 └─ source s
                       known: nothing
                       lifetimes: rows live from _vs to _ve; without _ve, for ever
        """
        if not isinstance(level, Level):
            raise RecensionError(
                f"consistency: a level is rc.STRONG, rc.MIDDLE, rc.WEAK or an rc.Level, not {level!r}"
            )
        waits = level.block if block is None else length_of(block)
        remembers = level.remember if remember is None else length_of(remember)
        for name, ticks in (("block", waits), ("remember", remembers)):
            if isinstance(ticks, int) and ticks < 0:
                raise TimeError(f"consistency: {name}={ticks} ticks; it takes 0 or more, or FOREVER")
        return self._then(at_level(self.plan, replace(level, block=waits, remember=remembers)))

    def align(self, block: LengthLike | None = None) -> Self:
        """The same events; changes wait for ``block``, so that they come in order.

        A change is shown once the stream is ``block`` past the start of its event; with
        ``rc.wall_clock(...)``, once the stream has been past that start for so long. Changes that undo each
        other while they wait are never shown. With ``0`` nothing waits. With ``None`` or FOREVER, every
        change waits until a CTI has passed it, so the output is ordered.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> late = [rc.Insert({"x": 1}, 5, 9), rc.Insert({"x": 2}, 2, 9), rc.Retract({"x": 2}, 2, 9, 4)]
        >>> for element in rc.run(s.align(), {"s": [*late, rc.Cti(8)]}).elements():
        ...     print(element)
        insert [2, 4) {'x': 2}
        insert [5, 9) {'x': 1}
        cti 8
        """
        return self._then(Align(self.plan, length_of(block)))

    def due(
        self, by: StreamBase | Literal["clock"] | None = None, *, ahead: DurationLike | None = None
    ) -> Self:
        """The same events, each shown only once its start has come; what is refuted before is never shown.

        Parameters
        ----------
        by
            What tells the time. ``None``: the stream's own CTI, which must be beyond the start. Another
            stream: the latest start or CTI seen on it. ``"clock"``: the clock; then something may be due
            though nothing comes, see `Session.tick`.
        ahead
            With another stream: a start more than that beyond its time so far is counted, and moves time
            only when a CTI reaches it or another row starts within ``ahead`` of it. So one mistyped year
            does not make everything due, and a quiet week does not stop it.

        Closing the stream shows all of it. So in a batch this changes nothing.

        >>> import recension as rc
        >>> orders = rc.source("orders", {"order": "int64"})
        >>> deadlines = orders.shift(10).due(by=orders)
        >>> late = [rc.Insert({"order": number}, vs, vs + 5) for number, vs in ((1, 0), (2, 4), (3, 12))]
        >>> for element in rc.run(deadlines, {"orders": late}, batch_size=1).elements():
        ...     print(element)
        insert [10, 15) {'order': 1}
        """
        distance = _require_ahead(ahead, by)
        if isinstance(by, StreamBase):
            return self._then(DueBy(self.plan, Progress(by.plan, distance), distance))
        if by is not None and not (isinstance(by, str) and by == "clock"):
            raise SchemaError(f'due: by= is a stream or "clock", not {by!r}')
        if ahead is not None:
            raise TimeError(
                "due: ahead= says how far starts of another stream may be ahead: give that stream, by="
            )
        return self._then(Due(self.plan, by_clock=by is not None))

    def finalize(self, remember: LengthLike | None = None, *, since: TimeLike = 0) -> Self:
        """Put retractions that arrive before their inserts in order, and close the past.

        Put it on a source: the source then need not be a valid stream, and its external CTIs become CTIs.
        Between the source and ``finalize``, also inside a group, only steps that pass such retractions
        unchanged are allowed: ``where``, ``select``, ``map``, ``union``, and steps that shift, extend or set
        lifetimes.

        Parameters
        ----------
        remember
            How far behind the latest time the past is closed, even if it is not known to be complete. With
            ``rc.wall_clock(...)``, up to the latest time of that long ago. Later elements for that past are
            dropped, counted, and kept in the result's ``dropped``. ``None`` or FOREVER: never.
        since
            Where external CTIs begin.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> feed = [rc.Retract({"x": 1}, 0, 9, 4), rc.Insert({"x": 1}, 0, 9), rc.ExternalCti(0, 8, 2)]
        >>> for element in rc.run(s.finalize(), {"s": feed}).elements():
        ...     print(element)
        insert [0, 4) {'x': 1}
        cti 8
        """
        return self._then(Finalize(self.plan, length_of(remember), int(instant(since))))

    def advance_time(
        self,
        delay: DurationLike | None = None,
        *,
        events: int | None = None,
        every: DurationLike | None = None,
        by: StreamBase | None = None,
        late: Late | Literal["aside"] = "drop",
    ) -> Self:
        """CTIs for a stream that sends none or too few.

        Parameters
        ----------
        delay
            How far CTIs stay behind the latest start: an event may be that late.
        events, every
            A CTI after that many events (by default 1), or one at each multiple of a duration.
        by
            Instead of all these, another stream: its CTIs also apply to this stream. So a slow reference
            stream does not hold up a join.
        late
            Elements before the last CTI are dropped (``drop``), and so are corrections of dropped events.
            They are counted, and are in the result's ``dropped``. ``adjust`` moves their start to the CTI,
            also for corrections of such events; only events that ended before the CTI are then dropped.
            ``aside`` is an old name of ``drop``.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> readings = [rc.Insert({"x": x}, x, x + 1) for x in (1, 9, 2, 5)]
        >>> out = rc.run(s.advance_time("4us"), {"s": readings}, batch_size=1)
        >>> [str(element) for element in out.elements() if isinstance(element, rc.Cti)]
        ['cti -3', 'cti 5']
        >>> out.metrics[-1].dropped
        1
        """
        late = "drop" if late == "aside" else late
        if by is not None and (delay, events, every) == (None, None, None):
            return self._then(ImportTime(self.plan, plan_of(by, "advance_time"), late))
        if by is not None or delay is None:
            raise TimeError("advance_time: give a delay, or by= alone")
        interval = None if every is None else duration(every)
        return self._then(AdvanceTime(self.plan, duration(delay), events, interval, late))


def length_of(length: LengthLike | None) -> Length:
    """Ticks in a length of time; ``None`` is endless, and `rc.wall_clock` stays what it is."""
    if isinstance(length, WallClock):
        return length
    return FOREVER if length is None else duration(length)


def _require_ahead(ahead: DurationLike | None, by: object) -> int | None:
    if ahead is None:
        return None
    try:
        distance = duration(ahead)
    except TimeError as why:
        raise TimeError(f"due(ahead=...): {why}") from None
    if isinstance(by, StreamBase):
        require_lengths((ahead,), (by.plan,), "due", "ahead")
    return distance
