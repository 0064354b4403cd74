"""Coalescing methods: readings as facts, what was known at a time, and equal facts as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from recension.api.base import StreamBase, key_names, plan_of
from recension.core.errors import SchemaError
from recension.plan.edges import Edges
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
        return self._then(Join(self.plan, Edges(plan_of(other, "as_of"), keys), keys, None, how, suffix))
