"""What a service finds changed when it starts again, and what it would never get out of, is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from confluent_kafka import KafkaError, KafkaException
from tests.runners.kafka.fake import FakeCluster, _cluster, open_service

import recension as rc
from recension.core.errors import RecensionError
from recension.runners.kafka import journal, notes
from recension.runners.kafka.client import Fetcher

__all__ = ["_cluster"]


def tell(cluster: FakeCluster, number: int, start: int = 0, **more: Any) -> None:
    for at in range(start, start + number):
        cluster.write("in", json.dumps({"at": at, "k": f"k{at}", **more}).encode())


def source() -> rc.Stream:
    return rc.source("s", {"k": "string"}, start="at")


def start(folder: Path, **more: Any) -> Any:
    return open_service(
        source(), folder, **{"inputs": {"s": "in"}, "outputs": "out", "snapshot_every": "1h", **more}
    )


def killed(folder: Path, **more: Any) -> None:
    """A service that has answered all there is, and then dies."""
    live = start(folder, **more)
    live.run("end")
    live._abandon()


def make(cluster: FakeCluster, *names: str) -> None:
    cluster.logs = {(name, 0): [] for name in names or ("in", "out")}
    cluster.sizes = [1000]


def test_messages_that_a_compaction_removed_after_they_were_answered(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make(cluster)
    tell(cluster, 12)
    killed(tmp_path)
    cluster.compacted = {("in", 0, at) for at in range(9)}
    with pytest.raises(
        RecensionError,
        match=r"topic in, partition 0: from offset 0 to 11 the topic has 3 of the 12 messages .* new folder",
    ):
        start(tmp_path)
    cluster.compacted = set()
    start(tmp_path)._abandon()
    cluster.logs["in", 0][4].body = b'{"at": 4, "k": "other"}'
    with pytest.raises(RecensionError, match="has other messages than those that the service has answered"):
        start(tmp_path)


def test_a_compaction_before_the_snapshot_is_none_of_its_concern(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make(cluster)
    tell(cluster, 12)
    start(tmp_path).close()
    with start(tmp_path) as live:
        live.run("end")
    cluster.compacted = {("in", 0, at) for at in range(9)}
    tell(cluster, 1, 12)
    with start(tmp_path) as live:
        live.run("end")
        assert len(live.session.history().to_events()) == 13


def test_a_log_of_an_earlier_version_opens(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no digests of its messages, and its state no ids."""
    make(cluster)
    tell(cluster, 3)

    def without_contents(facts: Any) -> str:
        dropped = ("contents", "ids", "written")
        return json.dumps({name: one for name, one in facts.items() if name not in dropped})

    with monkeypatch.context() as old:
        for module in (journal, notes):
            old.setattr(module, "json", SimpleNamespace(dumps=without_contents, loads=json.loads))
        killed(tmp_path)
    cluster.ids["in"] = "anew"
    with start(tmp_path) as live:
        assert len(live.session.history().to_events()) == 3


