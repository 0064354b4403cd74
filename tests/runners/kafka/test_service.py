"""A service over a real broker: killed, started again, and read back; bad messages; topics that grow."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from scripts.kafka_broker import Broker
from tests.runners.kafka.serving import OUTPUT, open_service, query
from tests.runners.kafka.topics import headers_of, history_of, new_name, read_all, without_repeats, write

import recension as rc
from recension.testing import assert_equivalent

ROOT = Path(__file__).parents[3]


def stream_of(partition: int, size: int) -> list[dict[str, Any]]:
    """The messages of one partition: inserts, retractions and CTIs, each partition at a pace of its own."""
    luck, t, live, made = random.Random(partition), 0, list[dict[str, Any]](), list[dict[str, Any]]()
    for i in range(size):
        t += luck.randrange(partition + 2)
        if i % 5 == 4:
            made.append({"_kind": "cti", "_vs": t})
        elif live and luck.random() < 0.3 and (one := live.pop())["_ve"] > t:
            made.append(one | {"_kind": "retract", "_new_ve": max(t, one["_vs"])})
        else:
            row = {"k": luck.choice("abcd"), "v": luck.randrange(10)}
            live.append({"_kind": "insert", "_vs": t, "_ve": t + luck.randrange(1, 20), **row})
            made.append(live[-1])
    return made


def answer_to(messages: dict[int, list[dict[str, Any]]]) -> rc.History:
    """What the local engine says of the same elements, by partition."""
    table = [
        {"_new_ve": None, "_ve": None, "k": None, "v": None, **one, "partition": p, "offset": i}
        for p, part in messages.items()
        for i, one in enumerate(part)
    ]
    return rc.run(query(), {"feed": pa.Table.from_pylist(table)}).history()


def test_killed_and_started_again_it_has_the_same_history(broker: Broker, tmp_path: Path) -> None:
    topic, out = broker.create_topic(new_name("feed"), 3), broker.create_topic(new_name("answers"), 2)
    messages = {partition: stream_of(partition, 400) for partition in range(3)}
    command = [sys.executable, "-m", "tests.runners.kafka.serving", broker.address, topic, out, str(tmp_path)]
    for part in range(3):
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        for partition, all_of_it in messages.items():
            write(broker.address, topic, all_of_it[part * 100 : part * 100 + 100], partition)
        time.sleep(0.4)
        child.send_signal(signal.SIGKILL)
        child.wait()
    for partition, all_of_it in messages.items():
        write(broker.address, topic, all_of_it[300:], partition)
    with open_service(
        broker.address, topic, out, str(tmp_path), clock=lambda: time.time_ns() // 1000
    ) as live:
        live.run("end")
        expected = answer_to(messages)
        assert live.lag() == {topic: 0}
        assert_equivalent(live.session.history(), expected)
    sent = read_all(broker.address, out)
    assert {headers_of(message)["_run"] for message in sent} == {live.run_id}
    assert_equivalent(history_of(without_repeats(sent), OUTPUT), expected)
    again = rc.source("answers", OUTPUT, partition="partition", order="offset")
    with rc.kafka.service(
        rc.session(again), broker.address, inputs={"answers": out}, folder=tmp_path / "reader"
    ) as reader:
        reader.run("end")
        assert_equivalent(reader.session.history(), expected)


def test_bad_messages_by_the_policy_of_the_source(broker: Broker, tmp_path: Path) -> None:
    topic, dead = broker.create_topic(new_name("rows"), 1), broker.create_topic(new_name("dead"), 1)
    misfit = {"at": 4, "who": "eve", "n": "x"}
    good = [{"at": 3, "who": "ann", "n": 1}, {"at": 5, "who": "bob", "n": 2}]
    write(broker.address, topic, [good[0], b"{", misfit, None, good[1]])

    def open_over(folder: str, policy: Any = "raise", dead_letters: str | None = None) -> rc.kafka.Service:
        rows = rc.source("rows", {"who": "string", "n": "int64"}, start="at", on_violation=policy)
        read = rc.kafka.InputTopic(topic, dead_letters=dead_letters)
        return rc.kafka.service(
            rc.session(rows), broker.address, inputs={"rows": read}, folder=tmp_path / folder
        )

    with (
        pytest.raises(rc.StreamError, match=rf"^topic {topic}, partition 0, offset 1: .*JSON"),
        open_over("raise") as live,
    ):
        live.run("end")
    with open_over("raise", dead_letters=dead) as live:
        live.run("end")
        assert [e.payload["who"] for e in live.session.history().to_events()] == ["ann", "bob"]
    with open_over("drop", policy="drop") as live:
        live.run("end")
        assert live.counts["rows"] == {"a message that cannot be read": 2, "a message without a value": 1}
    letters = read_all(broker.address, dead)
    assert [message.value() for message in letters] == [
        b"{",
        json.dumps(misfit).encode(),
    ]
    facts = [headers_of(message) for message in letters]
    places = [(one["_topic"], one["_partition"], one["_offset"]) for one in facts]
    assert places == [(topic, "0", "1"), (topic, "0", "2")]
    assert "column n" in facts[1]["_error"]


def test_a_topic_that_grows_is_read_whole(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recension.runners.kafka.service._LOOK", 0)
    topic, out = broker.create_topic(new_name("grows"), 1), broker.create_topic(new_name("answers"), 1)
    first = stream_of(0, 30)
    write(broker.address, topic, first)
    with open_service(broker.address, topic, out, str(tmp_path)) as live:
        live.run("end")
        broker.grow_topic(topic, 2)
        end = time.monotonic() + 30
        while len(live.offsets[topic]) < 2 and time.monotonic() < end:
            live.poll()
        # What a new partition sends is judged by the CTI that the others have reached.
        later = [{"_kind": "insert", "_vs": 1000 + i, "_ve": 1005 + i, "k": "a", "v": i} for i in range(20)]
        write(broker.address, topic, later, 1)
        live.run("end")
        assert_equivalent(live.session.history(), answer_to({0: first, 1: later}))


def test_what_the_broker_has_no_longer_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic, out = broker.create_topic(new_name("gone"), 1), broker.create_topic(new_name("answers"), 1)
    write(broker.address, topic, stream_of(0, 20))
    with open_service(broker.address, topic, out, str(tmp_path)) as live:
        live.run("end")
        with pytest.raises(rc.RecensionError, match="another service works there"):
            open_service(broker.address, topic, out, str(tmp_path))
    shutil.copytree(tmp_path, tmp_path / "backup")
    write(broker.address, topic, [{"_kind": "insert", "_vs": 1000, "_ve": 1001, "k": "a", "v": 1}])
    with open_service(broker.address, topic, out, str(tmp_path)) as live:
        live.run("end")
    with open_service(broker.address, topic, out, str(tmp_path / "another")) as live:
        live.run("end")  # another run wrote last
    open_service(broker.address, topic, out, str(tmp_path)).close()
    with pytest.raises(
        rc.RecensionError, match=rf"topic {out}: has batch \d+ of this service, and the folder"
    ):
        open_service(broker.address, topic, out, str(tmp_path / "backup"))
    other = broker.create_topic(new_name("other"), 1)
    with pytest.raises(rc.RecensionError, match=rf"'feed' reads the topic '{topic}', not '{other}'"):
        open_service(broker.address, other, out, str(tmp_path))
    with pytest.raises(rc.RecensionError, match=r"no topic 'nothere'"):
        open_service(broker.address, "nothere", out, str(tmp_path / "new"))


def test_a_megabyte_fits_as_far_as_the_topics_say(broker: Broker, tmp_path: Path) -> None:
    """The client's own limit is lower than the topic's."""
    names = ("rows", "answers", "dead")
    topic, out, dead = (broker.create_topic(new_name(name), 1) for name in names)
    big = {"at": 1, "who": "x" * 1_030_000}
    settings = {"bootstrap.servers": broker.address, "message.max.bytes": 2_000_000}
    producer = Producer(settings)
    for value in (json.dumps(big).encode(), b"{" + b"y" * 1_030_000, b'{"at": 2, "who": "ann"}'):
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0

    def serve() -> None:
        read = rc.kafka.InputTopic(topic, dead_letters=dead)
        rows = rc.session(rc.source("rows", {"who": "string"}, start="at"))
        with rc.kafka.service(
            rows, broker.address, inputs={"rows": read}, outputs=out, folder=tmp_path
        ) as live:
            live.run("end")

    serve()
    assert [len(message.value()) > 1_000_000 for message in read_all(broker.address, out)] == [True, False]
    assert [len(message.value()) for message in read_all(broker.address, dead)] == [1_030_001]
    # The same names, and as many messages: but other topics.
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic])[topic].result()
    end = time.monotonic() + 30
    while topic in admin.list_topics(timeout=30).topics and time.monotonic() < end:
        time.sleep(0.1)
    broker.create_topic(topic, 1)
    write(broker.address, topic, [{"at": at, "who": "bob"} for at in range(5)])
    with pytest.raises(rc.RecensionError, match=rf"^topic {topic} was deleted and made anew"):
        serve()
