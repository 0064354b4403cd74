"""What a service makes of messages, over topics in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from tests.runners.kafka.fake import Crash, FakeCluster, _cluster, open_service
from tests.runners.kafka.topics import headers_of

import recension as rc
from recension.core.errors import RecensionError

__all__ = ["_cluster"]


def tell(cluster: FakeCluster, topic: str, message: Any, partition: int = 0, **more: Any) -> None:
    body = message if message is None or isinstance(message, bytes) else json.dumps(message).encode()
    cluster.write(topic, body, partition, **more)


def make(cluster: FakeCluster, **topics: int) -> None:
    cluster.logs = {(name, p): [] for name, number in topics.items() for p in range(number)}


def events(live: Any, query: str | None = None) -> list[tuple[Any, ...]]:
    found = live.session.history(query).to_events()
    return [(e.vs, e.ve, *e.payload.values()) for e in found]


def test_columns_from_beside_the_value(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 1})
    tell(cluster, "in", {"n": 1}, name=b"ann", header=[("trace", b"x1")])
    tell(cluster, "in", {"n": 2}, name=b"bob")
    rows = rc.source("rows", {"who": "string", "trace": "string", "n": "int64"}, start="at")
    columns = {"who": "key", "at": "timestamp", "trace": "headers.trace"}
    topic = rc.kafka.InputTopic("in", columns=columns)
    with open_service(rows, tmp_path, inputs={"rows": topic}) as live:
        live.run("end")
        assert [event[2:] for event in events(live)] == [("ann", "x1", 1), ("bob", None, 2)]
        assert [int(event[0]) for event in events(live)] == [1_000_000, 1_001_000]


def test_a_column_that_no_message_has_is_refused_at_the_beginning(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make(cluster, **{"in": 1})
    tell(cluster, "in", {"at": 1, "nmae": "ann"})
    rows = rc.source("rows", {"name": "string"}, start="at")
    with (
        pytest.raises(RecensionError, match=r"no column name \(did you mean 'nmae'\?\)"),
        open_service(rows, tmp_path, inputs={"rows": "in"}) as live,
    ):
        live.run("end")
    make(cluster, **{"in": 1})
    tell(cluster, "in", {"at": 1, "name": "ann"})
    with open_service(rows, tmp_path / "new", inputs={"rows": "in"}) as live:
        live.run("end")
    tell(cluster, "in", {"at": 2, "more": 1})
    with open_service(rows, tmp_path / "new", inputs={"rows": "in"}) as live:
        live.run("end")
        assert events(live) == [(1, 2, "ann"), (2, 3, None)]


def test_a_column_of_arrivals_is_no_part_of_the_payload(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 1})
    tell(cluster, "in", {"at": 1, "name": "ann", "loaded_at": 7})
    rows = rc.source("rows", {"name": "string"}, start="at", arrival="loaded_at")
    with open_service(rows, tmp_path, inputs={"rows": "in"}) as live:
        live.run("end")
        assert events(live) == [(1, 2, "ann")]


def test_two_sources_of_one_topic_and_a_table(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 1, "out": 1})
    tell(cluster, "in", {"_kind": "insert", "_vs": 1, "_ve": 5, "site": "ral", "n": 2})
    tell(cluster, "in", {"_kind": "cti", "_vs": 3})
    jobs, counts = rc.source("jobs", {"site": "string"}), rc.source("counts", {"n": "int64"})
    session = rc.session(
        named=jobs.join(rc.table("sites", {"site": "string", "country": "string"}), on="site"), counts=counts
    )
    session.push("sites", pa.table({"site": ["ral"], "country": ["UK"]}))
    inputs = {"jobs": "in", "counts": "in"}
    with rc.kafka.service(
        session, "memory", inputs=inputs, outputs={"named": "out"}, folder=tmp_path
    ) as live:
        live.run("end")
        assert events(live, "named") == [(1, 5, "ral", "UK")]
        assert events(live, "counts") == [(1, 5, 2)]
    kinds = [json.loads(message.body or b"")["_kind"] for message in cluster.read("out")]
    assert kinds == ["insert", "cti"]


def test_an_idle_partition_by_the_clock_of_the_log(cluster: FakeCluster, tmp_path: Path) -> None:
    """Time passes while nothing comes; after a kill it passes in the same way again."""
    make(cluster, **{"in": 2, "out": 1})
    now = [1_000_000]
    source = rc.source("s", {"k": "string"}, partition="partition", order="offset", idle="5s")

    def start() -> Any:
        options = {"inputs": {"s": "in"}, "outputs": "out", "snapshot_every": "1h"}
        return open_service(source.agg(n=rc.count()), tmp_path, clock=lambda: now[0], **options)

    live = start()
    for partition in (0, 1):
        tell(cluster, "in", {"_kind": "insert", "_vs": 1, "_ve": 5, "k": "a"}, partition)
    tell(cluster, "in", {"_kind": "cti", "_vs": 9}, 0)
    live.run("end")
    assert events(live) == []
    now[0] += 6_000_000
    live.poll()
    assert events(live) == [(1, 5, 2)]
    live._abandon()
    live = start()
    assert events(live) == [(1, 5, 2)]
    tell(cluster, "in", {"_kind": "insert", "_vs": 2, "_ve": 5, "k": "late"}, 1)
    with pytest.raises(RecensionError, match=r"topic in, partition 1, offset 1: .*breaks an earlier cti"):
        live.run("end")


def test_what_is_due_by_the_clock_comes_though_no_message_comes(cluster: FakeCluster, tmp_path: Path) -> None:
    """The service ticks by itself; after a kill what had come is there, and time goes on from there."""
    make(cluster, **{"in": 1, "out": 1})
    now = [1_000_000]
    query = rc.source("s", {"k": "string"}).due(by="clock")

    def start() -> Any:
        options = {"inputs": {"s": "in"}, "outputs": "out", "snapshot_every": "1h"}
        return open_service(query, tmp_path, clock=lambda: now[0], **options)

    live = start()
    for start_at, k in ((1, "a"), (5_000_000, "b"), (9_000_000, "c")):
        tell(cluster, "in", {"_kind": "insert", "_vs": start_at, "_ve": 10**9, "k": k})
    live.run("end")
    assert [event[2] for event in events(live)] == ["a"]
    now[0] = 5_000_000
    assert live.poll() == 0
    assert [event[2] for event in events(live)] == ["a", "b"]
    live._abandon()
    now[0] = 2_000_000
    live = start()
    live.poll()
    assert [event[2] for event in events(live)] == ["a", "b"], "the clock of before counts"
    now[0] = 9_000_001
    live.poll()
    sent = [json.loads(message.body or b"")["k"] for message in cluster.read("out")]
    assert list(dict.fromkeys(sent)) == ["a", "b", "c"]
    live.close()


def test_a_log_that_was_cut_off_goes_on_and_a_damaged_one_is_refused(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make(cluster, **{"in": 1})
    source = rc.source("s", {"k": "string"}, start="at")
    live = open_service(source, tmp_path, inputs={"s": "in"}, batch_size=1)
    for at in range(3):
        tell(cluster, "in", {"at": at, "k": "a"})
    cluster.sizes = [1]
    live.run("end")
    live._abandon()
    (log,) = tmp_path.glob("log-*")
    whole = log.read_bytes()
    log.write_bytes(whole[:-7])
    live = open_service(source, tmp_path, inputs={"s": "in"})
    assert live.offsets == {"in": {0: 2}}
    live.run("end")
    assert len(events(live)) == 3
    live._abandon()
    log.write_bytes(whole[:40] + b"x" + whole[41:])
    with pytest.raises(RecensionError, match=r"log-0 is damaged at byte 0"):
        open_service(source, tmp_path, inputs={"s": "in"})


def test_refusals(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 3, "out": 1})
    one = rc.source("s", {"k": "string"})
    with pytest.raises(RecensionError, match=r"topic in: has 3 partitions, each a stream of its own"):
        open_service(one, tmp_path, inputs={"s": "in"})
    with pytest.raises(RecensionError, match=r"no source 't'"):
        open_service(one, tmp_path, inputs={"t": "in"})
    outputs = rc.kafka.OutputTopic("out", key="j")
    with pytest.raises(RecensionError, match=r"topic out: key='j' is no column of 'query'; there are k"):
        open_service(one, tmp_path, inputs={"s": "in"}, outputs=outputs)
    with pytest.raises(RecensionError, match="start is 'earliest' or 'latest'"):
        rc.kafka.InputTopic("in", start="first")  # type: ignore[arg-type]
    with pytest.raises(RecensionError, match="give it a session first"):
        rc.kafka.service(one, "memory", inputs={"s": "in"}, folder=tmp_path)  # type: ignore[arg-type]
    two = rc.source("s", {"k": "string"}, partition="partition", order="offset")
    live = open_service(two, tmp_path / "closed", inputs={"s": "in"})
    live.close()
    with pytest.raises(RecensionError, match="the service is closed"):
        live.poll()


def test_ctis_stand_in_every_partition_of_the_output(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 1, "out": 3})
    for k in "abcdef":
        tell(cluster, "in", {"_kind": "insert", "_vs": 1, "_ve": 5, "k": k})
    tell(cluster, "in", {"_kind": "cti", "_vs": 7})
    topic = rc.kafka.OutputTopic("out", key="k")
    with open_service(rc.source("s", {"k": "string"}), tmp_path, inputs={"s": "in"}, outputs=topic) as live:
        live.run("end")
    last = [cluster.logs["out", partition][-1] for partition in range(3)]
    assert [json.loads(message.body or b"")["_kind"] for message in last] == ["cti"] * 3
    assert len({headers_of(message)["_seq"] for message in last}) == 1
    keys = [message.name for message in cluster.read("out") if message.name is not None]
    assert sorted(keys) == [json.dumps({"k": k}, separators=(",", ":")).encode() for k in "abcdef"]


def test_a_crash_while_it_is_made_leaves_nothing_held(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, **{"in": 1})
    source = rc.source("s", {"k": "string"}, start="at")
    for steps in range(3):
        cluster.left = steps
        with pytest.raises(Crash):
            open_service(source, tmp_path, inputs={"s": "in"})
    cluster.left = None
    open_service(source, tmp_path, inputs={"s": "in"}).close()
