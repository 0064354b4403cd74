"""What may happen to a merge (`tests.lmerge.scripts`), as micro-batches of a root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lmerge.scripts import Script, Witness
from tests.runners.spark.stream.rehearsal import Arrival

from recension.core.batch import EventBatch, from_elements
from recension.core.events import Element
from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.node import Node
from recension.plan.nodes import Merge, Source
from recension.runners.spark.stream.membership import JOINS, LEAVES, membership_message
from recension.runners.spark.stream.topology import Inlet
from recension.testing.assertions import assert_equivalent
from recension.testing.compatibility import Compatibility
from recension.testing.strategies import SCHEMA

# For each: the shape of its inputs, and how they are merged.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{case: (case, {"case": case}) for case in ("R0", "R1", "R2", "R3", "R3-", "R4")},
    **{p: ("R3", {"case": "R3", "policy": p}) for p in ("first", "eager", "hf", "ff", "lead", "quorum")},
    "first, lag 2": ("R3", {"case": "R3", "lag": 2}),
    "quorum of all, lag 2": ("R3", {"case": "R3", "policy": "quorum", "quorum": 1.0, "lag": 2}),
    "lead by starts": ("R3", {"case": "R3", "policy": "lead", "leader": "starts"}),
    "R0 may fall": ("R0", {"case": "R0", "on_mismatch": "fallback"}),
}


@dataclass
class _Turn:
    """One micro-batch, as it arrives and as the judge hears of it."""

    arriving: list[Arrival] = field(default_factory=list)
    joining: list[tuple[str, int]] = field(default_factory=list)
    told: list[tuple[str, list[Element]]] = field(default_factory=list)


class Staged:
    """One merge among others: its source has a name of its own, its witnesses are called a, b, ..."""

    inlet = Inlet(is_root=True)

    def __init__(self, number: int, kind: str, script: Script, sizes: Sequence[int]) -> None:
        """``sizes`` are the numbers of steps of the script that come together, again and again."""
        case, how = KINDS[kind]
        self.kind, self._script = kind, script
        self.source = f"{number}/*"
        self.query: Node = Merge((Source(self.source, SCHEMA),), is_open=True, **how)
        self._judge = Compatibility(0, in_order=case in ("R0", "R1", "R2"))
        self._is_keyed = case in ("R2", "R3", "R3-") and how["case"] != "R4"
        self._ports: dict[str, int] = {}
        self._turns = self._staged(list(sizes))

    def _staged(self, sizes: list[int]) -> list[_Turn]:
        left, files = list(self._script.turns), 0
        turns: list[_Turn] = []
        while left:
            size = sizes[len(turns) % len(sizes)]
            turns.append(turn := _Turn())
            for step in left[:size]:
                self._happen(turn, chr(ord("a") + step), self._script.witnesses[step], files)
                files += 1
            left = left[size:]
        return turns

    def _happen(self, turn: _Turn, name: str, witness: Witness, file: int) -> None:
        is_new = name not in self._ports
        if is_new:
            since = BEGINNING if witness.since is None else witness.since
            self._ports[name] = self._judge.attach(since)
        if is_new and witness.since is not None:
            turn.arriving.append(
                Arrival(f"root/{name}.join", words=membership_message(JOINS, name, witness.since))
            )
        elif witness.batches:
            elements = witness.batches.pop(0)
            place = f"root/{name}/{file:04}"
            turn.arriving.append(Arrival(place, from_elements(elements, SCHEMA)))
            turn.told.append((name, elements))
        else:
            turn.arriving.append(Arrival(f"root/{name}.leave", words=membership_message(LEAVES, name)))

    def turns(self) -> list[list[Arrival]]:
        """What arrives in each micro-batch."""
        return [turn.arriving for turn in self._turns]

    def judge(self, number: int, answer: EventBatch) -> None:
        """Whatever came out must be valid, and compatible with all that has come in."""
        for name, elements in self._turns[number].told:
            self._judge.take_input(self._ports[name], elements)
        self._judge.take_output(answer.to_elements())
        self._judge.check()
        if self._is_keyed:
            self._judge.check_key()

    def check(self) -> None:
        """At the end of all turns."""
        assert_equivalent(self._judge.history(), self._script.history)
        assert self._judge.stable == FOREVER
