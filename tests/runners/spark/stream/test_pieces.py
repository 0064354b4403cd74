"""Every operator stored by its changes: loaded from nothing, brought up to date, and after failed attempts.

An engine that was never stored says what must come out. The log is cleaned all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, each_step, plans
from tests.properties.step import StepKind
from tests.properties.test_random_plans import KNOWN, Turns, interleavings
from tests.runners.spark.stream.rehearsal import Memory

import recension as rc
from recension.operators.extents import extent
from recension.operators.lmerge import key_table
from recension.operators.state import block_table, leaf_table
from recension.plan.properties import Properties
from recension.runners.local import Session
from recension.runners.spark.stream import pieces
from recension.runners.spark.stream.chunks import Head, load, load_since, read_head, save
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA


def _merges(**how: Any) -> StepKind:
    """Of a stream and of what it becomes when it waits; a case below R4 needs keys, or falls back."""

    def build(s: Any, t: Any) -> Any:
        s = s if how["case"] == "R4" or "on_mismatch" in how else s.distinct()
        return rc.merge(s, s.align(2), s.align(1), **how)

    return StepKind(f"merge {' '.join(map(str, how.values()))}", build, lambda s, t: s, is_immediate=False)


MERGES = [
    *(_merges(case="R3", policy=policy) for policy in ("first", "eager", "hf", "ff", "lead", "quorum")),
    _merges(case="R3", lag=2),
    _merges(case="R3-"),
    _merges(case="R4"),
    *(_merges(case=case, on_mismatch="fallback") for case in ("R0", "R2", "R3")),
]


@pytest.fixture(autouse=True, scope="module")
def cleaned_all_the_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_FEW", 2)
        patch.setattr(pieces, "_MANY", 3)
        patch.setattr(pieces, "_BYTES", 200)
        patch.setattr(pieces, "LINEAGE", 3)
        patch.setattr(leaf_table, "_LONG", 3)
        patch.setattr(leaf_table, "_SHORT", 2)
        patch.setattr(block_table, "_BLOCK", 2)
        patch.setattr(extent, "_SLACK", 0)
        patch.setattr(key_table, "_LEAST", 2)
        patch.setattr(key_table, "_STEP", 1)
        yield


class Worker:
    """Engines of one state, each as of some version; a worker may hold any of them."""

    def __init__(self, plan: Plan, known: Properties) -> None:
        self._plan, self._known = plan, known
        self.store = Memory()
        self.parked: list[tuple[Session, str]] = []

    def open(self) -> Session:
        s, t = (rc.source(name, SCHEMA, properties=self._known) for name in ("s", "t"))
        return rc.session(out=self._plan.build(s, t), t=t, s=s)

    def lease(self, which: int) -> Session:
        """An engine as of the head: a parked one, if there is one, or a new one."""
        head = read_head(self.store)
        if head is None:
            return self.open()
        session, token = self.parked.pop(which % len(self.parked)) if which >= 0 else (self.open(), "")
        since = head.version_of(token)
        if token == head.token:
            return session
        if since is None:
            session = self.open()
            session.restore_state(load(self.store, head))
        else:
            session.restore_state(load_since(self.store, head, session.parts(), since))
        return session

    def store_and_park(self, session: Session) -> Head:
        head, _ = save(self.store, session.parts(), read_head(self.store), "me", 0)
        self.parked = [*self.parked, (session, head.token)][-3:]
        return head


def _check(plan: Plan, known: Properties, turns: Turns, data: st.DataObject) -> None:
    worker, shown, expected = Worker(plan, known), StreamModel(), StreamModel()
    always = worker.open()
    for source, elements in turns:
        always.push(source, elements)
        for element in always.read("out").elements():
            expected.take(element)
        which = data.draw(st.integers(-1, 2)) if worker.parked else -1
        if data.draw(st.booleans()):  # an attempt that fails when all is stored
            before = Memory(worker.store)
            failed = worker.lease(which)
            failed.push(source, elements)
            failed.read("out")  # it stores what the next attempt stores, and so may serve again
            worker.store_and_park(failed)
            worker.store = before
            which = data.draw(st.integers(-1, 2))
        session = worker.lease(which if worker.parked else -1)
        session.push(source, elements)
        for element in session.read("out").elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
        head = worker.store_and_park(session)
        assert set(worker.store) == head.names() | {"head"}
        assert_equivalent(shown.events(), expected.events())
    assert sum(m.state_rows for m in session.metrics()) == 0


@pytest.mark.parametrize("step", each_step(*MERGES), ids=repr)
@given(st.data())
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
def test_each_operator(step: object, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(Plan((step,)), known, data.draw(interleavings(known)), data)  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(data.draw(plans()), known, data.draw(interleavings(known)), data)
