"""Recordings of streaming queries: on every edge is what the local engine has there, killed or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import plans
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.cli import main
from recension.cli.inspected import open_checkpoint
from recension.core.batch import EventBatch, empty, from_elements
from recension.core.errors import RecensionError
from recension.inspector.page_data import Shown
from recension.inspector.questions import Questions
from recension.inspector.reasons import iter_events
from recension.plan.node import Node
from recension.plan.source import sources_of
from recension.runners.recording import Recording
from recension.runners.spark.sinks.micro_batch import MicroBatch
from recension.runners.spark.sinks.recording import MicroBatchRecorder, open_recorder
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.taps import PARTS
from recension.runners.spark.stream.topology import note_built
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, histories, physical_streams

LEASES = rc.source("leases", {"user": "string", "site": "string"})
ONLINE = LEASES.group_by("site").agg(n=rc.count(), speculate="eager")
BUSY = ONLINE.group_by("n").agg(sites=rc.count(), speculate="eager")


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()


class Checkpoint:
    """As much of a checkpoint as a recording asks for."""

    def __init__(self, last: int = -1, query: str | None = None) -> None:
        self.last, self.query = last, query

    def names(self, folder: str) -> list[str]:
        return [str(number) for number in range(self.last + 1)] if folder == "commits" else []

    def text(self, name: str) -> str | None:
        return json.dumps({"id": self.query}) if self.query is not None else None

    def put(self, name: str, text: str) -> None:
        raise AssertionError

    def remove(self, name: str) -> None:
        raise AssertionError


class Recorded:
    """A query that is played in this process, and recorded as a driver does it."""

    def __init__(self, plan: Node, folder: Path, edges: Any = "all", shards: int = 2, limit: Any = "1MB"):
        self.play, self.folder, self._how = Rehearsal([plan], shards), folder, (edges, limit)
        self.checkpoint = Checkpoint()
        note_built(self.play.plan)
        self.recorder = self.open()

    def open(self) -> MicroBatchRecorder:
        """The driver starts, or starts again after it was killed."""
        edges, limit = self._how
        recorder = open_recorder(self.folder, self.play.plan.owner, edges, limit, self.checkpoint)
        self.play.request = recorder.request
        return recorder

    def turn(self, inputs: dict[str, list[EventBatch]], killed: str = "never") -> None:
        """A micro-batch; the driver is killed with its tasks, or just before or after the step counts."""
        if killed == "tasks":
            self.play.turn(inputs, fails=True)
            self.recorder = self.open()
        self.play.turn(inputs)
        if killed == "before":
            self.recorder = self.open()
        self._commit()
        if killed == "after":
            self.recorder = self.open()
            self._commit()
        self.checkpoint.last += 1

    def _commit(self) -> None:
        number = self.checkpoint.last + 1
        self.checkpoint.query = "q"
        before = f"content {number - 1}" if number else None
        rows = empty(self.play.plan.roots[0].schema).payload
        self.recorder.commit(MicroBatch("q", number, rows, f"content {number}", before), 1)

    def read(self) -> Recording:
        return rc.read_recording(self.folder)


def leases(*events: tuple[str, str, int, int], cti: int | None = None) -> list[EventBatch]:
    rows: list[Any] = [rc.Insert({"user": user, "site": site}, vs, ve) for user, site, vs, ve in events]
    return [from_elements([*rows, *([] if cti is None else [rc.Cti(cti)])], LEASES.schema)]


def check_valid(recording: Recording) -> None:
    """The elements of every edge are a valid stream."""
    for edge in recording.edges:
        model = StreamModel()
        for element in recording.stream(edge).elements():
            assert (fault := model.fault(element)) is None, f"{recording.name_of(edge)}: {element} {fault}"
            model.take(element)


@given(st.data())
@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
def test_every_edge_is_as_the_local_engine_has_it(tmp_path_factory: Any, data: st.DataObject) -> None:
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    query = data.draw(plans()).build(s, t)
    names = list(sources_of(query.plan))
    streams = {name: data.draw(physical_streams(data.draw(histories(max_size=4)))) for name in names}
    folder, local = tmp_path_factory.mktemp("r"), rc.session(query)
    played = Recorded(query.plan, folder / "spark", shards=data.draw(st.integers(1, 3)))
    with rc.record(local, folder / "local", edges="all"):
        while any(streams.values()):
            inputs = dict[str, list[EventBatch]]()
            for name in names:
                size = data.draw(st.integers(0, 4))
                if now := streams[name][:size]:
                    streams[name] = streams[name][size:]
                    inputs[name] = [from_elements(now, s.schema)]
                    local.push(name, now)
            if inputs:
                played.turn(inputs, data.draw(st.sampled_from(["never", "tasks", "before", "after"])))
    found, expected = played.read(), rc.read_recording(folder / "local")
    assert found.manifest["ended"] is None
    assert [step["label"] for step in found.manifest["plan"]] == [
        step["label"] for step in expected.manifest["plan"]
    ]
    assert {*found.sources.values(), *found.queries.values()} <= {*found.edges}
    check_valid(found)
    for edge in found.edges:
        assert_equivalent(found.stream(edge).history(), expected.stream(edge).history())
    assert found.steps()["step"].to_pylist() == list(range(1, played.checkpoint.last + 2))


def test_a_step_has_its_edges_its_sources_and_its_numbers(tmp_path: Path) -> None:
    played = Recorded(BUSY.plan, tmp_path / "r")
    played.turn({"leases": leases(("ann", "Oslo", 1, 9), ("bob", "Rome", 3, 5), cti=2)})
    played.turn({"leases": leases(("kim", "Oslo", 3, 5))})
    recording = played.read()
    assert recording.steps()["source"].to_pylist() == ["leases", "leases"]
    assert len(recording.edges) == len(recording.manifest["plan"]) == 4
    assert {step: len(batch) for step, batch in recording.by_step("leases").items()} == {1: 3, 2: 1}
    assert recording.is_whole
    held = {step["label"]: step["state_rows"] for step in recording.manifest["plan"]}
    assert held[ONLINE.plan.label] > 0
    assert not list((tmp_path / "r" / PARTS).iterdir())


def test_the_oldest_micro_batches_go_and_are_counted(tmp_path: Path) -> None:
    played = Recorded(LEASES.plan, tmp_path / "r", limit="64KiB")
    for number in range(40):
        users = [(f"user {number}-{i}", "Oslo" * 10, number, number + 5) for i in range(20)]
        played.turn({"leases": leases(*users, cti=number)})
    recording = played.read()
    gone, kept = recording.manifest["gone"], recording.rows("leases")
    assert kept is not None
    assert gone["steps"] > 0
    assert gone["elements"]["0"] + len(kept) == 40 * 21
    assert gone["steps"] + len(recording.steps()) == 40
    assert sum(f.stat().st_size for f in (tmp_path / "r").rglob("*.arrows")) < 100_000


def test_a_micro_batch_that_is_too_large_is_left_out_and_said(tmp_path: Path) -> None:
    played = Recorded(LEASES.plan, tmp_path / "r", limit="64KiB")
    played.turn({"leases": leases(("ann", "Oslo", 1, 9))})
    played.turn({"leases": leases(*((f"user {i}", "x" * 100, 2, 9) for i in range(2000)), cti=3)})
    played.turn({"leases": leases(("bob", "Oslo", 4, 9))})
    recording = played.read()
    assert recording.steps()["step"].to_pylist() == [3]
    assert any("the first 2 steps (2,001 elements) are gone" in line for line in recording.describe_gaps())
    assert not list((tmp_path / "r" / PARTS).iterdir())


def test_what_goes_wrong_ends_the_recording_in_words(tmp_path: Path, caplog: Any) -> None:
    played = Recorded(BUSY.plan, tmp_path / "r")
    played.turn({"leases": leases(("ann", "Oslo", 1, 9))})
    shutil.rmtree(tmp_path / "r" / PARTS)
    played.turn({"leases": leases(("bob", "Oslo", 1, 9))})
    said = "2 of 2 tasks of micro-batch 1 left nothing there"
    assert said in caplog.text
    assert any(said in line for line in played.read().describe_gaps())
    with pytest.raises(RecensionError, match=r"the recording has ended: .*; name a new directory"):
        played.open()


def test_it_goes_on_with_its_own_query_only(tmp_path: Path) -> None:
    played = Recorded(BUSY.plan, tmp_path / "r")
    played.turn({"leases": leases(("ann", "Oslo", 1, 9))})
    with pytest.raises(RecensionError, match="it has the recording of another query; name a new"):
        Recorded(ONLINE.plan, tmp_path / "r")
    with pytest.raises(RecensionError, match="it was begun with other edges"):
        open_recorder(tmp_path / "r", played.play.plan.owner, "ends", "1MB", played.checkpoint)
    played.checkpoint.last = 7
    with pytest.raises(RecensionError, match="it ends with micro-batch 0, and the checkpoint with 7"):
        played.open()
    late = open_recorder(tmp_path / "late", played.play.plan.owner, "ends", "1MB", played.checkpoint)
    assert "begins after" in rc.read_recording(late.path).describe_gaps()[0]
    with pytest.raises(RecensionError, match=r"no edge 'lease' \(did you mean 'leases'\?\)"):
        open_recorder(tmp_path / "x", played.play.plan.owner, ["lease"], "1MB", played.checkpoint)
    with pytest.raises(RecensionError, match=r"only what rc\.spark\.stream gives can be recorded"):
        open_recorder(tmp_path / "x", None, "ends", "1MB", played.checkpoint)


def test_on_spark_and_for_the_inspector(spark: Any, tmp_path: Path) -> None:
    """Recorded, listened to, and looked at by its checkpoint; an answer can be explained."""
    expected = driver.write_inputs(tmp_path, files=2, size=60)
    listener = rc.spark.Listener(folder=tmp_path / "live")
    spark.streams.addListener(listener)
    try:
        query = driver.start(spark, tmp_path)
        query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    recording = rc.read_recording(tmp_path / "recording")
    assert len(recording.steps()) == 2
    assert_equivalent(recording.stream("query").history(), expected)
    assert spark.conf.get("spark.recension.record", None) is None

    shown = Shown("x", [("r", recording)])
    questions = Questions(shown, [lambda: recording], driver.query().plan)
    (answer,) = recording.queries.values()
    why = questions.why({"edge": f"0:{answer}", "elements": "0", "until": "1"})
    assert why["events"]
    first = next(iter_events(recording.stream("s").batch()))
    effect = questions.effect({"edge": "0:0", "elements": ",".join(map(str, first))})
    assert effect["edges"]

    live = rc.read_recording(tmp_path / "live" / str(query.id))
    assert [row["batch"] for row in live.manifest["numbers"]] == [0, 1]
    assert live.manifest["ended"] == "closed"
    told = {step["label"]: step["events_out"] for step in live.manifest["plan"]}
    assert told == {step["label"]: step["events_out"] for step in recording.manifest["plan"]}

    page = tmp_path / "page.html"
    assert main(["inspect", "--spark-checkpoint", str(tmp_path / "ck"), "--export", str(page)]) == 0
    assert "micro-batch 1 is done" in page.read_text()
    (tmp_path / "recording").rename(tmp_path / "elsewhere")
    with open_checkpoint(tmp_path / "ck", None) as opened:
        found = opened.read()
    assert found.names == ["query"]
    assert len(found.manifest["plan"]) == 4
    assert [(row["batch"], row["done"]) for row in found.manifest["numbers"]] == [(0, "yes"), (1, "yes")]
    assert found.manifest["numbers"][1]["source 0"] == "1 file: 0001.parquet"


def test_a_checkpoint_alone_shows_what_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offsets of Kafka and of something else; the last micro-batch is not done; nobody says whose it is."""
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id": "abc"}')
    for number, offset in enumerate((5, 12)):
        lines = [
            "v1",
            '{"batchTimestampMs": 1700000000000}',
            f'{{"leases": {{"0": {offset}, "1": 3}}}}',
            "77",
        ]
        (tmp_path / "offsets" / str(number)).write_text("\n".join(lines))
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    with open_checkpoint(tmp_path, None) as opened:
        found = opened.read()
        assert [row["source 0"] for row in found.manifest["numbers"]] == [
            "8 messages of leases",
            "7 messages of leases",
        ]
        assert [row["done"] for row in found.manifest["numbers"]] == ["yes", "no"]
        assert found.manifest["notes"][0] == "query abc: micro-batch 0 is done"
        assert "micro-batch 1 has begun, at 2023-11-14 22:13:20.000+00:00" in found.manifest["notes"][1]
        (tmp_path / "commits" / "1").write_text("v1\n{}")
        assert opened.read().manifest["notes"] == ["query abc: micro-batch 1 is done"]
    page = tmp_path / "page.html"
    assert main(["inspect", "--spark-checkpoint", str(tmp_path), "--export", str(page)]) == 0
    assert main(["inspect", "--spark-checkpoint", str(tmp_path / "commits")]) == 2
    assert "not a checkpoint of a query that has begun" in capsys.readouterr().err
