"""Debezium's topics on Spark: the same rows as the service without Spark reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from scripts.kafka_broker import Broker
from tests.runners.kafka.test_debezium import SCHEMA, fill, write_log
from tests.runners.kafka.topics import new_name
from tests.runners.test_change_data_capture import Database, contents

import recension as rc


def test_a_table_in_a_topic(spark: Any, broker: Broker, tmp_path: Path) -> None:
    database = Database("eu", random.Random(5))
    fill(database)
    topic = broker.create_topic(new_name("orders"), 2)
    write_log(broker.address, topic, database, wraps=True)
    orders = rc.debezium("orders", SCHEMA | {"note": "string"}, key=["shard", "id"], optional="note")
    given = rc.spark.read_kafka(spark, orders.stream, broker.address, topic)
    answers = rc.spark.stream(spark, orders.stream, {"orders": given}, shards=2)
    path, checkpoint = tmp_path / "history", tmp_path / "checkpoint"
    query = rc.spark.write_history(answers, path, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    found = rc.spark.read_history(spark, path).where("_ve is null").toArrow().to_pylist()
    assert contents(found) == contents(database.rows.values())
