"""Consistency methods: when answers are shown, and how long the past may still change."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self, TypeAlias

from recension.api.base import StreamBase, plan_of
from recension.core.errors import RecensionError, TimeError
from recension.core.ticks import FOREVER, DurationLike, TimeLike, duration, instant
from recension.core.wall_clock import Length, WallClock
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime, Late
from recension.plan.levels import MIDDLE, Level, at_level

LengthLike: TypeAlias = DurationLike | WallClock


class ConsistencyMethods(StreamBase):
    """The consistency spectrum: waiting for order against speculation, memory against loss."""

    __slots__ = ()

    def cleanse(self) -> Self:
        """Only what is final: no retraction ever, ordered by start and then by payload.

        An event comes out once neither it nor any event before it can change; a long one holds back all
        that start after it.

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
        """The query so far at a level of consistency; parts that were given one before keep it.

        Parameters
        ----------
        level
            ``rc.STRONG`` waits for CTIs, so that inputs and answers come in order; ``rc.MIDDLE`` waits for
            nothing, forgets nothing and makes aggregates eager; ``rc.WEAK`` waits for nothing and forgets at
            once.
        block
            Instead of the level's: how long changes wait for their order, FOREVER until a CTI; in
            application time, or as ``rc.wall_clock("5s")``.
        remember
            Instead of the level's: how long the past may change before it is closed, likewise.

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
        """The same events, with changes held back for ``block`` to come in order.

        A change is shown once the stream is ``block`` past the start of its event; with
        ``rc.wall_clock(...)``, once the stream has been past that start for so long. Changes that undo each
        other while they wait are never shown. ``0`` holds back nothing; ``None`` or FOREVER, everything until
        a CTI has passed it, which makes the output ordered.

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

    def finalize(self, remember: LengthLike | None = None, *, since: TimeLike = 0) -> Self:
        """Retractions that came before what they retract put in order, and the past closed.

        Put it on a source: this then need not be a valid stream, and its external CTIs become CTIs. Between
        the two, here or in a group, may stand steps that such retractions pass as they are: ``where``,
        ``select``, ``map``, ``union``, and lifetimes that are shifted, extended or set.

        Parameters
        ----------
        remember
            How far behind the latest time seen the past is closed, proven complete or not; with
            ``rc.wall_clock(...)``, behind the latest time of that long ago. What comes later is dropped,
            counted, and kept in the result's ``dropped``. ``None``, or FOREVER: never.
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
            How far CTIs stay behind the greatest start seen: so late may an event be.
        events, every
            A CTI after so many events (by default 1), or one at each multiple of a duration.
        by
            Instead of all these, another stream whose CTIs hold for this one too, so that a slow reference
            stream does not hold up a join.
        late
            Elements before the last CTI are dropped (``drop``), and so are corrections of events that were
            dropped. They are counted, and are in the result's ``dropped``. ``adjust`` cuts them off at the
            CTI, and corrections of such events too; only what ended before the CTI is then dropped.
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
    """Ticks in a length of time, where ``None`` has no end; by the wall clock if it says so."""
    if isinstance(length, WallClock):
        return length
    return FOREVER if length is None else duration(length)
