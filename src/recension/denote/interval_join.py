"""Interval join: events whose starts lie a given distance apart, whatever their ends.

A pair is at the later of its two starts, for one tick. Null keys match nothing, as in every join.

Source: the guide (patterns and deadlines); CEDR, §3.2 for the absence of an event within a scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.denote.intervals import Interval, saturate
from recension.denote.join import How, InnerJoinLineage, PairRule, join_payloads, keys_match
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, identity, region_of
from recension.denote.order import Columns, History, names

Closed: TypeAlias = Literal["both", "left", "right", "neither"]
Starts: TypeAlias = tuple[int, int]


def interval_join(
    left: History,
    right: History,
    starts: Starts,
    closed: Closed = "both",
    on: Columns = (),
    where: Callable[[Payload], Any] | None = None,
    how: How = "inner",
    suffix: str = "_right",
    right_columns: Sequence[str] = (),
    left_columns: Sequence[str] = (),
) -> History:
    """Pairs whose right start less the left one lies in the range; or left events with, or without, a pair.

    ``right_columns`` and ``left_columns`` are as in `join`.

    >>> orders, paid = [Event({"k": 1}, 0, 9), Event({"k": 2}, 3, 4)], [Event({"k": 1, "x": 7}, 5, 6)]
    >>> print(*interval_join(orders, paid, (0, 5), on="k"))
    [5, 6) {'k': 1, 'x': 7}
    >>> print(*interval_join(orders, paid, (0, 5), on="k", how="anti"))
    [3, 4) {'k': 2}
    """
    result: History = []
    unmatched = list(right)
    for event in left:
        is_matched = False
        for other in right:
            payload = join_payloads(event.payload, other.payload, names(on), suffix)
            if not keys_match(event.payload, other.payload, names(on)):
                continue
            if not is_within(other.vs - event.vs, starts, closed) or not (where is None or where(payload)):
                continue
            is_matched = True
            unmatched = [one for one in unmatched if one is not other]
            if how in ("inner", "left", "full"):
                later = max(event.vs, other.vs)
                result.append(Event(payload, later, later + 1))
        if (how == "semi" and is_matched) or (how == "anti" and not is_matched):
            result.append(event)
        if how in ("left", "full") and not is_matched:
            nulls = dict.fromkeys(right[0].payload if right else right_columns)
            payload = join_payloads(event.payload, nulls, names(on), suffix)
            result.append(Event(payload, event.vs, event.ve))
    for other in unmatched if how == "full" else ():
        nulls = dict.fromkeys(left[0].payload if left else left_columns)
        keys = {key: other.payload[key] for key in names(on)}
        payload = join_payloads(nulls | keys, other.payload, names(on), suffix)
        result.append(Event(payload, other.vs, other.ve))
    return result


def is_within(distance: int, starts: Starts, closed: Closed) -> bool:
    """Is the distance in the range?

    >>> [is_within(5, (0, 5), closed) for closed in ("both", "left", "right", "neither")]
    [True, False, True, False]
    """
    low, high = starts
    after = distance >= low if closed in ("both", "left") else distance > low
    before = distance <= high if closed in ("both", "right") else distance < high
    return after and before


def unless(
    left: History,
    right: History,
    within: int,
    on: Columns = (),
    where: Callable[[Payload], Any] | None = None,
    suffix: str = "_right",
) -> History:
    """The left events that no right one of their key follows within a time, for as long as that.

    >>> orders, shipped = [Event({"k": 1}, 0), Event({"k": 2}, 3)], [Event({"k": 1}, 5)]
    >>> print(*unless(orders, shipped, 10, on="k"))
    [3, 13) {'k': 2}
    """
    alone = interval_join(left, right, (0, within), "neither", on, where, "anti", suffix)
    return [Event(event.payload, event.vs, min(event.vs + within, FOREVER)) for event in alone]


def pair_lifetime(low: int, high: int) -> Callable[[Event, Event], Interval | None]:
    """When a pair is alive, for a `PairRule`; both bounds are in the range."""

    def lifetime(event: Event, other: Event) -> Interval | None:
        later = max(event.vs, other.vs)
        return (later, later + 1) if low <= other.vs - event.vs <= high else None

    return lifetime


class PairByStartLineage(InnerJoinLineage):
    """What a pair rests on: the two, of which the earlier starts no longer before than the range allows."""

    def __init__(self, rule: PairRule, low: int, high: int) -> None:
        super().__init__(rule)
        self._length = max(-low, high, 0)

    def reach(self, region: Region) -> list[Region]:
        return [there.stretch(self._length, 0) for there in super().reach(region)]


class MatchByStartLineage(Lineage):
    """What a left event rests on that has a match, or that has none; or a pair."""

    is_whole = True

    def __init__(
        self, rule: PairRule, starts: Starts, how: Literal["left", "semi", "anti"], duration: int | None
    ) -> None:
        """``duration``: of what is kept of a left event, if it is not the event's own."""
        super().__init__([{name: name for name in rule.left_columns}, {name: name for name in rule.on}])
        self._rule, (self._low, self._high), self._how, self._duration = rule, starts, how, duration
        self._before = max(-self._low, self._high, duration or 0, 0)

    def reach(self, region: Region) -> list[Region]:
        """A left event may have begun long before the region, and its match before or after it."""
        left, right = super().reach(region)
        return [left.stretch(self._before, 0), right.since_ever().stretch(0, max(self._high, 0))]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        left = inputs[0].touching(self.reach(region_of(event))[0])
        wanted, kept, by = identity(event), Basis(), Basis()
        for one in left:
            near = self._near(one)
            found = self._rule.pairs([one], inputs[1].touching(near))
            made = [other for _, other, pair in found if self._how == "left" and identity(pair) == wanted]
            is_kept = bool(found) == (self._how == "semi") and identity(self._alone(one)) == wanted
            if made or is_kept:
                kept.kept.append(one)
                by.kept += [other for _, other, _ in found] if is_kept else made
            if is_kept and self._how != "semi":
                by.absent.append(near)
        return [kept, by]

    def _alone(self, one: Event) -> Event:
        """What is kept of a left event."""
        payload = self._rule.with_nulls(one.payload) if self._how == "left" else one.payload
        end = one.ve if self._duration is None else min(one.vs + self._duration, FOREVER)
        return Event(payload, one.vs, end)

    def _near(self, one: Event) -> Region:
        """Where the matches of a left event start."""
        keys = tuple((name, one.payload[name]) for name in self._rule.on)
        return Region(saturate(one.vs + self._low), saturate(one.vs + self._high), keys)

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """What matches left events there goes on to match them, and nothing else comes to."""
        here, there = self.reach(self.around(region, output))
        pairs = self._rule.pairs(inputs[0].touching(here), inputs[1].touching(there))
        return [Basis(absent=[here]), Basis([other for _, other, _ in pairs], [there])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        left, right = words.names(bases[0].kept), words.names(bases[1].kept)
        if bases[1].kept:
            return f"{left}, matched by {right}" if self._how == "semi" else f"{left} met {right}"
        return f"{left}, which nothing matched"
