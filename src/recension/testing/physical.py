"""Many physical streams of one history: disorder, revisions, and CTIs in between.

Every event becomes a *chain*: the path its end takes from "not there" to its final value, by wrong ends,
removals and re-insertions. Chains are interleaved by arrival times, and CTIs are put where the rest of the
stream allows them, mostly as early as legal, because equality of sync time and CTI is where algorithms
fail (ruling A1).

    path of [2, 9):   absent -> 5 -> inf -> 9      I(2, 5)  R(2, 5 -> inf)  R(2, inf -> 9)
    path of a ghost:  absent -> 7 -> absent        I(3, 7)  R(3, 7 -> 3)

All choices come from `Dice`, a string of bytes: Hypothesis draws it in one piece, which is ten times faster
than drawing every choice. Bytes of zero make the plainest stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import TypeVar

from recension.core.events import Cti, Element, Event, Insert, Payload, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.model import payload_key

T = TypeVar("T")

HORIZON = 8
_TIES = {"ties", "ties against order"}
_GHOSTS = [0] + [1] * 9 + [2] * 6


class Dice:
    """Choices read from bytes, over and over again."""

    def __init__(self, rolls: bytes) -> None:
        self._rolls = cycle(rolls)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, the first for a roll of zero."""
        return options[next(self._rolls) % len(options)]

    def shuffle(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        rest, order = list(items), []
        while rest:
            order.append(rest.pop(self.pick(range(len(rest)))))
        return order


@dataclass(frozen=True, slots=True)
class Shape:
    """What a physical stream is allowed to do."""

    insert_only: bool = False
    ordered: bool = False
    shrink_only: bool = False
    keyed: bool = False
    closed: bool = True
    without: frozenset[str] = frozenset()
    """Traits of streams (`recension.testing.cases.TRAITS`) that are left out."""


def build_stream(
    events: Sequence[Event], dice: Dice, shape: Shape, ghosts: Sequence[Payload]
) -> list[Element]:
    """A valid physical stream whose history is ``events``; ``ghosts``: payloads of events that vanish."""
    finite = [t for e in events for t in (e.vs, e.ve) if t != FOREVER]
    horizon = max([HORIZON, *finite]) + 1
    targets = [(event, event.ve) for event in events]
    if ghosts and not shape.insert_only:
        targets += [(ghost, ghost.vs) for ghost in _pick_ghosts(events, dice, shape, ghosts)]
    twins = Counter((event.vs, payload_key(event.payload)) for event in events)
    apart = {twin for twin, count in twins.items() if count > 1 and _starts_endless(dice, shape)}
    chains = []
    for event, target in targets:
        first = [FOREVER] if (event.vs, payload_key(event.payload)) in apart else []
        chains.append(_chain(event, target, horizon, dice, shape, first))
    return _add_ctis(_interleave(chains, dice, shape), dice, shape)


def _starts_endless(dice: Dice, shape: Shape) -> bool:
    """Do equal events begin without an end, so that they are equal until their ends come?"""
    return (
        not shape.insert_only
        and "to the end of time and back" not in shape.without
        and dice.pick([False, True])
    )


def _pick_ghosts(
    events: Sequence[Event], dice: Dice, shape: Shape, payloads: Sequence[Payload]
) -> list[Event]:
    """Events that come and go; none may share a key with another if keyed."""
    taken = {(e.vs, payload_key(e.payload)) for e in events} if shape.keyed else set()
    ghosts = list[Event]()
    for _ in range(dice.pick(_GHOSTS)):
        ghost = Event(dice.pick(payloads), dice.pick(range(HORIZON)))
        if not _TIES.isdisjoint(shape.without) and any(ghost.vs == event.vs for event in (*events, *ghosts)):
            continue
        if (key := (ghost.vs, payload_key(ghost.payload))) not in taken:
            ghosts.append(ghost)
            taken |= {key} if shape.keyed else set()
    return ghosts


def _chain(
    event: Event, target: int, horizon: int, dice: Dice, shape: Shape, first: list[int]
) -> list[Element]:
    """The elements that bring an event by ``first`` to ``target``; its start stands for "not there"."""
    path = [event.vs]
    for end in [*first, *_wrong_ends(event.vs, target, horizon, dice, shape), target]:
        if end != path[-1] and (not shape.ordered or _is_ordered([*path, end, target])):
            path.append(end)
    return [_change(event.payload, event.vs, before, after) for before, after in pairwise(path)]


def _wrong_ends(vs: int, target: int, horizon: int, dice: Dice, shape: Shape) -> list[int]:
    """Ends announced before the right one; a ghost has at least one, or it would not be seen."""
    if shape.insert_only:
        return []
    later = [*range(vs + 1, horizon + 1)]
    # As likely as an end: what never ends is followed in another way than what ends late.
    later += [] if "to the end of time and back" in shape.without else [FOREVER] * (1 + len(later) // 3)
    first = [dice.pick(later)] if target == vs else []
    wrong = first + [dice.pick([vs, *later]) for _ in range(dice.pick([0, 0, 1, 1, 2, 3]))]
    if not shape.shrink_only:
        return wrong
    return sorted({end for end in wrong if end > target}, reverse=True)


def _is_ordered(path: list[int]) -> bool:
    """Do sync times never fall on this path, which starts at the event's start?"""
    steps = [(before, after) for before, after in pairwise(path) if before != after]
    syncs = [min(before, after) for before, after in steps]
    return all(a <= b for a, b in pairwise(syncs))


def _change(payload: Payload, vs: int, before: int, after: int) -> Element:
    return Insert(payload, vs, after) if before == vs else Retract(payload, vs, before, after)


def _interleave(chains: list[list[Element]], dice: Dice, shape: Shape) -> list[Element]:
    """All chains by arrival time, which is the sync time and a delay; a chain keeps its own order.

    An end may also be known to change long before it comes: then the time is that of the event's start.
    """
    longest = 0 if shape.ordered else dice.pick([0, 2, 5, 3 * HORIZON])
    arrivals: list[tuple[int, Element]] = []
    for chain in dice.shuffle(chains):
        latest, is_early = BEGINNING, not shape.ordered and dice.pick([False, False, True])
        for element in chain:
            at = sync_time(chain[0] if is_early else element)
            latest = max(latest, at + dice.pick(range(longest + 1)))
            arrivals.append((latest, element))
    return [element for _, element in sorted(arrivals, key=lambda pair: pair[0])]


def _add_ctis(elements: list[Element], dice: Dice, shape: Shape) -> list[Element]:
    """The elements with CTIs between them, each at most the least sync time still to come."""
    bounds = [sync_time(e) for e in elements]
    for i in reversed(range(len(bounds) - 1)):
        bounds[i] = min(bounds[i], bounds[i + 1])
    stream: list[Element] = []
    last = reached = BEGINNING
    for element, bound in zip(elements, bounds, strict=True):
        if bound > last and dice.pick([False, True, True, True]):
            t = bound - dice.pick([0, 0, 0, 1, 2, HORIZON])
            t = max(t, reached) if shape.ordered else t
            stream += [Cti(t)] if t > last else []
            last = max(last, t)
        stream.append(element)
        reached = max(reached, sync_time(element))
    return [*stream, Cti(FOREVER)] if shape.closed else stream


def sync_time(element: Element) -> int:
    """The earliest time an element changes."""
    match element:
        case Retract(_, _, ve, new_ve):
            return min(ve, new_ve)
        case Cti(t):
            return t
        case _:
            return element.vs
