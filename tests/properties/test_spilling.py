"""Spilling at any step: with a pool that keeps nothing resident, queries say what they say without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, each_step, plans
from tests.properties.step import StepKind
from tests.properties.test_random_plans import KNOWN, Play, Turns, interleavings

import recension as rc
from recension.core import memory_pool
from recension.core.events import Element
from recension.core.memory_pool import MemoryPool
from recension.plan.properties import Properties
from recension.runners.local import Session


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    """Short files and windows, and a look at the pages after every step."""
    patch = pytest.MonkeyPatch()
    for name, value in (("_SHORTEST_FILE", 1 << 16), ("_WINDOW", 4096), ("_SHARE", 0)):
        patch.setattr(memory_pool, name, value)
    yield
    patch.undo()


class SpillingPlay(Play):
    """The same with all state in files, and no page of them in memory between two steps."""

    def __init__(self, plan: Plan, known: Properties, directory: Path) -> None:
        self._directory = directory
        super().__init__(plan, known)

    def _session(self) -> tuple[Session, rc.Stream]:
        session, query = super()._session()
        self.pool = MemoryPool(0, self._directory, least_piece=1)
        return Session(session._queries, pool=self.pool), query

    def feed(self, source: str, elements: list[Element]) -> None:
        super().feed(source, elements)
        assert self.pool.measure().resident_bytes == 0


def _check(plan: Plan, known: Properties, turns: Turns, revive_at: int, directory: Path) -> None:
    plain, spilling = Play(plan, known), SpillingPlay(plan, known, directory)
    for number, (source, elements) in enumerate(turns):
        for play in (plain, spilling):
            if number == revive_at:
                play.restore_twin()
            play.feed(source, elements)
        assert spilling.output == plain.output


@given(st.data())
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_random_plans(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan, turns = data.draw(plans()), data.draw(interleavings(known))
    _check(plan, known, turns, data.draw(st.integers(0, len(turns))), tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("step", each_step(), ids=repr)
@given(st.data())
@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
def test_each_operator(step: StepKind, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    turns = data.draw(interleavings(known))
    directory = tmp_path_factory.getbasetemp()
    _check(Plan((step,)), known, turns, data.draw(st.integers(0, len(turns))), directory)


# Elements a step: with many of one key a join has the square of them.
SIZES = {"join": 150, "median": 400}


def _streams() -> dict[str, Callable[[rc.Stream, rc.Stream], rc.Stream]]:
    return {
        "snapshots": lambda s, t: s.group_by("k").agg(n=rc.count(), v=rc.sum("v"), speculate="eager"),
        "windows": lambda s, t: s.group_by("k").tumbling(50).agg(n=rc.count(), m=rc.max("v")),
        "median": lambda s, t: s.group_by("k").agg(m=rc.quantile("v", 0.5), speculate="eager"),
        "distinct": lambda s, t: s.select("k").distinct(),
        "join": lambda s, t: s.join(t.select("k", w="v"), on="k"),
        "merge": lambda s, t: rc.merge(s, t),
        "coalesce": lambda s, t: s.coalesce("k"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_streams()))
def test_long_runs_and_blocks(name: str, tmp_path: Path) -> None:
    """Enough events for leaves, blocks, merges of runs and cleaning; retractions, expiry and a restore."""
    answers = []
    for pool in (None, MemoryPool(0, tmp_path, least_piece=512)):
        s, t = (rc.source(source, {"k": "string", "v": "int64"}) for source in "st")
        plans = {"out": _streams()[name](s, t).plan, "s": s.plan, "t": t.plan}
        session, draw = Session(plans, history_limit=0, pool=pool), np.random.default_rng(5)
        given = []
        for step in range(12):
            for source in ("s", "t") if name == "join" or step % 3 else ("s",):
                session.push(source, _elements(draw, step, SIZES.get(name, 1500)))
                session.advance(source, 100 * (step - 2))
            given.append(session.read("out").to_arrow())
            if step == 7:
                chunks = session.snapshot()
                session = Session(plans, history_limit=0, pool=pool)
                session.restore(chunks)
        answers.append(given)
        assert pool is None or pool.measure().spilled_bytes > 0
    assert all(one.equals(other) for one, other in zip(*answers, strict=True))


def _elements(draw: np.random.Generator, step: int, size: int) -> pa.Table:
    vs = 100 * step + draw.integers(0, 100, size)
    skewed = np.where(draw.random(size) < 0.5, 0, draw.integers(0, 300, size))
    columns = {"k": np.char.mod("key %d", skewed), "v": draw.integers(-9, 9, size)}
    ve = vs + draw.integers(1, 900, size)
    inserts = pa.table({"_kind": ["insert"] * size, "_vs": vs, "_ve": ve, "_new_ve": ve, **columns})
    some = draw.choice(size, size // 5, replace=False)
    retracted = inserts.take(some)
    new = np.maximum(vs, vs + (ve - vs) // 2)[some]
    retracted = retracted.set_column(0, "_kind", pa.array(["retract"] * len(some)))
    return pa.concat_tables([inserts, retracted.set_column(3, "_new_ve", pa.array(new))])
