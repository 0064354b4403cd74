"""Debezium's topics as keyed sources: one topic a table, tombstones, snapshots, columns that are added."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from scripts.kafka_broker import Broker
from tests.runners.kafka.topics import new_name, write
from tests.runners.test_change_data_capture import Database, contents

import recension as rc

SCHEMA = {"shard": "string", "id": "int64", "state": "string", "amount": "float64"}


def write_log(address: str, topic: str, database: Database, wraps: bool) -> None:
    """The log as Debezium writes it: the messages of a key in one partition, a tombstone after a delete."""
    parts: dict[int, list[Any]] = {0: [], 1: []}
    for change in database.log:
        change = change | {"ts_ms": 5, "transaction": None}
        before, after = change["before"], change["after"]
        if before and after and before["id"] != after["id"]:
            # It deletes the old key and creates the new one.
            gone = change | {"op": "d", "after": None}
            parts[before["id"] % 2] += [_wrapped(gone, wraps), None]
            change = change | {"op": "c", "before": None}
        home = parts[(after or before)["id"] % 2]
        home += [_wrapped(change, wraps), *([None] if change["op"] == "d" else [])]
    for partition, messages in parts.items():
        write(address, topic, messages, partition)


def _wrapped(change: dict[str, Any], wraps: bool) -> dict[str, Any]:
    return {"schema": {"type": "struct"}, "payload": change} if wraps else change


def fill(database: Database) -> None:
    """A snapshot of some rows, then changes."""
    for _ in range(3):
        database.insert()
        database.log[-1]["op"] = "r"
    database.work(40)


@pytest.mark.parametrize("wraps", [False, True])
def test_two_tables_in_two_topics(broker: Broker, tmp_path: Path, wraps: bool) -> None:
    databases = {name: Database(name, random.Random(3)) for name in ("orders", "bills")}
    feeds = {name: rc.debezium(name, SCHEMA, key=["shard", "id"]) for name in databases}
    topics = {name: broker.create_topic(new_name(name), 2) for name in databases}
    for name, database in databases.items():
        fill(database)
        write_log(broker.address, topics[name], database, wraps)
    session = rc.session(orders=feeds["orders"].stream, bills=feeds["bills"].stream)
    with rc.kafka.service(session, broker.address, inputs=topics, folder=tmp_path, batch_size=7) as live:
        live.run("end")
        for name, database in databases.items():
            now = [e.payload for e in live.session.history(name).to_events() if e.ve == rc.FOREVER]
            assert contents(now) == contents(database.rows.values())
        deletes = sum(change["op"] == "d" for change in databases["orders"].log)
        assert live.counts["orders"]["a message without a value"] >= deletes > 0


def test_a_column_that_is_added(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(new_name("people"), 1)

    def change(op: str, after: dict[str, Any], lsn: int) -> dict[str, Any]:
        return {"op": op, "before": None, "after": after, "source": {"lsn": lsn, "ts_ms": lsn}}

    first = change("r", {"id": 1, "name": "ann"}, 1)
    second = change("c", {"id": 2, "name": "bob", "mail": "b@x", "age": 7}, 2)
    write(broker.address, topic, [first, second])
    schema = {"id": "int64", "name": "string", "mail": "string"}
    people = rc.debezium("people", schema, key="id", optional="mail")
    with rc.kafka.service(
        rc.session(people.stream), broker.address, inputs={"people": topic}, folder=tmp_path / "added"
    ) as live:
        live.run("end")
        mails = {e.payload["name"]: e.payload["mail"] for e in live.session.history().to_events()}
        assert mails == {"ann": None, "bob": "b@x"}
    strict = rc.debezium("people", schema, key="id")
    reason = rf"topic {topic}, partition 0, offset 0: no column mail; .*; if it was added later, .* optional="
    with (
        pytest.raises(rc.StreamError, match=reason),
        rc.kafka.service(
            rc.session(strict.stream), broker.address, inputs={"people": topic}, folder=tmp_path / "strict"
        ) as live,
    ):
        live.run("end")
