"""Orders and shipments: from two tables of a database to a lake that people ask in SQL.

A shop's database has two tables. Debezium sends every change of them to Kafka, a topic each, and the topics
do not wait for each other. Two queries follow them into Delta:

    status      every order with its shipment, as a table of type 2: valid_from, valid_to, is_current
    delivered   how many orders were delivered each day, and what they are worth, by region

The driver is killed on the way and started again. In the end both tables are compared with a batch over the
whole log, and asked in Spark SQL and in DuckDB.

    make lake                                or: python -m examples.lake [NUMBER OF ORDERS]

It fetches Kafka and Delta (`scripts/kafka_jars.py`, `scripts/lake_jars.py`), and starts a broker of its own
on this machine. The shop is made up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer
from scripts import kafka_jars, lake_jars
from scripts.kafka_broker import running_broker

import recension as rc
from recension import col
from recension.core.difference import difference

ORDERS = 300
PARTITIONS = 2
START = 1_709_251_200_000  # 1 March 2024, in milliseconds
HOUR = 3_600_000

# The tables of the database, as Debezium tells of them.
orders = rc.debezium(
    "orders", {"order": "int64", "region": "string", "amount": "int64", "state": "string"}, key="order"
)
shipments = rc.debezium(
    "shipments", {"parcel": "int64", "order": "int64", "carrier": "string", "stage": "string"}, key="parcel"
)
FEEDS = {"orders": orders, "shipments": shipments}

# Orders, with nulls until something is shipped; revised when a topic catches up with the other.
status = orders.stream.join(shipments.stream, on="order", how="left")
arrivals = shipments.stream.where(col("stage") == "delivered").to_points()
delivered = (
    orders.stream.join(arrivals, on="order")
    .group_by("region")
    .tumbling("1d")
    .agg(orders=rc.count(), revenue=rc.sum("amount"), speculate="eager")
)
QUERIES = {"status": status, "delivered": delivered}

# Without deletion vectors, so that the Parquet files that the log lists are the table for every reader.
TABLE = "USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"

# What the analysts ask: the same words in Spark SQL and in DuckDB.
QUESTIONS = {
    "under way now": """
        SELECT region, state, stage, COUNT(*) AS orders, SUM(amount) AS amount
        FROM status WHERE is_current AND state <> 'cancelled' AND (stage IS NULL OR stage <> 'delivered')
        GROUP BY region, state, stage ORDER BY region, state, stage""",
    "as it was on 3 March at noon": """
        SELECT state, COUNT(*) AS orders, SUM(amount) AS amount FROM status
        WHERE valid_from <= TIMESTAMP '2024-03-03 12:00:00'
        AND (valid_to IS NULL OR valid_to > TIMESTAMP '2024-03-03 12:00:00')
        GROUP BY state ORDER BY state""",
    "delivered by region": """
        SELECT region, SUM(orders) AS orders, SUM(revenue) AS revenue, COUNT(*) AS days
        FROM delivered GROUP BY region ORDER BY region""",
}


def changes(number: int, seed: int = 21) -> Iterator[tuple[int, str, int, dict[str, Any] | None, Any]]:
    """When, in which table, of which key, and the row before and after."""
    luck = random.Random(seed)
    for order in range(1, number + 1):
        at = START + luck.randrange(5 * 24 * HOUR)
        row: dict[str, Any] = {"order": order, "region": luck.choice(["north", "south", "west"])}
        row |= {"amount": luck.randrange(5, 200), "state": "new"}
        yield at, "orders", order, None, row
        at += luck.randrange(HOUR, 9 * HOUR)
        if luck.random() < 0.1:
            yield at, "orders", order, row, row | {"state": "cancelled"}
            continue
        paid = row | {"state": "paid", "amount": row["amount"] - luck.choice([0, 0, 0, 5])}
        yield at, "orders", order, row, paid
        parcel = {"parcel": 10_000 + order, "order": order, "carrier": luck.choice(["bike", "van"])}
        before = None
        for stage in ("packed", "sent", "delivered")[: luck.choice([0, 1, 2, 3, 3, 3])]:
            at += luck.randrange(HOUR, 20 * HOUR)
            after = parcel | {"stage": stage}
            yield at, "shipments", 10_000 + order, before, after
            before = after
        if before and luck.random() < 0.05:  # a parcel that was entered by mistake
            yield at + HOUR, "shipments", 10_000 + order, before, None


def envelopes(number: int) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """The log of each table, as Debezium sends it, with the key of each message."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {name: [] for name in FEEDS}
    for lsn, (at, table, key, before, after) in enumerate(sorted(changes(number), key=lambda c: c[0])):
        op = "c" if before is None else "d" if after is None else "u"
        message = {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": at}}
        found[table].append((key, message))
    return found


def send(servers: str, messages: dict[str, list[tuple[int, dict[str, Any]]]]) -> None:
    """Put messages into their topics: those of a key in one partition, in their order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for topic, log in messages.items():
        for key, message in log:
            value = json.dumps({"payload": message})
            producer.produce(topic, value, key=str(key), partition=key % PARTITIONS)
            producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} messages did not arrive at the broker")


def session() -> Any:
    """A session with Kafka and Delta."""
    found = [*kafka_jars.fetch("connector"), *lake_jars.fetch("delta")]
    settings = {
        "spark.jars": ",".join(map(str, found)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        "spark.ui.showConsoleProgress": "false",
    }
    return rc.spark.session("local[2,4]", "lake", **settings)


def follow(folder: Path, servers: str) -> None:
    """The driver: follow both topics into both tables until all that is there has been read."""
    spark = session()
    running = []
    for name, query in QUERIES.items():
        inputs = {
            topic: rc.spark.read_kafka(
                spark, feed.stream, servers, topic, options={"maxOffsetsPerTrigger": "150"}
            )
            for topic, feed in FEEDS.items()
        }
        answers = rc.spark.stream(
            spark, query, inputs, shards=2, watermark={"orders": "2d", "shipments": "2d"}
        )
        make_table(spark, folder / name, answers)
        running.append(
            rc.spark.write_history(
                answers,
                f"delta:{folder / name}",
                checkpoint=folder / f"{name}-checkpoint",
                scd2=True,
                trigger={"availableNow": True},
            )
        )
    for query in running:
        query.awaitTermination()


def make_table(spark: Any, path: Path, answers: Any) -> None:
    """The table before there is a row, because we want it without deletion vectors."""
    hidden = ("_kind", "_vs", "_ve", "_new_ve", "_count", "_batch", "_seq")
    payload = [f"`{f.name}` {f.dataType.simpleString()}" for f in answers.schema if f.name not in hidden]
    columns = [
        "valid_from timestamp",
        "valid_to timestamp",
        *payload,
        "is_current boolean",
        "_ordinal bigint",
    ]
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({', '.join(columns)}) {TABLE}")


def start(folder: Path, servers: str) -> subprocess.Popen[bytes]:
    """The driver as a process, with all that it starts in a group of its own."""
    command = [sys.executable, "-m", "examples.lake", "follow", str(folder), servers]
    return subprocess.Popen(command, start_new_session=True)


def commits(folder: Path) -> int:
    """How many commits both tables have."""
    return len(list(folder.glob("*/_delta_log/*.json")))


def kill_on_the_way(driver: subprocess.Popen[bytes], folder: Path) -> None:
    """SIGKILL, once each table was made and some micro-batches are in: nobody is left to tidy up."""
    while commits(folder) < 2 * len(QUERIES) and driver.poll() is None:
        time.sleep(0.05)
    time.sleep(random.uniform(0, 1))
    if driver.poll() is not None:
        raise SystemExit("the driver ended before it could be killed")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    print(f"the driver was killed after {commits(folder)} commits", flush=True)


def live_files(table: Path) -> list[str]:
    """The files of a table's last version, by its log. DuckDB's extension `delta` does the same."""
    found: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        found -= {action["remove"]["path"] for action in actions if "remove" in action}
        found |= {action["add"]["path"] for action in actions if "add" in action}
    return [str(table / name) for name in sorted(found)]


def ask(spark: Any, folder: Path) -> int:
    """Put every question to both engines; gives how many of them answer differently."""
    duck = duckdb.connect()
    for name in QUERIES:
        spark.read.format("delta").load(str(folder / name)).createOrReplaceTempView(name)
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({live_files(folder / name)})")
    different = 0
    for title, question in QUESTIONS.items():
        answer = spark.sql(question)
        print(f"\n{title}")
        answer.show(50, truncate=False)
        rows = [tuple(row) for row in answer.collect()]
        different += rows != duck.execute(question).fetchall()
    return different


def compare(spark: Any, folder: Path, log: dict[str, list[tuple[int, dict[str, Any]]]]) -> tuple[int, int]:
    """How many events both tables lack, and have too much, against a batch over the whole log."""
    inputs = {
        name: spark.createDataFrame(feed.rows([message for _, message in log[name]]))
        for name, feed in FEEDS.items()
    }
    missing = extra = 0
    for name, query in QUERIES.items():
        table = rc.spark.read_history(spark, f"delta:{folder / name}").toArrow()
        batch = rc.spark.batch(spark, query, inputs).toArrow()
        apart = difference(rc.History.from_arrow(table), rc.History.from_arrow(batch))
        missing, extra = missing + len(apart.missing), extra + len(apart.unexpected)
        print(f"{name}: {table.num_rows:,} rows; a batch over the log has {batch.num_rows:,}")
    return missing, extra


def main(number: int) -> int:
    """The whole story; gives the exit code."""
    kafka_jars.fetch("broker")
    log = envelopes(number)
    with tempfile.TemporaryDirectory() as place, running_broker(Path(place) / "kafka") as broker:
        folder = Path(place) / "lake"
        for topic in FEEDS:
            broker.create_topic(topic, PARTITIONS)
        # Shipments are ahead of the orders that they are of.
        parts = {"orders": len(log["orders"]) // 2, "shipments": 3 * len(log["shipments"]) // 4}
        send(broker.address, {topic: log[topic][:until] for topic, until in parts.items()})
        kill_on_the_way(start(folder, broker.address), folder)
        send(broker.address, {topic: log[topic][until:] for topic, until in parts.items()})
        if code := start(folder, broker.address).wait():
            raise SystemExit(f"the driver ended with code {code}")
        spark = session()
        different = ask(spark, folder)
        missing, extra = compare(spark, folder, log)
        spark.stop()
    if different:
        print(f"{different} of {len(QUESTIONS)} questions have other answers in DuckDB")
    print(f"{missing} missing, {extra} extra")
    return 1 if missing or extra or different else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ORDERS))
