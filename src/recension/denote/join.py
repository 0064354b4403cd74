"""Temporal join: payloads of matching events joined, lifetimes intersected.

Source: [TR] Definition 4; rulings, C (anti join) and the guide (keys, suffix, semi, anti, left). Null
keys match nothing, as in SQL; NaN matches NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recension.core.errors import SchemaError
from recension.core.events import Event, Payload
from recension.denote.intervals import Interval, intersect, merge_intervals, uncovered_parts
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, identity, region_of
from recension.denote.order import Columns, History, Key, key_of, names

How: TypeAlias = Literal["inner", "cross", "left", "full", "semi", "anti"]
Match: TypeAlias = tuple[Payload, Interval]


def join(
    left: History,
    right: History,
    on: Columns = (),
    where: Callable[[Payload], Any] | None = None,
    how: How = "inner",
    suffix: str = "_right",
    right_columns: Sequence[str] = (),
    left_columns: Sequence[str] = (),
) -> History:
    """Join on equal keys and a predicate over the joined payload; ``cross`` is ``inner`` without either.

    ``right_columns`` names the columns that a left join fills with nulls when ``right`` is empty, and
    ``left_columns`` those that a full one fills when ``left`` is.

    >>> print(*join([Event({"k": 1, "x": 2}, 0, 9)], [Event({"k": 1, "x": 3}, 4, 12)], on="k"))
    [4, 9) {'k': 1, 'x': 2, 'x_right': 3}
    """
    result: History = []
    for event in left:
        matches = _matches(event, right, names(on), where, suffix)
        covered = [lifetime for _, lifetime in matches]
        if how in ("inner", "cross", "left", "full"):
            result += [Event(payload, *lifetime) for payload, lifetime in matches]
        if how == "semi":
            result += [Event(event.payload, *part) for part in merge_intervals(covered)]
        if how in ("anti", "left", "full"):
            nulls = dict.fromkeys(right[0].payload if right else right_columns)
            payload = (
                event.payload if how == "anti" else join_payloads(event.payload, nulls, names(on), suffix)
            )
            result += [Event(payload, *part) for part in uncovered_parts((event.vs, event.ve), covered)]
    for other in right if how == "full" else ():
        found = [_matches(event, [other], names(on), where, suffix) for event in left]
        covered = [lifetime for matches in found for _, lifetime in matches]
        nulls = dict.fromkeys(left[0].payload if left else left_columns)
        keys = {key: other.payload[key] for key in names(on)}
        payload = join_payloads(nulls | keys, other.payload, names(on), suffix)
        result += [Event(payload, *part) for part in uncovered_parts((other.vs, other.ve), covered)]
    return result


def _matches(
    event: Event,
    right: History,
    keys: Sequence[str],
    where: Callable[[Payload], Any] | None,
    suffix: str,
) -> list[Match]:
    """The joined payload and the common lifetime for every right event that matches and overlaps."""
    matches = []
    for other in right:
        lifetime = intersect((event.vs, event.ve), (other.vs, other.ve))
        if lifetime and keys_match(event.payload, other.payload, keys):
            payload = join_payloads(event.payload, other.payload, keys, suffix)
            if where is None or where(payload):
                matches.append((payload, lifetime))
    return matches


def join_payloads(left: Payload, right: Payload, keys: Sequence[str], suffix: str) -> Payload:
    """The left columns, then the right ones but the keys; right names that clash get the suffix."""
    payload = dict(left)
    for name, value in right.items():
        if name not in keys:
            unique = name + suffix if name in left else name
            if unique in payload:
                raise SchemaError(f"the join has two columns {unique!r}; choose another suffix")
            payload[unique] = value
    return payload


def keys_match(left: Payload, right: Payload, keys: Columns) -> bool:
    """Are all keys equal and none null?"""
    has_null = any(left[key] is None for key in names(keys))
    return not has_null and key_of(left, keys) == key_of(right, keys)


def _overlap(event: Event, other: Event) -> Interval | None:
    return intersect((event.vs, event.ve), (other.vs, other.ve))


@dataclass(frozen=True)
class PairRule:
    """Which events meet, and the payload of those that do; ``where`` asks many pairs at once."""

    on: Sequence[str]
    suffix: str
    left_columns: Sequence[str]
    right_columns: Sequence[str]
    where: Callable[[list[Payload]], Sequence[Any]] | None = None
    null_matches: Sequence[str] = ()
    """The keys for which null equals null."""
    lifetime: Callable[[Event, Event], Interval | None] = _overlap
    """When a pair of these two is alive, if their times let them meet."""

    def pairs(self, left: History, right: History) -> list[tuple[Event, Event, Event]]:
        """The events that meet, and what becomes of each two of them."""
        by_key: dict[Key, History] = {}
        for other in right:
            by_key.setdefault(key_of(other.payload, self.on), []).append(other)
        found = []
        for event in left:
            if any(event.payload[key] is None for key in self.on if key not in self.null_matches):
                continue
            for other in by_key.get(key_of(event.payload, self.on), ()):
                if lifetime := self.lifetime(event, other):
                    payload = join_payloads(event.payload, other.payload, self.on, self.suffix)
                    found.append((event, other, Event(payload, *lifetime)))
        if self.where is None or not found:
            return found
        holds = self.where([pair.payload for _, _, pair in found])
        return [pair for pair, is_true in zip(found, holds, strict=True) if is_true]

    def with_nulls(self, payload: Payload) -> Payload:
        """A left payload beside nothing."""
        return join_payloads(payload, dict.fromkeys(self.right_columns), self.on, self.suffix)


class InnerJoinLineage(Lineage):
    """What a pair rests on: the two, and nothing else."""

    is_whole = True

    def __init__(self, rule: PairRule) -> None:
        left = {name: name for name in rule.left_columns}
        right = {name: name for name in rule.on}
        for name in rule.right_columns:
            if name not in rule.on:
                right[name + rule.suffix if name in left else name] = name
        super().__init__([left, right])
        self._rule = rule

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        left, right = (seen.find(r) for seen, r in zip(inputs, self.reach(region_of(event)), strict=True))
        wanted = identity(event)
        made = [
            (one, other) for one, other, pair in self._rule.pairs(left, right) if identity(pair) == wanted
        ]
        return [Basis([one for one, _ in made]), Basis([other for _, other in made])]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """No pair without a new event on one side."""
        return [Basis(absent=[there]) for there in self.reach(region)]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return f"{words.names(bases[0].kept)} met {words.names(bases[1].kept)}"


class CoverageJoinLineage(Lineage):
    """What the part of a left event rests on that some, or no, right event covers; or a pair."""

    def __init__(self, rule: PairRule, how: Literal["left", "semi", "anti"]) -> None:
        super().__init__([{name: name for name in rule.left_columns}, {name: name for name in rule.on}])
        self._rule, self._how = rule, how

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        here, there = self.reach(region_of(event))
        left, right = inputs[0].touching(here), inputs[1].touching(there)
        wanted, pairs = identity(event), self._rule.pairs(left, right)
        kept, by = Basis(), Basis()
        if self._how == "left":
            made = [(one, other) for one, other, pair in pairs if identity(pair) == wanted]
            kept.kept, by.kept = [one for one, _ in made], [other for _, other in made]
        for one in left:
            found = [(other, (pair.vs, pair.ve)) for mine, other, pair in pairs if mine is one]
            if self._is_part(event, one, [lifetime for _, lifetime in found]):
                kept.kept.append(one)
                by.absent = [there]
                by.kept += [
                    other
                    for other, lifetime in found
                    if self._how == "semi" or lifetime[1] == event.vs or lifetime[0] == event.ve
                ]
        return [kept, by]

    def _is_part(self, event: Event, one: Event, covered: list[Interval]) -> bool:
        """Is the event a part of this one that is covered, or that is not?"""
        payload = self._rule.with_nulls(one.payload) if self._how == "left" else one.payload
        if identity(Event(payload, event.vs, event.ve)) != identity(event):
            return False
        if self._how == "semi":
            return (event.vs, event.ve) in merge_intervals(covered)
        return (event.vs, event.ve) in uncovered_parts((one.vs, one.ve), covered)

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """What covers left events there goes on to cover them."""
        around = self.around(region, output)
        here, there = region.below(self.columns[0]), around.below(self.columns[1])
        pairs = self._rule.pairs(inputs[0].touching(here), inputs[1].touching(there))
        return [Basis(absent=[here]), Basis([other for _, other, _ in pairs], [there])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        left, right = words.names(bases[0].kept), words.names(bases[1].kept)
        if self._how == "semi":
            return f"{left}, while it matched {right}"
        if not bases[1].absent:
            return f"{left} matched {right}"
        beside = f"; {right} matched before or after" if bases[1].kept else ""
        return f"{left}, while nothing matched it{beside}"
