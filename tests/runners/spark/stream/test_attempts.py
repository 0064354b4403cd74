"""State as Spark keeps it: changes of the last attempt, on a snapshot of whichever attempt.

An attempt that fails once its state is committed may upload a snapshot of it at any time. Whatever is then
read must be there, and go on to the right answers.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, each_step, plans
from tests.properties.test_random_plans import KNOWN, Turns, interleavings
from tests.runners.spark.stream.rehearsal import Memory
from tests.runners.spark.stream.test_pieces import MERGES, Worker, cleaned_all_the_time

from recension.plan.properties import Properties
from recension.runners.spark.stream.chunks import read_head
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel

__all__ = ["cleaned_all_the_time"]
Manager = Literal["the last one stays", "the first one stays"]
MANAGERS: tuple[Manager, ...] = ("the last one stays", "the first one stays")


class Changes(Memory):
    """What an attempt works on: it writes down what it changes."""

    def __init__(self, content: Memory) -> None:
        super().__init__(content)
        self.steps: list[tuple[str, bytes | None]] = []

    def put(self, name: str, value: bytes) -> None:
        super().put(name, value)
        self.steps.append((name, value))

    def remove(self, name: str) -> None:
        super().remove(name)
        self.steps.append((name, None))


class StateFiles:
    """The files of a shard's state: one of changes a version, and snapshots of some."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._changes: dict[int, list[tuple[str, bytes | None]]] = {}
        self._snapshots: dict[int, Memory] = {}

    def read(self, version: int) -> Memory:
        base = max((known for known in self._snapshots if known <= version), default=0)
        content = Memory(self._snapshots.get(base, {}))
        for later in range(base + 1, version + 1):
            for name, value in self._changes[later]:
                content.remove(name) if value is None else content.put(name, value)
        return content

    def write(self, version: int, changes: Changes) -> None:
        if self._manager == "the last one stays":
            self._changes[version] = changes.steps
        else:
            self._changes.setdefault(version, changes.steps)

    def upload(self, version: int, content: Memory) -> None:
        self._snapshots[version] = content


class Runs(Worker):
    """Attempts one after the other, some of them from what is read from disk."""

    def __init__(self, plan: Plan, known: Properties, manager: Manager, data: st.DataObject) -> None:
        super().__init__(plan, known)
        self._files, self._data, self._version = StateFiles(manager), data, 0
        self._waiting: list[tuple[int, Memory]] = []
        self.store = Changes(Memory())

    def attempt(self, source: str, elements: Any, *, fails: bool) -> list[Any]:
        """One attempt at the next micro-batch; one that fails does so when its state is committed."""
        in_memory = self.store
        if self._data.draw(st.booleans(), label="read from disk"):
            self.store = Changes(self._files.read(self._version))
        else:
            self.store = Changes(Memory(in_memory))
        before = Memory(self.store)
        session = self.lease(self._data.draw(st.integers(-1, 2)) if self.parked else -1)
        session.push(source, elements)
        answers = list(session.read("out").elements())
        self.store_and_park(session)
        self._files.write(self._version + 1, self.store)
        self._waiting.append((self._version + 1, Memory(self.store)))
        self._upload_some()
        if fails:
            self.store = Changes(before)
        else:
            self._version += 1
        return answers

    def _upload_some(self) -> None:
        """Snapshots are written in the background: now, later or never."""
        for snapshot in list(self._waiting):
            if self._data.draw(st.integers(0, 3), label="upload") == 0:
                self._waiting.remove(snapshot)
                self._files.upload(*snapshot)


def _check(plan: Plan, known: Properties, turns: Turns, data: st.DataObject, manager: Manager) -> None:
    runs, shown, expected = Runs(plan, known, manager, data), StreamModel(), StreamModel()
    always = runs.open()
    for source, elements in turns:
        always.push(source, elements)
        for element in always.read("out").elements():
            expected.take(element)
        for _ in range(data.draw(st.integers(0, 2), label="attempts that fail")):
            runs.attempt(source, elements, fails=True)
        for element in runs.attempt(source, elements, fails=False):
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
        assert_equivalent(shown.events(), expected.events())
    head = read_head(runs.store)
    assert head is None or head.names() <= set(runs.store)


@pytest.mark.parametrize("manager", MANAGERS)
@given(data=st.data())
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject, manager: Manager) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(data.draw(plans()), known, data.draw(interleavings(known)), data, manager)


@pytest.mark.parametrize("step", each_step(*MERGES), ids=repr)
@given(data=st.data())
@settings(max_examples=examples(1), suppress_health_check=list(HealthCheck))
def test_each_operator(step: object, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    manager = data.draw(st.sampled_from(MANAGERS))
    _check(Plan((step,)), known, data.draw(interleavings(known)), data, manager)  # type: ignore[arg-type]
