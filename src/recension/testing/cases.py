"""Cases: what a query is fed in a random test, and the ways in which it may be fed that.

One place says what a random stream is made of. `TRAITS` names what streams must have now and then, because it
is what breaks algorithms, and finds it in a case; a test counts that each is drawn for every kind of step.
``without`` leaves a trait out: that is how the test shows that it counts.

A case holds final rows for each source, a stream of revisions that ends with them, and ways to feed these
streams (`Feeding`). All of them must give the history that the final rows give when they are inserted once.

>>> case = make_case(Dice(bytes(8)), ["s"])
>>> [feeding.name for feeding in case.feedings]
['whole', 'one by one', 'cut', 'restored', 'another order']
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any, Final, TypeAlias

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.clocks import TICKS, Clock
from recension.testing.model import payload_key
from recension.testing.physical import HORIZON, Dice, Shape, build_stream

Turn: TypeAlias = tuple[str, list[Element]]

INT64: Final = "int64"
FLOAT64: Final = "float64"
DECIMAL: Final = "decimal128(6, 2)"
_BOUND: Final = Decimal("9999.99")
_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    INT64: (0, 1, -1, 2, None),
    FLOAT64: (0.1, 1.5, None, 1e30, -1e30, 1e-3, 1e288, -1e16),
    DECIMAL: (Decimal("0.00"), Decimal("1.25"), Decimal("-0.01"), None, _BOUND, -_BOUND),
}
_PLAIN: Final = {"magnitudes far apart": (FLOAT64, 3), "bounds of decimals": (DECIMAL, 4)}
"""How many of the values are left without a trait."""
_TIES: Final = {"ties", "ties against order"}
_KEYS: Final = ("a", "b", "", None)
_SIZES: Final = (1, 2, 3, 4, 4, 5)


@dataclass(frozen=True, slots=True)
class Feeding:
    """Batches in turn, each of one source; before the steps ``restores`` a restored session takes over."""

    name: str
    turns: list[Turn]
    restores: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """Final rows, streams of revisions that end with them, and ways to feed these."""

    histories: dict[str, list[Event]]
    streams: dict[str, list[Element]]
    feedings: list[Feeding]
    clock: Clock


def make_case(
    dice: Dice,
    sources: Sequence[str],
    *,
    shape: Shape | None = None,
    value: str = INT64,
    clock: Clock = TICKS,
    is_endless: bool = True,
    without: Set[str] = frozenset(),
) -> Case:
    """A case for these sources, with ``v`` of a type; unless ``is_endless``, all final rows end."""
    shape = replace(shape or Shape(), without=frozenset(without))
    if "equal rows closed apart" in without:
        shape = replace(shape, keyed=True)
    if not is_endless:
        without = {*without, "never ends"}
    histories, streams = dict[str, list[Event]](), dict[str, list[Element]]()
    for name in sources:
        rows = _history(dice, value, without, is_keyed=shape.keyed)
        stream = build_stream(rows, dice, shape, [e.payload for e in rows])
        histories[name] = [clock.event(row) for row in rows]
        streams[name] = [clock.element(element) for element in stream]
    return Case(histories, streams, feedings(streams, dice, without), clock)


def _history(dice: Dice, value: str, without: Set[str], *, is_keyed: bool) -> list[Event]:
    """One to five rows, and others that equal them but perhaps for their ends."""
    pool = _pool(value, without)
    rows: list[Event] = []
    for _ in range(dice.pick(_SIZES)):
        vs = dice.pick(range(HORIZON - 1))
        row = Event({"k": dice.pick(_KEYS), "v": dice.pick(pool)}, vs, _end(dice, vs, without))
        rows += [row] * dice.pick([1, 1, 1, 1, 2])
        rows += [replace(row, ve=_end(dice, vs, without))] * dice.pick([0, 0, 1])
    if not _TIES.isdisjoint(without):
        return _without_ties(rows)
    if is_keyed:
        return list({_identity(row): row for row in rows}.values())
    return rows


def make_row_case(dice: Dice, source: str, *, value: str = INT64, without: Set[str] = frozenset()) -> Case:
    """A case for a keyed source: its rows have keys and versions, which say what holds in the end."""
    pool, versions, rows = _pool(value, without), iter(dice.shuffle(range(9))), list[Event]()
    for _ in range(dice.pick([3, 1, 2, 5, 8])):
        vs = dice.pick(range(HORIZON - 1))
        payload = {"k": dice.pick("ab"), "v": dice.pick(pool), "version": next(versions)}
        is_empty = "zero length" not in without and dice.pick([False, False, True])
        rows.append(Event(payload, vs, vs if is_empty else _end(dice, vs, without)))
    rows = rows if _TIES.isdisjoint(without) else _without_ties(rows)
    streams: dict[str, list[Element]] = {source: [Insert(r.payload, r.vs, r.ve) for r in rows]}
    streams[source].append(Cti(FOREVER))
    return Case({source: rows}, streams, feedings(streams, dice, without), TICKS)


def make_log_case(dice: Dice, source: str, *, value: str = INT64, without: Set[str] = frozenset()) -> Case:
    """A case for a log of changes: each row is a message, by itself or wrapped beside its schema."""
    case = make_row_case(dice, source, value=value, without=without)
    forms = (False,) if "both envelope forms" in without else (False, True)
    rows = [
        Event(
            {**row.payload, "gone": dice.pick([False, False, True]), "is_wrapped": dice.pick(forms)}, row.vs
        )
        for row in case.histories[source]
    ]
    streams: dict[str, list[Element]] = {source: [*(Insert(r.payload, r.vs) for r in rows), Cti(FOREVER)]}
    return Case({source: rows}, streams, feedings(streams, dice, without), TICKS)


def _without_ties(rows: Sequence[Event]) -> list[Event]:
    return list({row.vs: row for row in rows}.values())


def _pool(value: str, without: Set[str]) -> Sequence[Any]:
    """The values of a type; the first of them are without a trait."""
    plain = [size for trait, (of, size) in _PLAIN.items() if trait in without and of == value]
    return _VALUES[value][: min(plain, default=len(_VALUES[value]))]


def _end(dice: Dice, vs: int, without: Set[str]) -> int:
    if "never ends" not in without and dice.pick([False] * 5 + [True]):
        return FOREVER
    return dice.pick(range(vs + 1, HORIZON + 1))


def feedings(streams: Mapping[str, Sequence[Element]], dice: Dice, without: Set[str]) -> list[Feeding]:
    """Ways to feed streams: in one batch each, one by one, cut anywhere, restored, in another order."""
    others = {name: in_another_order(stream) for name, stream in streams.items()}
    restored = _take_turns({name: cut(stream, dice, least=4) for name, stream in streams.items()}, dice)
    found = [
        Feeding("whole", [(name, list(streams[name])) for name in dice.shuffle(list(streams))]),
        Feeding("one by one", _take_turns({n: [[e] for e in s] for n, s in streams.items()}, dice)),
        Feeding("cut", _take_turns({n: cut(stream, dice) for n, stream in streams.items()}, dice)),
        Feeding("restored", restored, frozenset(range(1, len(restored)))),
        Feeding("another order", _take_turns({n: cut(stream, dice) for n, stream in others.items()}, dice)),
    ]
    return [feeding for feeding in found if feeding.name not in without]


def _take_turns(parts: Mapping[str, list[list[Element]]], dice: Dice) -> list[Turn]:
    """The batches of all sources, those of each in their order."""
    left = {name: iter(batches) for name, batches in parts.items()}
    return [(name, next(left[name])) for name in dice.shuffle([n for n in parts for _ in parts[n]])]


def cut(stream: Sequence[Element], dice: Dice, least: int = 0) -> list[list[Element]]:
    """Consecutive batches of a few elements; now and then one of none."""
    batches, rest = list[list[Element]](), list(stream)
    while rest:
        size = least + dice.pick([3, 1, 7, 2, 0, 5])
        batches.append(rest[:size])
        del rest[:size]
    return batches


def in_another_order(stream: Sequence[Element]) -> list[Element]:
    """The same meaning: between two CTIs, events come in the reverse order, each with all that befalls it."""
    told: list[Element] = []
    for is_cti, part in groupby(stream, lambda element: isinstance(element, Cti)):
        elements = list(part)
        if not is_cti:
            first: dict[Hashable, int] = {}
            for at, element in enumerate(elements):
                first.setdefault(_identity(element), -at)
            elements.sort(key=lambda element: first[_identity(element)])
        told += elements
    return told


def _identity(element: Any) -> Hashable:
    return element.vs, payload_key(element.payload)


def _has_magnitudes_far_apart(case: Case) -> bool:
    for rows in case.histories.values():
        sizes = [
            abs(v) for e in rows if isinstance(v := e.payload.get("v"), float) and v and math.isfinite(v)
        ]
        if sizes and max(sizes) / min(sizes) >= 1e30:
            return True
    return False


def _has_bounds(case: Case) -> bool:
    return any(abs(e.payload.get("v") or 0) == _BOUND for rows in case.histories.values() for e in rows)


def _never_ends(case: Case) -> bool:
    return any(e.ve == FOREVER for rows in case.histories.values() for e in rows)


def _goes_to_the_end_of_time_and_back(case: Case) -> bool:
    for stream in case.streams.values():
        moved = [e for e in stream if isinstance(e, Retract)]
        there = {_identity(e) for e in moved if e.new_ve == FOREVER}
        if any(e.ve == FOREVER and _identity(e) in there for e in moved):
            return True
    return False


def _closes_equal_rows_apart(case: Case) -> bool:
    for stream in case.streams.values():
        live = Counter[Hashable]()
        for e in stream:
            if isinstance(e, Retract):
                if live[_identity(e), e.ve] > 1:
                    return True
                live[_identity(e), e.ve] -= 1
                live[_identity(e), e.new_ve] += 1
            elif isinstance(e, Insert):
                live[_identity(e), e.ve] += 1
    return False


def _has_ties(case: Case, *, is_in_order: bool) -> bool:
    """Do two events with one start come in the order of their payloads, or against it?"""
    for stream in case.streams.values():
        inserts = sorted((e for e in stream if isinstance(e, Insert)), key=lambda e: e.vs)
        for one, other in pairwise(inserts):
            said = str(one.payload), str(other.payload)
            if one.vs == other.vs and said[0] != said[1] and (said[0] < said[1]) is is_in_order:
                return True
    return False


def _has_both_forms(case: Case) -> bool:
    """In one batch."""
    batches = [batch for feeding in case.feedings for _, batch in feeding.turns]
    forms = ({e.payload.get("is_wrapped") for e in batch if isinstance(e, Insert)} for batch in batches)
    return any({False, True} <= found for found in forms)


def _is_fed(name: str) -> Callable[[Case], bool]:
    return lambda case: any(feeding.name == name and len(feeding.turns) > 1 for feeding in case.feedings)


def _is_on(is_so: Callable[[Clock], bool]) -> Callable[[Case], bool]:
    return lambda case: is_so(case.clock)


CLOCKS: Final[Mapping[str, Callable[[Clock], bool]]] = {
    "clocks go forward": lambda clock: clock.goes_forward,
    "clocks go back": lambda clock: clock.goes_back,
    "after 2037": lambda clock: clock.is_far,
    "numbers no float holds": lambda clock: clock.base > 2**53,
}
"""The traits that a case has from its clock."""
TRAITS: Final[Mapping[str, Callable[[Case], bool]]] = {
    "to the end of time and back": _goes_to_the_end_of_time_and_back,
    "never ends": _never_ends,
    "equal rows closed apart": _closes_equal_rows_apart,
    "ties": lambda case: _has_ties(case, is_in_order=True),
    "ties against order": lambda case: _has_ties(case, is_in_order=False),
    "magnitudes far apart": _has_magnitudes_far_apart,
    "bounds of decimals": _has_bounds,
    **{name: _is_on(is_so) for name, is_so in CLOCKS.items()},
    "zero length": lambda case: any(e.vs == e.ve for rows in case.histories.values() for e in rows),
    "both envelope forms": _has_both_forms,
    "whole": lambda case: any(f.name == "whole" for f in case.feedings),
    "one by one": _is_fed("one by one"),
    "cut": _is_fed("cut"),
    "restored": _is_fed("restored"),
    "another order": _is_fed("another order"),
}
"""What cases must have now and then, and whether one has it."""
