"""Patterns and joins by start, stored by their changes: an operator that takes these over goes on alike."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core.batch import from_elements
from recension.core.change_log import Change, Logged, newest
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.ticks import FOREVER
from recension.lowering import operator_of
from recension.operators.base import Operator

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
a, b, c = (rc.source(name, SCHEMA) for name in "abc")
QUERIES: dict[str, rc.Stream] = {
    "inner": a.join(b, on="k", starts=(-3, 4)),
    "left": a.join(b, on="k", how="left", starts=(-3, 4)),
    "semi": a.join(b, on="k", how="semi", starts=(0, 4), where=rc.col("v") <= rc.col("v_right")),
    "anti": a.join(b, on="k", how="anti", starts=(0, 4)),
    "unless": rc.unless(a, b, within=5, on="k"),
    "sequence": rc.sequence({"a": a, "b": b}, within=5, on="k", absent=c),
    "at_least": rc.at_least(2, {"a": a, "b": b, "c": c}, within=5, on="k", most=4, on_limit="drop"),
}


class Checkpoints:
    """The parts of an operator: tables as they are now, and of its logged stores the changes by version."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.changes: dict[str, list[Change]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.version = 0

    def take(self, operator: Operator) -> None:
        for name, part in operator.parts().items():
            if isinstance(part, pa.Table):
                self.tables[name] = part
            else:
                logged: Logged = part
                self.keys[name] = logged.key
                self.changes.setdefault(name, []).append(logged.take_changes(self.version))
        self.version += 1

    def load(self, operator: Operator, since: int) -> None:
        """Bring an operator that has a version up to the last one."""
        chunks: dict[str, Any] = dict(self.tables)
        for name, changes in self.changes.items():
            change = newest(changes[since:], range(since, self.version), self.keys[name])
            chunks[name] = replace(change, memo=changes[-1].memo, since=since - 1)
        operator.restore(chunks)


class Feed:
    """A random stream: what is there, and how far it is."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.cti = rng, 0
        self.live: list[tuple[dict[str, Any], int, int]] = []

    def batch(self) -> list[Element]:
        out: list[Element] = []
        for _ in range(self.rng.randint(0, 5)):
            open_events = [event for event in self.live if event[2] >= self.cti]
            out += self.revise(open_events) if open_events and self.rng.random() < 0.4 else self.insert()
        if self.rng.random() < 0.5:
            self.cti += self.rng.randint(1, 5)
            out.append(Cti(self.cti))
        return out

    def insert(self) -> list[Element]:
        payload = {"k": self.rng.choice("aab"), "v": self.rng.randint(0, 2)}
        vs = self.cti + self.rng.randint(0, 6)
        ve = self.rng.choice([vs + 1, vs + self.rng.randint(1, 12), FOREVER])
        self.live.append((payload, vs, ve))
        return [Insert(payload, vs, ve)]

    def revise(self, open_events: list[tuple[dict[str, Any], int, int]]) -> list[Element]:
        payload, vs, ve = event = self.rng.choice(open_events)
        low = max(vs, self.cti)
        end = self.rng.choice([low, low + self.rng.randint(0, 9)])
        if end == ve:
            return []
        self.live.remove(event)
        if end > vs:
            self.live.append((payload, vs, end))
        return [Retract(payload, vs, ve, end)]


def feed(operator: Operator, port: int, elements: list[Element]) -> list[str]:
    batch = from_elements([e for e in elements if not isinstance(e, Cti)], SCHEMA)
    out = list(map(str, operator.on_batch(port, batch).to_elements()))
    ctis = [element.t for element in elements if isinstance(element, Cti)]
    return sorted(out) + [str(operator.on_cti(port, t).cti) for t in ctis]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", range(12))
def test_one_that_takes_changes_over_goes_on_alike(name: str, seed: int) -> None:
    rng = random.Random(seed)
    make = partial(operator_of, QUERIES[name].plan)
    operator, behind, log, seen = make(), make(), Checkpoints(), 0
    feeds = [Feed(rng) for _ in QUERIES[name].plan.inputs]
    for _ in range(25):
        port = rng.randrange(len(feeds))
        feed(operator, port, feeds[port].batch())
        if rng.random() < 0.5:
            log.take(operator)
            if rng.random() < 0.4:
                log.load(behind, seen)
                seen = log.version
    log.take(operator)
    fresh = make()
    log.load(fresh, 0)
    log.load(behind, seen)
    for _ in range(10):
        port = rng.randrange(len(feeds))
        batch = feeds[port].batch()
        expected = feed(operator, port, batch)
        assert feed(fresh, port, batch) == expected
        assert feed(behind, port, batch) == expected
    assert fresh.state_rows() == behind.state_rows() == operator.state_rows()
