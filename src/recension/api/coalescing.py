"""Coalescing: readings as facts, what was known at a time, equal facts as one, and sets of such queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Literal, Self, TypeVar

from recension.api.base import StreamBase, key_names, plan_of
from recension.api.inspection import InspectionMethods
from recension.core.errors import SchemaError
from recension.core.ticks import DurationLike, duration
from recension.core.window_limit import MAX_WINDOWS
from recension.plan.coalesce import Coalesce, Coalescing, Edges
from recension.plan.equivalences import IntoEquivalence, Within, equivalence_of
from recension.plan.expressions import col, expression
from recension.plan.extents import CoalesceExtent, CoalesceMany, Range, Rows, Scheme, Weights, checked_weights
from recension.plan.join import Join
from recension.plan.node import columns_named
from recension.plan.span import Project, Where
from recension.plan.tables import refuse_table

S = TypeVar("S", bound=InspectionMethods)


class CoalescingMethods(StreamBase):
    """Edges, as-of joins, coalescing."""

    __slots__ = ()

    def edges(self, group_by: str | Iterable[str] | None = None) -> Self:
        """Make each reading valid until the next reading of its group; the last one for ever.

        A reading is an event whose start counts; its end is ignored. Readings may arrive late and may be
        retracted: the ends of their neighbours then move. Two readings of one group at one time are refused.

        >>> import recension as rc
        >>> s = rc.source("s", {"room": "string", "temp": "int64"})
        >>> values = [(1, 20), (5, 22), (3, 21)]
        >>> readings = [rc.Insert({"room": "a", "temp": temp}, at, at + 1) for at, temp in values]
        >>> rc.run(s.edges(group_by="room"), {"s": readings}).show()
        _vs  _ve  room  temp
        1    3    a     20
        3    5    a     21
        5    ∞    a     22
        """
        return self._then(Edges(self.plan, key_names(group_by, "edges")))

    def coalesce(
        self,
        on: str | Iterable[str],
        group_by: str | Iterable[str] | None = None,
        equivalence: IntoEquivalence = None,
        window: Range | Rows | None = None,
        scheme: Scheme = "auto",
        weights: Weights = (1.0, 1.0, 1.0),
        expected: tuple[float, float] | None = None,
    ) -> Self:
        """Combine equal facts: the group and ``on`` columns with maximal lifetimes, as a set.

        Parameters
        ----------
        on
            The columns that make facts equal.
        group_by
            Facts of different groups never become one.
        equivalence
            When a fact continues the run of the one before it in its group: ``"equal"``, ``"increasing"``,
            ``"decreasing"``, `rc.within` a bound, or a function that gets two record batches, the ``on``
            columns before and now, and returns booleans. A run has the values of its first fact.
        window
            `rc.range` or `rc.rows`: events are readings, whose starts count. At every slide there is a row
            (group, ``on`` columns, ``valid_start``, ``valid_end``) for each run of readings in the window,
            from its first reading to the first reading of the next run, or to its own last one.
        scheme
            Whether readings are coalesced as they arrive (``eager``) or when an answer is due (``lazy``).
            ``auto`` chooses by cost, which it learns from the readings while it runs. The answers are the
            same.
        weights
            The relative weight of memory, updates and scans in that choice.
        expected
            The probabilities that a reading coalesces with the one before it in its group, and that it
            arrives out of order. The first choice uses them, until the real ones are learned.

        >>> import recension as rc
        >>> pay = rc.source("pay", {"name": "string", "dept": "string", "salary": "int64"})
        >>> facts = [("R", 100, 2000, 2004), ("R", 120, 2004, 2008), ("D", 120, 2008, rc.FOREVER)]
        >>> rows = [rc.Insert({"name": "Andy", "dept": d, "salary": s}, a, b) for d, s, a, b in facts]
        >>> rc.run(pay.coalesce(on="salary", group_by="name"), {"pay": rows}).show()
        _vs   _ve   name  salary
        2000  2004  Andy  100
        2004  ∞     Andy  120
        """
        columns, keys = key_names(on, "coalesce"), key_names(group_by, "coalesce")
        like = equivalence_of(equivalence)
        if window is None:
            _refuse_choice(
                scheme=scheme != "auto", weights=weights != (1, 1, 1), expected=expected is not None
            )
            return self._then(Coalesce(self.plan, columns, keys, like))
        if not isinstance(window, Range | Rows):
            raise SchemaError(f"coalesce: a window is rc.range(...) or rc.rows(...), not {window!r}")
        refuse_table(self.plan, "coalesce")
        if expected is not None and scheme != "auto":
            raise SchemaError(f"coalesce: expected={expected!r} is for scheme='auto', not {scheme!r}")
        weights = checked_weights(weights, "coalesce")
        return self._then(CoalesceExtent(self.plan, columns, keys, like, window, scheme, weights, expected))

    def as_of(
        self,
        other: StreamBase,
        on: str | Iterable[str] | None = None,
        how: Literal["inner", "left"] = "inner",
        suffix: str = "_right",
    ) -> Self:
        """Join each event with the latest reading of ``other`` at every time of its life.

        ``other`` becomes edges by the keys ``on`` and is joined. If there are several readings during an
        event, the answer has a part for each. ``how="left"`` keeps, with nulls, the time before the first
        reading.

        >>> import recension as rc
        >>> trades = rc.source("trades", {"stock": "string", "n": "int64"})
        >>> quotes = rc.source("quotes", {"stock": "string", "price": "int64"})
        >>> q = trades.as_of(quotes, on="stock")
        >>> bought = [rc.Insert({"stock": "x", "n": 5}, 7, 8)]
        >>> quoted = [rc.Insert({"stock": "x", "price": p}, t, t + 1) for t, p in [(2, 10), (6, 11), (9, 12)]]
        >>> rc.run(q, {"trades": bought, "quotes": quoted}).show()
        _vs  _ve  stock  n  price
        7    8    x      5  11
        """
        keys = key_names(on, "as_of")
        if how not in ("inner", "left"):
            raise SchemaError(f"as_of: how is 'inner' or 'left', not {how!r}")
        readings = Edges(plan_of(other, "as_of"), keys, verb="as_of")
        return self._then(Join(self.plan, readings, keys, None, how, suffix, verb="as_of"))


def range(span: DurationLike, slide: DurationLike, *, max_windows: int = MAX_WINDOWS) -> Range:
    """A time-based sliding window: at every multiple of ``slide`` the readings of the ``span`` up to it.

    Both ends belong to the window. A reading that would be in more than ``max_windows`` windows is refused.

    >>> range("60m", slide="1m")
    Range(span=3600000000, slide=60000000)
    """
    return Range(duration(span), duration(slide), max_windows)


def rows(size: int, slide: int = 1) -> Rows:
    """A tuple-based sliding window: after every ``slide``-th reading the latest ``size`` of them.

    >>> rows(100, slide=10)
    Rows(size=100, slide=10)
    """
    return Rows(size, slide)


def within(bound: float | None = None, *, relative: float | None = None) -> Within:
    """Values that continue a run if their distance from the previous one is at most a bound.

    ``relative`` bounds the distance by a fraction of the previous value.

    >>> str(within(0.5)), str(within(relative=0.1))
    ('within 0.5', 'within 0.1 of the previous value')
    """
    given = [b for b in (bound, relative) if b is not None]
    if len(given) != 1 or isinstance(given[0], bool) or not isinstance(given[0], int | float):
        raise SchemaError("within: give one bound, rc.within(0.5) or rc.within(relative=0.1)")
    return Within(given[0], relative=relative is not None)


def _refuse_choice(**is_made: bool) -> None:
    """There is no scheme to choose without a window."""
    for name, made in is_made.items():
        if made:
            raise SchemaError(f"coalesce: {name}= needs a window, rc.range(...) or rc.rows(...)")


class ExtentSet(Mapping[str, S], Generic[S]):
    """Coalescing queries by name, each a stream; equal queries are computed once.

    If readings often coalesce, it is cheaper to coalesce them as they arrive, in an *eager* extent for that
    query. The other queries share one *lazy* extent, which is coalesced when it is scanned. The choice is
    made by the cost of memory, updates and scans. It depends on how likely the readings of each query are to
    coalesce and to arrive late, which is learned while the queries run. The answers do not depend on it.

    Parameters
    ----------
    stream
        The readings: events whose starts count.
    window
        `rc.range` or `rc.rows`.
    weights
        The relative weight of memory, updates and scans.
    scheme
        ``auto``, or ``eager`` or ``lazy`` for all.
    queries
        By name, each an `rc.coalescing`.

    >>> import recension as rc
    >>> s = rc.source("s", {"room": "string", "heat": "int64", "damp": "int64"})
    >>> warm, damp = (rc.coalescing(on=name, group_by="room") for name in ("heat", "damp"))
    >>> both = rc.ExtentSet(s, rc.range(4, slide=5), warm=warm, damp=damp)
    >>> rows = [rc.Insert({"room": "a", "heat": h, "damp": 7}, t) for t, h in [(1, 20), (3, 20), (4, 21)]]
    >>> rc.run(both["warm"], {"s": rows}, close=True).show()
    _vs  _ve  room  heat  valid_start  valid_end
    5    10   a     20    1            4
    5    10   a     21    4            4
    """

    def __init__(
        self,
        stream: S,
        window: Range | Rows,
        *,
        weights: Weights = (1.0, 1.0, 1.0),
        scheme: Scheme = "auto",
        **queries: Coalescing,
    ) -> None:
        if not isinstance(window, Range | Rows):
            raise SchemaError(f"ExtentSet: a window is rc.range(...) or rc.rows(...), not {window!r}")
        for name, query in queries.items():
            if not isinstance(query, Coalescing):
                raise SchemaError(f"ExtentSet: {name} is an rc.coalescing(on=...), not {query!r}")
        asked = {query.question: query for query in queries.values()}
        self._numbers = {name: list(asked).index(query.question) for name, query in queries.items()}
        plan = plan_of(stream, "ExtentSet")
        refuse_table(plan, "ExtentSet")
        self._stream = stream
        self._node = CoalesceMany(
            plan, tuple(asked.values()), window, scheme, checked_weights(weights, "ExtentSet")
        )

    def __getitem__(self, name: str) -> S:
        number = self._numbers[name]
        own = Where(self._node, expression(col(self._node.number) == number))
        names = self._node.answers(number).names
        return self._stream._then(Project(own, columns_named(names)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def explain(self) -> str:
        """The plan that the queries share, with the costs and the choice before the first run.

        A session that runs the queries knows more: ``session.explain()``.
        """
        return self._stream._then(self._node).explain()


def coalescing(
    on: str | Iterable[str],
    group_by: str | Iterable[str] | None = None,
    equivalence: IntoEquivalence = None,
    expected: tuple[float, float] | None = None,
) -> Coalescing:
    """A coalescing query of an `rc.ExtentSet`; the arguments are those of ``coalesce``.

    ``expected`` are the probabilities that a reading coalesces with the one before it in its group, and that
    it arrives out of order. The first choice of a scheme uses them, or a guess, until the real ones are
    learned.

    >>> print(coalescing(on="heat", group_by=["floor", "room"], equivalence="increasing"))
    heat by floor, room, increasing
    """
    keys = key_names(group_by, "coalescing")
    return Coalescing(key_names(on, "coalescing"), keys, equivalence_of(equivalence), expected)
