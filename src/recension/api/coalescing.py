"""Coalescing methods: readings as facts, what was known at a time, and equal facts as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from recension.api.base import StreamBase, key_names, plan_of
from recension.core.errors import SchemaError
from recension.core.ticks import DurationLike, duration
from recension.core.window_limit import MAX_WINDOWS
from recension.plan.coalesce import Coalesce
from recension.plan.edges import Edges
from recension.plan.equivalences import IntoEquivalence, Within, equivalence_of
from recension.plan.extents import CoalesceExtent, Range, Rows, Scheme, Weights, checked_weights
from recension.plan.join import Join


class CoalescingMethods(StreamBase):
    """Edges, as-of joins, coalescing."""

    __slots__ = ()

    def edges(self, group_by: str | Iterable[str] | None = None) -> Self:
        """Each reading valid until the next of its group; the last one for ever.

        A reading is an event taken at its start; its own end does not matter. Readings may come late and be
        taken back: the ends of their neighbours move. Two readings of one group at one time are refused.

        >>> import recension as rc
        >>> s = rc.source("s", {"room": "string", "temp": "int64"})
        >>> told = [(1, 20), (5, 22), (3, 21)]
        >>> readings = [rc.Insert({"room": "a", "temp": temp}, at, at + 1) for at, temp in told]
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
        """Equal facts as one: the group and ``on`` columns with maximal lifetimes, as a set.

        Parameters
        ----------
        on
            The columns that make facts equal.
        group_by
            Facts of different groups never become one.
        equivalence
            When a fact goes on with the one before it in its group: ``"equal"``, ``"increasing"``,
            ``"decreasing"``, `rc.within` a bound, or a function of two record batches, the ``on`` columns of
            the facts before and of the facts, that gives truth values. A run shows its first values.
        window
            `rc.range` or `rc.rows`: events are readings, taken at their starts. At every slide there is a row
            (group, ``on`` columns, ``valid_start``, ``valid_end``) for each run of readings in the window,
            from its first reading to the next run's, or to its own last.
        scheme
            Whether readings are coalesced as they come (``eager``) or when an answer is due (``lazy``); or
            ``auto``, by cost, and by what is learned of the readings while it runs. The answers are the same.
        weights
            How much memory, updates and scans matter beside each other in that choice.
        expected
            How likely readings are thought to coalesce with the one before them in their group, and to come
            out of order: the choice until more is learned is made by it.

        >>> import recension as rc
        >>> pay = rc.source("pay", {"name": "string", "dept": "string", "salary": "int64"})
        >>> facts = [("R", 100, 2000, 2004), ("R", 120, 2004, 2008), ("D", 120, 2008, rc.FOREVER)]
        >>> told = [rc.Insert({"name": "Andy", "dept": d, "salary": s}, a, b) for d, s, a, b in facts]
        >>> rc.run(pay.coalesce(on="salary", group_by="name"), {"pay": told}).show()
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
        """Each event with what the last reading of ``other`` said while the event lived.

        ``other`` becomes edges by the keys ``on`` and is joined: an event during which there are several
        readings gives a part for each. ``how="left"`` keeps, with nulls, what no reading precedes.

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

    Both ends belong to the window. If a reading would be in more than ``max_windows`` it is refused.

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
    """Values that go on with the previous one while they are no further from it than a bound.

    ``relative`` bounds the change as a part of the previous value.

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
