"""Aggregate methods: one answer for all events that are alive together, over the stream or per group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Generic, Self, TypeVar

from recension.api.base import StreamBase, plan_of
from recension.api.windows import Answer, WindowedStream
from recension.core.calendar import ZoneLike
from recension.core.errors import SchemaError
from recension.core.ticks import DurationLike, TimeLike, duration
from recension.core.window_limit import MAX_WINDOWS
from recension.plan.answers import having
from recension.plan.expressions import Expr, IntoExpression, tree_of
from recension.plan.expressions.tree import Call
from recension.plan.grids import grid
from recension.plan.group_apply import group_apply
from recension.plan.module_window import WindowKind
from recension.plan.node import Outputs, Speculate
from recension.plan.span import describe_outputs
from recension.plan.timed_steps import with_keys
from recension.plan.windows import CountWindows, Moment, SessionWindows

S = TypeVar("S", bound=StreamBase)


class WindowMethods(Generic[S]):
    """Windows and aggregates, of a stream or of each group. The answers of a group have the keys first."""

    __slots__ = ()

    @abstractmethod
    def _over_windows(self, windows: WindowKind) -> WindowedStream[S]: ...

    def agg(
        self,
        *rows: Expr,
        speculate: Speculate = "perfect",
        recompute: bool = False,
        **named: Answer,
    ) -> S:
        """One row for every snapshot: every maximal interval in which no event starts or ends.

        ``speculate`` says how early to answer. ``perfect``: when no event that arrives in order can change
        the answer. ``ordered``: as early as possible with the output in order. ``eager``: at once, with
        revisions later.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> s.agg(n=rc.count(), total=rc.sum("x")).schema.names
        ['n', 'total']
        >>> s.group_by(odd=rc.col("x") % 2).agg(rc.top_k(3, by="x")).schema.names
        ['odd', 'x', 'rank']
        >>> s.agg(mean=rc.sum("x") / rc.count(), large=rc.count(where=rc.col("x") > 9)).schema.names
        ['mean', 'large']
        """
        return self.snapshot().agg(*rows, speculate=speculate, recompute=recompute, **named)

    def tumbling(
        self,
        size: DurationLike,
        *,
        offset: DurationLike = 0,
        until: TimeLike | None = None,
        tz: ZoneLike | None = None,
        max_windows: int = MAX_WINDOWS,
    ) -> WindowedStream[S]:
        """Windows without overlap or gap: each begins where the one before ends.

        ``offset`` moves the grid. ``until`` keeps only windows that start before it; it is needed if events
        never end. An event that would be in more than ``max_windows`` windows is refused.

        With ``tz``, windows are whole days, weeks (from Monday), months, quarters or years of a time zone,
        longer or shorter when its clocks change. Times must then be timestamps with a zone.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).tumbling("10m").agg(n=rc.count()).schema.names
        ['n']
        >>> rc.source("s", {"x": "int64"}).tumbling("1mo", tz="Europe/Paris")
        <WindowedStream of source s: tumbling windows of 1 month in Europe/Paris>
        """
        return self.hopping(size, size, offset=offset, until=until, tz=tz, max_windows=max_windows)

    def hopping(
        self,
        size: DurationLike,
        hop: DurationLike,
        *,
        offset: DurationLike = 0,
        until: TimeLike | None = None,
        tz: ZoneLike | None = None,
        max_windows: int = MAX_WINDOWS,
    ) -> WindowedStream[S]:
        """Windows of one size, one every ``hop``; they may overlap or leave gaps.

        ``offset``, ``until``, ``tz`` and ``max_windows`` as for `tumbling`; with ``tz`` the size is a
        multiple of the hop.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).hopping(size="10m", hop="1m")
        <WindowedStream of source s: windows every 60000000 of 600000000>
        """
        return self._over_windows(grid(size, hop, offset, until, tz, max_windows))

    def snapshot(self) -> WindowedStream[S]:
        """One window for every snapshot: ``snapshot().agg(...)`` is ``agg(...)``.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).snapshot()
        <WindowedStream of source s: snapshots>
        """
        return self._over_windows(None)

    def count_window(self, n: int, by: Moment = "start") -> WindowedStream[S]:
        """A window from every moment at which events start (end) to the ``n``-th such moment from there.

        It holds the events that start (end) in it. Several events at one moment count once, and an open end
        does not count. If fewer than ``n`` moments follow, there is no window.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> pairs = s.count_window(2).agg(total=rc.sum("x"))
        >>> rc.run(pairs, {"s": [rc.Insert({"x": t}, t, t + 9) for t in (1, 3, 7)]}, close=True).show()
        _vs  _ve  total
        1    4    4
        3    8    10
        """
        return self._over_windows(CountWindows(n, by))

    def sessions(self, gap: DurationLike) -> WindowedStream[S]:
        """A window for all events that follow each other without a gap: a session.

        Two events belong to one session if the later one begins before the earlier one's end plus ``gap``,
        and so do all events that are linked in this way. A session lives from its first start to its latest
        end. Late events combine sessions, retractions split them. A session is final when a CTI reaches its
        end plus the gap.

        >>> import recension as rc
        >>> s = rc.source("s", {"user": "string", "page": "string"})
        >>> visits = s.group_by("user").sessions(30).agg(pages=rc.count(), last=rc.last("page"))
        >>> clicks = [("ann", "/", 0), ("bob", "/", 5), ("ann", "/a", 20), ("ann", "/b", 60)]
        >>> data = [rc.Insert({"user": user, "page": page}, at, at + 1) for user, page, at in clicks]
        >>> rc.run(visits, {"s": data}, close=True).show()
        _vs  _ve  user  pages  last
        0    21   ann   2      /a
        5    6    bob   1      /
        60   61   ann   1      /b
        """
        return self._over_windows(SessionWindows(duration(gap)))


class AggregateMethods(StreamBase):
    """Methods that split a stream into groups."""

    __slots__ = ()

    def group_by(self, *keys: IntoExpression, **named: IntoExpression) -> GroupedStream[Self]:
        """The stream split by the values of columns or expressions; each group is computed by itself.

        >>> import recension as rc
        >>> s = rc.source("s", {"site": "string", "x": "int64"})
        >>> s.group_by("site", parity=rc.col("x") % 2).agg(n=rc.count()).schema.names
        ['site', 'parity', 'n']
        """
        outputs = self._name_outputs(keys, named, "group_by")
        if not outputs:
            raise SchemaError("group_by: give at least one key, or aggregate the stream as it is")
        plan, own = with_keys(self.plan, outputs)
        return GroupedStream(self._then(plan), own)

    def having(self, *conditions: IntoExpression) -> Self:
        """The answers of the `agg` before that satisfy all conditions; null is not true.

        A condition may use columns of the answers, and any aggregate of the same events, even if it is not a
        column of the answer. A condition on columns alone is the same as `where`.

        >>> import recension as rc
        >>> s = rc.source("s", {"site": "string", "x": "int64"})
        >>> busy = s.group_by("site").agg(total=rc.sum("x")).having(rc.count() > 1, rc.col("total") > 3)
        >>> rows = [rc.Insert({"site": "a", "x": x}, x, 9) for x in (1, 2, 3)]
        >>> rc.run(busy, {"s": rows}, close=True).show()
        _vs  _ve  site  total
        3    9    a     6
        """
        if not conditions:
            raise SchemaError("having: give a condition, such as rc.count() > 1")
        given = [tree_of(condition) for condition in conditions]
        return self._then(having(self.plan, reduce(lambda one, other: Call("&", (one, other)), given)))


class GroupedStream(WindowMethods[S]):
    """A stream split into groups; the next step runs for each group by itself."""

    __slots__ = ("_keys", "_stream")

    def __init__(self, stream: S, keys: Outputs) -> None:
        self._stream, self._keys = stream, keys

    def _over_windows(self, windows: WindowKind) -> WindowedStream[S]:
        return WindowedStream(self._stream, self._keys, windows)

    def apply(self, query: Callable[[S], S]) -> S:
        """Run any query on each group as if no other group existed: the keys first, then its columns.

        The query runs for all groups together, except for steps that depend on arrival (``advance_time``,
        ``finalize``, ``cleanse``, ...), which run group by group. It may also read other streams, which are
        the same for every group.

        >>> import recension as rc
        >>> s = rc.source("s", {"site": "string", "x": "int64"})
        >>> above = s.group_by("site").apply(
        ...     lambda g: g.join(g.agg(mean=rc.mean("x")), where=rc.col("x") > rc.col("mean"))
        ... )
        >>> above.schema.names
        ['site', 'x', 'mean']
        """
        if not callable(query):
            raise SchemaError(f"apply: a function from a group's stream to a stream is needed, not {query!r}")
        stream = self._stream
        return stream._then(
            group_apply(stream.plan, self._keys, lambda group: plan_of(query(stream._then(group)), "apply"))
        )

    def __repr__(self) -> str:
        return f"<GroupedStream of {self._stream.plan.label} by {describe_outputs(self._keys)}>"
