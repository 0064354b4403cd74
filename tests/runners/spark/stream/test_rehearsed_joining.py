"""Streams that join and leave a merge in a pipeline, with workers that forget and attempts that fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples, scripts
from tests.runners.spark.stream.rehearsal import Arrival, Rehearsal
from tests.runners.spark.stream.staged import KINDS, Staged

import recension as rc
from recension.core.batch import EventBatch, from_elements
from recension.core.errors import RecensionError, StreamError
from recension.core.events import Element
from recension.core.ticks import BEGINNING
from recension.plan.nodes import Merge, Source
from recension.runners.exchange.packets import METRICS
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.membership import JOINS, LEAVES, membership_message
from recension.runners.spark.stream.topology import Inlet
from recension.testing.strategies import SCHEMA


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_merge_of_streams_that_come_and_go(kind: str, data: st.DataObject) -> None:
    processor._parked.clear()
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    staged = Staged(0, kind, data.draw(scripts(KINDS[kind][0])), sizes)
    rehearsal = Rehearsal([staged.query], data.draw(st.sampled_from([1, 3])), {staged.source: Staged.inlet})
    workers: list[dict[processor.EngineKey, processor.ParkedEngine]] = [{}, {}]
    packets = []
    for number, arriving in enumerate(staged.turns()):
        # Another worker, which is behind, or a new one.
        worker = workers[data.draw(st.integers(0, 1))]
        processor._parked.clear()
        processor._parked.update(worker if data.draw(st.booleans()) else {})
        if data.draw(st.booleans()):
            rehearsal.turn({staged.source: arriving}, fails=True)
        packets = rehearsal.turn({staged.source: arriving})
        worker.clear()
        worker.update(processor._parked)
        staged.judge(number, rehearsal.output(packets))
    staged.check()
    assert rehearsal.state_rows(packets) == 0


X, Y = {"k": "x", "v": 1}, {"k": "y", "v": 2}


class Root:
    """A merge over a root, fed by hand."""

    def __init__(self, shards: int = 2, **how: object) -> None:
        processor._parked.clear()
        self._files = 0
        plan = Merge((Source("*", SCHEMA),), is_open=True, **{"case": "R3", **how})  # type: ignore[arg-type]
        self._rehearsal = Rehearsal([plan], shards, {"*": Inlet(is_root=True)})

    def turn(self, *arriving: Arrival) -> list[str]:
        packets = self._rehearsal.turn({"*": list(arriving)})
        self.reports = [json.loads(p.info) for p in packets if p.edge == METRICS]
        return [str(element) for element in self._rehearsal.output(packets).to_elements()]

    def file(self, name: str, *elements: Element) -> Arrival:
        self._files += 1
        return Arrival(f"root/{name}/{self._files:04}", self.batch(*elements))

    @staticmethod
    def batch(*elements: Element) -> EventBatch:
        return from_elements(list(elements), SCHEMA)

    @staticmethod
    def join(name: str, since: int) -> Arrival:
        return Arrival(f"root/{name}.join", words=membership_message(JOINS, name, since))

    @staticmethod
    def leave(name: str) -> Arrival:
        return Arrival(f"root/{name}.leave", words=membership_message(LEAVES, name))

    def states(self) -> list[dict[str, str]]:
        return [report["inputs"] for report in self.reports]


def test_states_are_told_by_every_shard() -> None:
    root = Root()
    assert root.turn(root.file("a", rc.Insert(X, 1, 5), rc.Cti(3))) == [f"insert [1, 5) {X}", "cti 3"]
    assert root.turn(root.join("b", 6), root.file("b", rc.Insert(Y, 7, 9), rc.Cti(8))) == [
        f"insert [7, 9) {Y}"
    ]
    assert root.states() == [{"a": "joined", "b": "joining"}] * 2
    assert root.turn(root.file("a", rc.Cti(6)), root.leave("a")) == ["cti 8"]
    assert root.states() == [{"a": "leaving", "b": "joined"}] * 2
    assert root.turn(root.file("b", rc.Cti(9)), root.file("a", rc.Insert(X, 20, 30))) == ["cti 9"]
    assert root.states() == [{"a": "left", "b": "joined"}] * 2
    ignored = [report["counts"]["a"] for report in root.reports if "a" in report["counts"]]
    assert ignored == [{"it had left the merge": 1}]


def test_who_leaves_before_coming_is_not_heard() -> None:
    root = Root()
    assert root.turn(root.leave("b")) == []
    assert root.turn(root.file("b", rc.Insert(X, 1, 5), rc.Cti(7)), root.file("a", rc.Cti(3))) == ["cti 3"]
    assert root.states() == [{"a": "joined"}] * 2


def test_a_word_that_comes_too_late_is_refused() -> None:
    root = Root()
    root.turn(root.file("b", rc.Cti(3)))
    root.turn(root.join("b", BEGINNING))  # nothing new
    with pytest.raises(RecensionError, match=r"b\.join: b has joined already, complete from the beginning"):
        root.turn(root.join("b", 6))
    root = Root()
    root.turn(root.leave("b"))
    with pytest.raises(RecensionError, match="b has left and cannot join again; write to a sub-folder"):
        root.turn(root.join("b", 6))


def test_files_of_a_stream_come_in_the_order_of_their_names() -> None:
    root = Root()
    first, second, other = root.file("b", rc.Cti(3)), root.file("b", rc.Cti(5)), root.file("a", rc.Cti(4))
    root.turn(second)
    root.turn(other)
    with pytest.raises(RecensionError, match=r"root/b/0001 came after root/b/0002"):
        root.turn(first)


def test_what_is_wrong_is_told_with_its_file_and_row() -> None:
    root = Root(shards=1)
    with pytest.raises(StreamError, match=r"root/a/0001: row 2: breaks an earlier cti"):
        root.turn(root.file("a", rc.Cti(9), rc.Insert(X, 1, 5)))


def test_only_a_merge_reads_streams_that_come_and_go() -> None:
    with pytest.raises(RecensionError, match="can only be read by a merge"):
        Rehearsal([Source("*", SCHEMA)], 1, {"*": Inlet(is_root=True)}).turn({"*": []})
    with pytest.raises(RecensionError, match="one stream stands for all that join, not 2"):
        Merge((Source("a", SCHEMA), Source("b", SCHEMA)), is_open=True)


def test_a_shard_knows_of_streams_that_send_it_nothing() -> None:
    root = Root(policy="quorum", quorum=1.0)
    root.turn(root.file("a", rc.Insert(X, 1, 5)), root.file("b", rc.Insert(Y, 1, 5)))
    assert root.states() == [{"a": "joined", "b": "joined"}] * 2
    assert root.turn(root.file("b", rc.Insert(X, 1, 5))) == [f"insert [1, 5) {X}"]
