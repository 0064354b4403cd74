"""A micro-batch that is run again stores the same, byte for byte: whatever the engine went through before, in
whichever order packets come, however their rows are cut, and in a process whose hashes of texts are others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, each_step, plans
from tests.properties.test_random_plans import KNOWN, Turns, interleavings
from tests.runners.spark.stream.rehearsal import Memory, Rehearsal
from tests.runners.spark.stream.test_pieces import MERGES

import recension as rc
from recension.core.batch import from_elements
from recension.plan.properties import Properties
from recension.runners.exchange.packets import Packet
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.codec import decompress, digest, unpack_tables
from recension.testing.strategies import SCHEMA

ROOT = Path(__file__).parents[4]


class Twice(Rehearsal):
    """Every micro-batch is run twice."""

    def __init__(self, plan: Plan, known: Properties, shards: int, luck: Random) -> None:
        s, t = (rc.source(name, SCHEMA, properties=known) for name in ("s", "t"))
        super().__init__([plan.build(s, t).plan, s.plan, t.plan], shards)
        self._luck, self._is_mixed = luck, False

    def _level(self, level: int, packets: list[Packet]) -> list[Packet]:
        """Packets of a task come in any order, where that is said."""
        packets = self._luck.sample(packets, len(packets)) if self._is_mixed else packets
        return super()._level(level, packets)

    def turn_twice(self, source: str, elements: list[Any]) -> None:
        """Once by engines that are loaded, once by those that are there, or behind."""
        cut = self._luck.randint(0, len(elements))
        batches = [from_elements(part, SCHEMA) for part in (elements[:cut], elements[cut:])]
        before = {key: Memory(store) for key, store in self.stores.items()}
        parked = dict(processor._parked)
        processor._parked.clear()
        self._is_mixed = True
        self.turn({source: batches})
        loaded, by_loaded = dict(processor._parked), self.contents()
        self.stores.clear()
        self.stores.update(before)
        self._batch -= 1
        processor._parked.clear()
        processor._parked.update(parked)
        self._is_mixed = False
        self.turn({source: [from_elements(elements, SCHEMA)]})
        assert self.contents() == by_loaded, _apart(self.contents(), by_loaded)
        kept = self._luck.choice([processor._parked, loaded, parked])
        processor._parked = dict(kept)

    def contents(self) -> dict[str, dict[str, bytes]]:
        """Everything that is stored."""
        return {str(key): dict(store) for key, store in sorted(self.stores.items())}


def _apart(some: dict[str, dict[str, bytes]], others: dict[str, dict[str, bytes]]) -> str:
    """What one has and the others do not, in words."""
    told = []
    for key, store in some.items():
        for name in sorted(store.keys() ^ others[key].keys()):
            value = store.get(name) or others[key][name]
            tables = unpack_tables(decompress(value)).items()
            told.append(f"{key} {name}: { {n: t.to_pydict() for n, t in tables} }")
    return "\n".join(told)


def _check(plan: Plan, known: Properties, turns: Turns, seed: int) -> None:
    twice = Twice(plan, known, 1 + seed % 2, Random(seed))
    processor._parked.clear()
    for source, elements in turns:
        twice.turn_twice(source, elements)


SEEDS = st.integers(0, 1 << 30)


@given(data=st.data(), seed=SEEDS)
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject, seed: int) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(data.draw(plans()), known, data.draw(interleavings(known)), seed)


@pytest.mark.parametrize("step", each_step(*MERGES), ids=repr)
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=examples(1), suppress_health_check=list(HealthCheck))
def test_each_operator(step: object, data: st.DataObject, seed: int) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(Plan((step,)), known, data.draw(interleavings(known)), seed)  # type: ignore[arg-type]


def rows_of(name: str, turn: int) -> list[Any]:
    """Events of many keys, some of them without a value."""
    rows: list[Any] = [
        rc.Insert({"k": f"{name}{(turn + i) % 7}", "v": None if i % 5 == 0 else i}, turn, turn + 1 + i % 4)
        for i in range(20)
    ]
    return [*rows, rc.Cti(turn)]


def store_all() -> dict[str, str]:
    """What is stored of queries with several levels and shards, as digests."""
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    queries = {
        "levels": s.group_by("k").agg(v=rc.sum("v")).group_by("v").agg(n=rc.count()),
        "join": s.join(t, on="k", how="full"),
        "windows": s.group_by("k").hopping(4, 2).agg(n=rc.count(), last=rc.last("v")),
        "merge": rc.merge(s, t, case="R3"),
        "applied": s.group_by("k").apply(lambda g: g.cleanse()),
    }
    found = {}
    for name, query in queries.items():
        rehearsal = Rehearsal([query.plan], 2)
        for turn in range(4):
            for source in rehearsal.plan.sources():
                rehearsal.turn({source: [from_elements(rows_of(source, turn), SCHEMA)]})
        for key, store in sorted(rehearsal.stores.items()):
            found[f"{name} {key}"] = digest(json.dumps([[n, digest(v)] for n, v in store.items()]).encode())
    return found


@pytest.mark.slow
def test_the_seed_of_hashes_is_of_no_account() -> None:
    """Not even for the order in which things are put."""
    program = f"import json; from {__name__} import store_all; print(json.dumps(store_all()))"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    one, other = (json.loads(program.communicate()[0]) for program in running)
    assert one == other
    assert len(one) >= 10
