"""Patterns: choices of one event of each part, of one key, whose starts lie close together.

Starts decide; ends do not matter. Null keys match nothing. Source: CEDR, §3.2 (SEQUENCE, ALL, ATLEAST), with
the lifetimes of the guide (patterns and deadlines).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any, TypeAlias

from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.denote.join import keys_match
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, identity, region_of
from recension.denote.order import Columns, History, key_of, names

Parts: TypeAlias = Mapping[str, History]
Choice: TypeAlias = Mapping[str, Event]


def sequence(
    parts: Parts,
    within: int,
    on: Columns,
    absent: History = (),  # type: ignore[assignment]
    where: Callable[[Payload], Any] | None = None,
) -> History:
    """Every choice of one event of each part, one after the other, and none of ``absent`` between.

    >>> later = [Event({"k": 1, "x": 6}, 3), Event({"k": 1, "x": 7}, 0)]
    >>> print(*sequence({"a": [Event({"k": 1, "x": 5}, 0)], "b": later}, 10, "k"))
    [3, 10) {'k': 1, 'a_x': 5, 'b_x': 6}
    """
    found = []
    for choice in choices(parts, within, on):
        starts = [event.vs for event in choice.values()]
        is_in_order = all(one < other for one, other in pairwise(starts))
        between = (
            event
            for event in absent
            if starts[0] < event.vs < starts[-1] and keys_match(event.payload, _any(choice).payload, on)
        )
        if is_in_order and not any(True for _ in between):
            found.append(choice)
    return _answers(found, parts, {}, within, on, where)


def all_of(parts: Parts, within: int, on: Columns, where: Callable[[Payload], Any] | None = None) -> History:
    """Every choice of one event of each part, with different starts, in any order."""
    return at_least(len(parts), parts, within, on, where)


def at_least(
    n: int,
    parts: Parts,
    within: int,
    on: Columns,
    where: Callable[[Payload], Any] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> History:
    r"""Every choice of one event of each of ``n`` parts; nulls for the others.

    ``columns`` names those of parts that have no events.

    >>> parts = {"a": [Event({"k": 1, "x": 5}, 4)], "b": [Event({"k": 1, "y": 6}, 1)]}
    >>> print(*at_least(1, parts, 2, "k"), sep="\n")
    [4, 6) {'k': 1, 'a_x': 5, 'b_y': None}
    [1, 3) {'k': 1, 'a_x': None, 'b_y': 6}
    """
    found = []
    for some in combinations(parts, n):
        for choice in choices({name: parts[name] for name in some}, within, on):
            starts = [event.vs for event in choice.values()]
            if len(set(starts)) == n:
                found.append(choice)
    return _answers(found, parts, columns or {}, within, on, where)


def choices(parts: Parts, within: int, on: Columns, null_matches: Sequence[str] = ()) -> Iterator[Choice]:
    """One event of each part, of one key, the starts less than ``within`` apart."""
    for events in product(*parts.values()):
        starts = [event.vs for event in events]
        is_of_one_key = all(_is_of_key(events[0], event, names(on), null_matches) for event in events)
        if is_of_one_key and max(starts) - min(starts) < within:
            yield dict(zip(parts, events, strict=True))


def _is_of_key(one: Event, other: Event, on: Sequence[str], null_matches: Sequence[str]) -> bool:
    has_null = any(one.payload[key] is None for key in on if key not in null_matches)
    return not has_null and key_of(one.payload, on) == key_of(other.payload, on)


def _any(choice: Choice) -> Event:
    return next(iter(choice.values()))


def _answers(
    found: list[Choice],
    parts: Parts,
    columns: Mapping[str, Sequence[str]],
    within: int,
    on: Columns,
    where: Callable[[Payload], Any] | None,
) -> History:
    """Keys, then the columns of each part, from the last start until ``within`` after the first."""
    own = {
        name: list(events[0].payload) if events else columns.get(name, ()) for name, events in parts.items()
    }
    result = []
    for choice in found:
        payload = answer_payload(choice, own, names(on))
        if where is None or where(payload):
            starts = [event.vs for event in choice.values()]
            result.append(Event(payload, max(starts), min(min(starts) + within, FOREVER)))
    return result


def answer_payload(choice: Choice, columns: Mapping[str, Sequence[str]], on: Sequence[str]) -> Payload:
    """The keys, then the columns of each part with its name before them; nulls if it is not in the choice."""
    payload = {key: _any(choice).payload[key] for key in on}
    for part, own in columns.items():
        event = choice.get(part)
        for name in own:
            if name not in on:
                payload[f"{part}_{name}"] = None if event is None else event.payload[name]
    return payload


@dataclass(frozen=True)
class PatternRule:
    """Which choices are answers; ``where`` asks many at once.

    ``columns`` are those of each part. With ``in_order`` the parts follow each other.
    """

    columns: Mapping[str, Sequence[str]]
    on: Sequence[str]
    within: int
    size: int
    in_order: bool
    has_absent: bool = False
    where: Callable[[list[Payload]], Sequence[Any]] | None = None
    null_matches: Sequence[str] = ()

    def answers(self, parts: Parts) -> list[tuple[Choice, Event]]:
        """Each choice with what becomes of it; whether an absent event lies between is not asked."""
        found = []
        for some in combinations(parts, self.size):
            chosen = {name: parts[name] for name in some}
            for choice in choices(chosen, self.within, self.on, self.null_matches):
                starts = [event.vs for event in choice.values()]
                if len(set(starts)) == self.size and (not self.in_order or starts == sorted(starts)):
                    payload = answer_payload(choice, self.columns, self.on)
                    end = min(min(starts) + self.within, FOREVER)
                    found.append((choice, Event(payload, max(starts), end)))
        if self.where is None or not found:
            return found
        holds = self.where([answer.payload for _, answer in found])
        return [pair for pair, is_true in zip(found, holds, strict=True) if is_true]


class PatternLineage(Lineage):
    """What an answer rests on: its events, and that no absent one starts between the first and the last."""

    is_whole = True

    def __init__(self, rule: PatternRule) -> None:
        keys = {name: name for name in rule.on}
        is_full = rule.size == len(rule.columns)
        columns = [
            keys | {f"{part}_{name}": name for name in own if is_full and name not in rule.on}
            for part, own in rule.columns.items()
        ]
        super().__init__([*columns, *([keys] if rule.has_absent else [])])
        self._rule = rule

    def reach(self, region: Region) -> list[Region]:
        return [there.stretch(self._rule.within, 0) for there in super().reach(region)]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        wanted, reach, rule = identity(event), self.reach(region_of(event)), self._rule
        near = [seen.find(there) for seen, there in zip(inputs, reach, strict=True)]
        parts = dict(zip(rule.columns, near, strict=False))
        bases = {part: Basis() for part in parts}
        for choice, answer in rule.answers(parts):
            if identity(answer) == wanted:
                for part, one in choice.items():
                    bases[part].kept.append(one)
        first = min(one.vs for basis in bases.values() for one in basis.kept)
        keys = tuple((name, event.payload[name]) for name in rule.on)
        between = [Basis(absent=[Region(first, event.vs, keys)])] if rule.has_absent else []
        return [*bases.values(), *between]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """Nothing new without a new event of a part; what ruled answers out goes on to do so."""
        bases = [Basis(absent=[there]) for there in self.reach(region)]
        if self._rule.has_absent:
            bases[-1].kept = inputs[-1].touching(self.reach(region)[-1])
        return bases

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        parts = bases[:-1] if self._rule.has_absent else bases
        then = ", then " if self._rule.in_order else " with "
        told = then.join(words.names(basis.kept) for basis in parts if basis.kept)
        return f"{told}, and nothing that was to be absent between" if self._rule.has_absent else told
