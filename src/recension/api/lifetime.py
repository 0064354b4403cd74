"""Lifetime methods: change when events are true; and joins of events that are true together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Self

from recension.api.base import StreamBase, key_names, plan_of
from recension.core import ticks
from recension.core.errors import TimeError
from recension.core.ticks import DurationLike
from recension.plan import lifetimes
from recension.plan.expressions import IntoExpression, expression
from recension.plan.interval_join import Closed, interval_join_of, require_no_closed
from recension.plan.join import How, join_of
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.lifetimes import Constant, Moments, moments
from recension.plan.timed_steps import with_lifetime


class LifetimeMethods(StreamBase):
    """AlterLifetime in all its forms, and clipping by another stream."""

    __slots__ = ()

    def alter_lifetime(
        self,
        start: Callable[[Any, Any], Any] | None = None,
        duration: Callable[[Any, Any], Any] | DurationLike | None = None,
    ) -> Self:
        """Make every event live from ``start(vs, ve)`` for ``duration(vs, ve)``; empty events are dropped.

        Functions get arrays of ticks, or single ticks if they cannot handle arrays. Without ``start`` events
        keep their start, without ``duration`` their length. A duration may be a constant.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> ends = s.alter_lifetime(start=lambda vs, ve: ve, duration="10s")
        >>> ends.properties.constant_duration
        10000000
        """
        lasting = None if duration is None else _duration_rule(duration)
        if start is not None:
            return self._alter(lifetimes.Custom(moments(start, "start"), lasting))
        if lasting is None:
            raise TimeError("alter_lifetime: give start=, duration= or both")
        if isinstance(lasting, Constant):
            lifetimes.require_positive(lasting.ticks, "alter_lifetime", "a duration")
            return self.set_duration(lasting.ticks)
        return self._alter(lifetimes.Custom(None, lasting))

    def shift(self, by: DurationLike) -> Self:
        """Move start and end by a duration, forward or (negative) back.

        >>> import recension as rc
        >>> print(rc.source("s", {"x": "int64"}).shift("-1s").explain().splitlines()[0])
        shift by -1000000
        """
        return self._alter(lifetimes.Shift(ticks.duration(by)))

    def set_duration(self, length: DurationLike) -> Self:
        """Make every event live for ``length`` from its start: a moving window.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).set_duration(10).properties.constant_duration
        10
        """
        return self._alter(lifetimes.SetDuration(ticks.duration(length)))

    def extend(self, by: DurationLike) -> Self:
        """Move the end by a duration, forward or (negative) back.

        >>> import recension as rc
        >>> print(rc.source("s", {"x": "int64"}).extend(5).explain().splitlines()[0])
        extend by 5
        """
        return self._alter(lifetimes.Extend(ticks.duration(by)))

    def to_points(self) -> Self:
        """Make every event live for one tick, at its start.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).to_points().properties.is_point
        True
        """
        return self._alter(lifetimes.ToPoints())

    def inserts(self) -> Self:
        """Make every event live from its start, for ever.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).inserts().properties.is_shrink_only
        True
        """
        return self._alter(lifetimes.Inserts())

    def deletes(self) -> Self:
        """Make every event live from its end, for ever; an open event is dropped.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).deletes().properties.is_shrink_only
        True
        """
        return self._alter(lifetimes.Deletes())

    def hop_lifetime(self, size: DurationLike, hop: DurationLike) -> Self:
        """Move the start back to a multiple of ``hop``; the event lives for ``size`` from there.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).hop_lifetime(size="10m", hop="1m").properties.constant_duration
        600000000
        """
        return self._alter(lifetimes.Hop(ticks.duration(size), ticks.duration(hop)))

    def with_lifetime(
        self, start: IntoExpression, end: IntoExpression, *, bound: DurationLike | None = None
    ) -> Self:
        """Make every event live from ``start`` to ``end``, computed from its payload and times.

        An event is dropped if its start is null or if it would be empty. A null end means for ever. The
        expressions determine how far CTIs go. Directly above a step that reads the times of events, both
        become one step.

        Parameters
        ----------
        start, end
            Names of columns, or expressions: ticks, or timestamps where the times of the source are such.
        bound
            How long before the event's own start the new start may be at most. It is needed if the expression
            ``start`` does not determine it, for example for a column. An event that starts earlier is an
            error.

        >>> import recension as rc
        >>> jobs = rc.source("jobs", {"rate": "float64"})
        >>> bills = jobs.select(cost=rc.lifetime() * rc.col("rate")).with_lifetime(rc.end(), rc.end() + 1)
        >>> rc.run(bills, {"jobs": [rc.Insert({"rate": 0.5}, 3, 13), rc.Insert({"rate": 9.0}, 5)]}).show()
        _vs  _ve  cost
        13   14   5.0
        """
        limit = None if bound is None else ticks.duration(bound)
        return self._then(with_lifetime(self.plan, expression(start), expression(end), limit))

    def clip(self, by: StreamBase, on: str | Iterable[str] | None = None) -> Self:
        """End every event when the first matching event of ``by`` starts inside its lifetime.

        >>> import recension as rc
        >>> jobs, stops = (rc.source(name, {"job": "int64"}) for name in ("jobs", "stops"))
        >>> print(jobs.clip(by=stops, on="job").explain().splitlines()[0])
        clip on job
        """
        return self._then(Clip(self.plan, plan_of(by, "clip"), key_names(on, "clip")))

    def _alter(self, lifetime: lifetimes.Lifetime) -> Self:
        return self._then(AlterLifetime(self.plan, lifetime))


def _duration_rule(duration: Callable[[Any, Any], Any] | DurationLike) -> Moments | Constant:
    return moments(duration, "duration") if callable(duration) else Constant(ticks.duration(duration))


class JoinMethods(StreamBase):
    """Temporal joins."""

    __slots__ = ()

    def join(
        self,
        other: StreamBase,
        on: str | Iterable[str] | None = None,
        where: IntoExpression | None = None,
        how: How | Literal["full", "cross"] = "inner",
        suffix: str = "_right",
        *,
        starts: tuple[DurationLike, DurationLike] | None = None,
        closed: Closed = "both",
    ) -> Self:
        """Join the payloads of matching events and intersect their lifetimes.

        Parameters
        ----------
        other
            The right stream.
        on
            Key columns that both streams have; the result holds one copy of them.
        where
            A condition on the pair. It sees the joined columns, suffix included. Without ``on`` and ``where``
            a join is refused, except between streams of one group, whose keys match.
        how
            ``inner``: the pairs. ``semi`` / ``anti``: the left events on the parts of their lifetimes that
            some / no match covers. ``left``: the pairs, and the anti parts with nulls. ``full``: in addition
            the anti parts of the right events, with nulls and the keys of the right event. ``cross``: every
            pair, without ``on`` and ``where``.
        suffix
            Added to right columns whose names the left stream has too.
        starts
            Match by starts instead of by overlap: the least and the greatest distance from the left start to
            the right one. Negative distances look back. A pair lives for one tick, at the later start; the
            other kinds keep whole events.
        closed
            Which of the two distances are in the range: ``both``, ``left``, ``right`` or ``neither``.

        >>> import recension as rc
        >>> jobs = rc.source("jobs", {"host": "string", "cpu": "float64"})
        >>> limits = rc.source("limits", {"host": "string", "cpu": "float64"})
        >>> jobs.join(limits, on="host", where=rc.col("cpu") > rc.col("cpu_right")).schema.names
        ['host', 'cpu', 'cpu_right']
        >>> print(jobs.join(limits, on="host", how="semi", starts=("-1h", 0)).explain().splitlines()[0])
        semi join on host, starts -3600000000 to 0 after
        """
        condition = None if where is None else expression(where)
        right, keys = plan_of(other, "join"), key_names(on, "join")
        if starts is not None:
            return self._then(
                interval_join_of(self.plan, right, keys, condition, how, suffix, starts, closed)
            )
        require_no_closed(closed)
        return self._then(join_of(self.plan, right, keys, condition, how, suffix))