@pytest.mark.parametrize("topic", ["in", "out"])
def test_a_topic_that_was_deleted_and_made_anew(
    cluster: FakeCluster, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may well be longer than what was read of the old one."""
    make(cluster)
    tell(cluster, 3)
    start(tmp_path).close()
    live = start(tmp_path)
    cluster.ids[topic] = "anew"
    monkeypatch.setattr("recension.runners.kafka.service._LOOK", 0)
    with pytest.raises(RecensionError, match=rf"topic {topic} was deleted and made anew: its id is anew"):
        live.poll()
    with pytest.raises(RecensionError, match=rf"topic {topic} .* start with a new folder"):
        start(tmp_path)


def test_a_folder_from_a_backup_after_another_run_wrote(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster)
    tell(cluster, 3)
    start(tmp_path / "one").close()
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    for folder in ("one", "two"):
        with start(tmp_path / folder) as live:
            live.run("end")
    with start(tmp_path / "one"):  # it is the newest, although another run wrote last
        pass
    with pytest.raises(RecensionError, match=r"topic out: has batch 1 of this service"):
        start(tmp_path / "backup")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"outputs": "in"}, "topic in: 'query' would be written to a topic that this service reads"),
        (
            {"inputs": {"s": rc.kafka.InputTopic("in", dead_letters="in")}},
            "topic in: the dead letters of 's' would go to a topic that this service reads",
        ),
        (
            {"inputs": {"s": rc.kafka.InputTopic("in", dead_letters="out")}},
            "topic out: the dead letters of 's' would go to a topic that this service writes answers to",
        ),
        (
            {"outputs": rc.kafka.OutputTopic("out", dead_letters="in")},
            "topic in: the dead letters of 'query' would go to a topic that this service reads",
        ),
    ],
)
def test_a_service_does_not_read_what_it_writes(
    cluster: FakeCluster, tmp_path: Path, more: Mapping[str, Any], reason: str
) -> None:
    make(cluster)
    with pytest.raises(RecensionError, match=reason):
        start(tmp_path, **more)


def test_an_answer_that_is_too_long_names_its_row_or_goes_to_dead_letters(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make(cluster, "in", "out", "long")
    cluster.limits = {"out": 2_000, "long": 10_000}
    tell(cluster, 2)
    cluster.write("in", json.dumps({"at": 2, "k": "x" * 1_900}).encode())
    tell(cluster, 1, 3)
    with (
        pytest.raises(
            RecensionError,
            match=r"topic out: an answer is a message of \d+ bytes, and the topic takes 2000 with headers: "
            r"_kind='insert', _vs=2, _ve=3, k='xxx.*max.message.bytes or name dead_letters=",
        ),
        start(tmp_path / "raise") as live,
    ):
        live.run("end")
    topic = rc.kafka.OutputTopic("out", key="k", dead_letters="long")
    for _ in range(2):
        with start(tmp_path / "letters", outputs=topic) as live:
            live.run("end")
            assert live.counts["query"] == {"an answer that is too long for its topic": 1}
    assert len(cluster.read("out")) == 3
    (letter,) = cluster.read("long")
    assert json.loads(letter.body or b"")["k"] == "x" * 1_900
    assert dict(letter.header)["_topic"] == b"out"


def test_an_event_and_its_retractions_are_too_long_together(cluster: FakeCluster, tmp_path: Path) -> None:
    """The lifetime takes more room in a retraction: that must not part it from its insert."""
    make(cluster, "in", "out", "long")
    cluster.limits = {"out": 2_000}
    query = rc.source("s", {"k": "string"})
    for size in range(1_340, 1_520, 4):
        one = {"_vs": 1, "_ve": 2**60, "k": "x" * size}
        cluster.write("in", json.dumps({"_kind": "insert", **one}).encode())
        cluster.write("in", json.dumps({"_kind": "retract", "_new_ve": 2**59, **one}).encode())
    topic = rc.kafka.OutputTopic("out", dead_letters="long")
    with open_service(query, tmp_path, inputs={"s": "in"}, outputs=topic, batch_size=1) as live:
        live.run("end")
    kinds = [json.loads(message.body or b"")["_kind"] for message in cluster.read("out")]
    assert kinds.count("insert") == kinds.count("retract") > 0
    assert len(cluster.read("long")) == 2 * 45 - len(kinds) > 0


def test_a_letter_that_is_too_long_says_where_its_message_is(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, "in", "out", "letters")
    cluster.limits = {"letters": 1_500}
    cluster.write("in", b"{" + b"x" * 2_000)
    topic = rc.kafka.InputTopic("in", dead_letters="letters")
    with start(tmp_path, inputs={"s": topic}) as live:
        live.run("end")
        assert live.counts["s"] == {"a message that cannot be read": 1}
    (letter,) = cluster.read("letters")
    facts = dict(letter.header)
    assert letter.body is None
    assert (facts["_offset"], facts["_size"]) == (b"0", b"2001")


class _Waking:
    """A client of a broker that has just started: its first answers are that it is not ready."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        if self._errors:
            raise KafkaException(KafkaError(self._errors.pop()))
        return 3, 5


def test_a_broker_that_has_just_started_is_waited_for() -> None:
    fetcher = Fetcher.__new__(Fetcher)
    codes = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    fetcher._consumer = _Waking(*codes)
    assert fetcher.ends(("t", 0)) == (3, 5)
    fetcher._consumer = _Waking(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RecensionError, match="topic t, partition 0: "):
        fetcher.ends(("t", 0))
