"""What the readers of a replica no longer want it is spared; the rest is as it would be, whatever dies."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.lmerge.test_session import PLANS
from tests.runners.spark.stream.rehearsal import Arrival, Arriving, Rehearsal

import recension as rc
from recension.core.batch import EventBatch, from_elements
from recension.core.errors import FormatError
from recension.core.events import Element, Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.node import Node
from recension.plan.nodes import Merge, Source
from recension.runners.exchange.packets import METRICS, Packet
from recension.runners.spark.stream import feedback, processor
from recension.runners.spark.stream.topology import Inlet
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

KNOWN = [rc.Properties(), rc.Properties(is_insert_only=True), rc.Properties(is_shrink_only=True)]


@pytest.mark.parametrize("plan", PLANS)
@given(st.data())
@settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_still_wanted_is_as_it_would_be(plan: str, data: st.DataObject) -> None:
    """Two pipelines hear the same, one in workers that forget and fail; a third hears nothing."""
    known = data.draw(st.sampled_from(KNOWN))
    shape = {"insert_only": known.is_insert_only, "shrink_only": known.is_shrink_only}
    batches = {
        name: data.draw(batchings(data.draw(physical_streams(data.draw(histories(max_size=4)), **shape))))
        for name in rc.session(PLANS[plan](*_sources(known))).sources
    }
    turns = data.draw(st.permutations([name for name, parts in batches.items() for _ in parts]))
    heard = data.draw(
        st.lists(st.just(BEGINNING) | st.integers(0, 14), min_size=len(turns), max_size=len(turns))
    )
    query, shards = PLANS[plan](*_sources(known)).plan, data.draw(st.sampled_from([1, 3]))
    steady, deaf, shaken = (Worker(query, shards) for _ in range(3))
    shown = StreamModel(), StreamModel()
    for name, t in zip(turns, heard, strict=True):
        turn = {name: [from_elements(batches[name].pop(0), SCHEMA)]}
        if data.draw(st.booleans()):
            shaken.turn(turn, t, fails=True)
        if data.draw(st.booleans()):
            shaken.forget()
        answers = [steady.turn(turn, t), deaf.turn(turn, BEGINNING), shaken.turn(turn, t)]
        assert _said(answers[0]) == _said(answers[2])
        for walk, answer in zip(shown, answers, strict=False):
            _take(walk, answer)
    assert shown[0].cti == shown[1].cti
    assert_equivalent(*(_since(max(heard, default=BEGINNING), walk) for walk in shown))


@pytest.mark.parametrize("plan", ["span", "shift", "join", "semi", "union", "nested", "agg"])
@given(st.data())
@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
def test_replicas_that_hear_the_merge_of_them(plan: str, data: st.DataObject) -> None:
    """Round and round: two replicas, the merge of their answers, and what it says to them."""
    known = data.draw(st.sampled_from(KNOWN))
    shape = {"insert_only": known.is_insert_only, "shrink_only": known.is_shrink_only}
    query = PLANS[plan](*_sources(known))
    tables = {name: data.draw(histories(min_size=1, max_size=4)) for name in rc.session(query).sources}
    feeds = {
        (replica, name): data.draw(batchings(data.draw(physical_streams(table, **shape))))
        for replica in ("a", "b")
        for name, table in tables.items()
    }
    replicas = {name: Worker(query.plan, data.draw(st.sampled_from([1, 2]))) for name in ("a", "b")}
    merge = Worker(
        Merge((Source("*", query.schema),), is_open=True, case="R4"), 2, {"*": Inlet(is_root=True)}
    )
    shown, turns = StreamModel(), [key for key, parts in feeds.items() for _ in parts]
    for number, (replica, name) in enumerate(data.draw(st.permutations(turns))):
        part = from_elements(feeds[replica, name].pop(0), SCHEMA)
        heard = shown.cti if data.draw(st.booleans()) and shown.cti < FOREVER else BEGINNING
        answer = replicas[replica].turn({name: [part]}, heard)
        if len(answer):
            merged = merge.turn({"*": [Arrival(f"root/{replica}/{number:04}", answer)]}, BEGINNING)
            _take(shown, merged)
    assert shown.cti == FOREVER
    assert merge.rehearsal.state_rows(merge.packets) == 0
    told = {name: [rc.Insert(e.payload, e.vs, e.ve) for e in table] for name, table in tables.items()}
    assert_equivalent(shown.events(), rc.run(query, told, close=True).history().to_events())


class Worker:
    """A pipeline with live engines of its own."""

    def __init__(self, query: Node, shards: int, inlets: Mapping[str, Inlet] | None = None) -> None:
        self.rehearsal = Rehearsal([query], shards, inlets)
        self._parked: dict[processor.EngineKey, processor.ParkedEngine] = {}

    def turn(
        self, arriving: Mapping[str, Sequence[Arriving]], heard: int, *, fails: bool = False
    ) -> EventBatch:
        processor._parked.clear()
        processor._parked.update(self._parked)
        self.packets = self.rehearsal.turn(arriving, heard=heard, fails=fails)
        self._parked = dict(processor._parked)
        processor._parked.clear()
        return self.rehearsal.output(self.packets)

    def forget(self) -> None:
        self._parked.clear()


def _sources(known: rc.Properties) -> list[rc.Stream]:
    return [rc.source(name, SCHEMA, properties=known) for name in ("s", "t")]


def _take(shown: StreamModel, answer: EventBatch) -> None:
    for element in answer.to_elements():
        assert (fault := shown.fault(element)) is None, f"{element} {fault}"
        shown.take(element)


def _said(answer: EventBatch) -> list[str]:
    return sorted(map(str, answer.to_elements()))


def _since(t: int, shown: StreamModel) -> list[Event]:
    return [event for event in shown.events() if event.ve >= t]


def _batch(*elements: Element) -> list[EventBatch]:
    return [from_elements(list(elements), SCHEMA)]


def test_every_level_hears_what_it_need_not_do() -> None:
    """Two joins on different keys: what the answer's readers do not want, the first join forgets."""
    known = rc.Properties(is_insert_only=True)
    s, t, u = (rc.source(name, SCHEMA, properties=known) for name in ("s", "t", "u"))
    query = s.join(t, on="k").join(u, on="v").plan
    worker = Worker(query, 2)
    assert worker.rehearsal.plan.levels == 2
    short, long = rc.Insert({"k": "x", "v": 1}, 1, 5), rc.Insert({"k": "x", "v": 1}, 1, 20)
    worker.turn({"s": _batch(short, long)}, BEGINNING)
    assert worker.rehearsal.state_rows(worker.packets) == 2
    worker.turn({"s": _batch(rc.Cti(0))}, 10)
    assert worker.rehearsal.state_rows(worker.packets) == 1
    worker.turn({"t": _batch(short, long), "u": _batch(long)}, BEGINNING)
    assert _skipped(worker.packets) == 1
    assert _said(worker.turn({"s": _batch(rc.Insert({"k": "x", "v": 1}, 3, 9))}, BEGINNING)) == []
    worker.forget()
    assert _said(worker.turn({"s": _batch(rc.Insert({"k": "x", "v": 1}, 3, 9))}, BEGINNING)) == []
    assert _skipped(worker.packets) == 1


def _skipped(packets: list[Packet]) -> int:
    reports = [json.loads(packet.info) for packet in packets if packet.edge == METRICS]
    return sum(operator["skipped"] for report in reports for operator in report["operators"])


def test_files_say_it_once_and_old_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "_feedback"
    for t in (-5, 7, 7, 100, FOREVER):
        feedback.publish_feedback(folder, t)
    assert sorted(file.name for file in folder.iterdir()) == ["-5.json", "100.json", "7.json"]
    assert json.loads((folder / "7.json").read_text()) == {"before": 7}
    os.utime(folder / "-5.json", (0, 0))
    for t in range(101, 101 + 70):
        feedback.publish_feedback(folder, t)
    assert not (folder / "-5.json").exists()
    assert (folder / "7.json").exists(), "it is not old enough"
    with pytest.raises(FormatError, match="not a merge's feedback"):
        feedback.feedback_time(folder / "x.json")
