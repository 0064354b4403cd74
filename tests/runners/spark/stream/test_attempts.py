"""State as Spark keeps it: changes of the last attempt, on a snapshot of whichever attempt.

An attempt that fails once its state is committed may upload a snapshot of it at any time. Whatever is then
read must be there, and go on to the right answers.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Literal
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, each_step, plans
from tests.properties.test_random_plans import KNOWN, Turns, interleavings
from tests.runners.spark.stream.rehearsal import Memory
from tests.runners.spark.stream.test_pieces import MERGES, Worker, cleaned_all_the_time

import recension as rc
from recension.plan.properties import Properties
from recension.runners.spark.stream.chunks import HEAD, load, read_head
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

    def __init__(self, plan: Plan, known: Properties, manager: Manager, luck: Random) -> None:
        super().__init__(plan, known)
        self._files, self._luck, self._version = StateFiles(manager), luck, 0
        self._manager: Manager = manager
        self._waiting: list[tuple[int, Memory]] = []
        self.store = Changes(Memory())

    def attempt(self, source: str, elements: Any, *, fails: bool) -> list[Any]:
        """One attempt at the next micro-batch; one that fails does so when its state is committed."""
        is_cold = self._luck.random() < 0.3
        before = self._files.read(self._version) if is_cold else Memory(self.store)
        self.store = Changes(before)
        session = self.lease(self._luck.randint(-1, 2) if self.parked else -1)
        session.push(source, elements)
        answers = list(session.read("out").elements())
        self.store_and_park(session)
        self._files.write(self._version + 1, self.store)
        snapshot = self._version + 1, Memory(self.store)
        if fails and self._luck.random() < 0.3:
            self._files.upload(*snapshot)
        self._waiting.append(snapshot)
        self._upload_some()
        if fails:
            self.store = Changes(before)
        else:
            self._version += 1
        return answers

    def as_before(self) -> None:
        """Let what is stored be of an earlier release."""
        old = Changes(Memory())
        for name, value in _as_before(self.store).items():
            old.put(name, value)
        self._files = StateFiles(self._manager)
        self._files.write(1, old)
        self.parked, self._waiting, self.store = [], [], old

    def assert_readable(self) -> None:
        """What is on the disk of the last version that was committed, and of the one before."""
        for version in range(max(1, self._version - 1), self._version + 1):
            content = self._files.read(version)
            head = read_head(content)
            assert head is not None
            assert head.version == version
            assert head.names() - set(head.dropped) <= set(content)
            load(content, head)

    def _upload_some(self) -> None:
        """Snapshots are written in the background: now, later or never."""
        for snapshot in list(self._waiting):
            if self._luck.random() < 0.1:
                self._waiting.remove(snapshot)
                self._files.upload(*snapshot)


def _as_before(store: Memory) -> Memory:
    """The first version as earlier releases stored it: names are by chance, what was written is not noted."""
    head, token = json.loads(store[HEAD]), uuid4().hex
    names = {piece[0]: f"{token}.{number}" for number, piece in enumerate(head["pieces"])}
    head |= {"token": token, "lineage": [token], "cleaned": names.get(head["cleaned"], "")}
    head["pieces"] = [[names[name], *rest] for name, *rest in head["pieces"]]
    del head["written"], head["dropped"]
    content = Memory({names.get(name, name): value for name, value in store.items()})
    content[HEAD] = json.dumps(head).encode()
    return content


def _check(
    plan: Plan,
    known: Properties,
    turns: Turns,
    manager: Manager,
    seed: int,
    *,
    is_alike: bool = True,
    is_old: bool = False,
) -> None:
    """With attempts that get the same rows in the same order, or not; or begun by an earlier release."""
    luck = Random(seed)
    runs, shown, expected = Runs(plan, known, manager, luck), StreamModel(), StreamModel()
    always = runs.open()
    for number, (source, elements) in enumerate(turns):
        if is_old and number == 1:
            runs.as_before()
        always.push(source, elements)
        for element in always.read("out").elements():
            expected.take(element)
        for _ in range(luck.randint(0, 2)):
            given = elements if is_alike else [*luck.sample(elements[:-1], len(elements) - 1), elements[-1]]
            runs.attempt(source, given, fails=True)
        for element in runs.attempt(source, elements, fails=False):
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
        assert_equivalent(shown.events(), expected.events())
        runs.assert_readable()


SEEDS = st.integers(0, 1 << 30)


@pytest.mark.parametrize("manager", MANAGERS)
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject, seed: int, manager: Manager) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    _check(data.draw(plans()), known, data.draw(interleavings(known)), manager, seed)


@pytest.mark.soak
@pytest.mark.parametrize("step", each_step(*MERGES), ids=repr)
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=examples(1), suppress_health_check=list(HealthCheck))
def test_each_operator(step: object, data: st.DataObject, seed: int) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan = Plan((step,))  # type: ignore[arg-type]
    _check(plan, known, data.draw(interleavings(known)), MANAGERS[seed % 2], seed)


def _turns(number: int) -> Turns:
    """Every micro-batch three events that start, and the end of an earlier one."""
    turns: Turns = []
    for n in range(number):
        elements: list[Any] = [rc.Insert({"k": str((n + i) % 5), "v": n + i}, n, n + 6) for i in range(3)]
        if n:
            elements.append(rc.Retract({"k": str((n - 1) % 5), "v": n - 1}, n - 1, n + 5, n + 3))
        turns.append(("s", [*elements, rc.Cti(n - 2)]))
    return turns


@pytest.mark.parametrize("is_alike", [True, False], ids=["alike", "not alike"])
@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("name", ["sum eager by k", "join left", "distinct", "merge R4"])
def test_attempts_by_the_dozen(name: str, manager: Manager, is_alike: bool) -> None:
    """What one of them loses, another one meets."""
    known = [getattr(step, "values", (step,))[0] for step in each_step(*MERGES)]
    (step,) = (step for step in known if repr(step) == name)
    for seed in range(3):
        _check(Plan((step,)), KNOWN[0], _turns(10), manager, seed, is_alike=is_alike)


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("name", ["sum eager by k", "join left"])
def test_a_checkpoint_of_an_earlier_release_goes_on(name: str, manager: Manager) -> None:
    known = [getattr(step, "values", (step,))[0] for step in each_step(*MERGES)]
    (step,) = (step for step in known if repr(step) == name)
    for seed in range(4):
        _check(Plan((step,)), KNOWN[0], _turns(6), manager, seed, is_old=True)
