"""Orders that are not shipped within two days: alerts that come when they are due, and may be withdrawn.

A shipment may be told of late. So an alert is raised as soon as its two days are over by the orders that have
come, never before; and if a shipment in time turns up afterwards, the alert is withdrawn.

    python examples/deadlines.py FOLDER [MASTER]

reads the Parquet files of FOLDER/orders and FOLDER/shipments on Spark, a file of each in a micro-batch, and
keeps the alerts that hold in FOLDER/alerts, and how they came and went in FOLDER/changes. Started again, it
goes on where it was, whatever had killed it. Without a FOLDER it makes six days of orders and shipments, and
prints how the alerts came and went.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc

FIRST = datetime(2026, 3, 2, tzinfo=UTC)
DAY = timedelta(days=1)

orders = rc.source("orders", {"order": "string"}, start="at")
shipments = rc.source("shipments", {"order": "string"}, start="at")

# What is shipped stays so. From its deadline on an order is late for two days, unless it is shipped.
shipped = shipments.set_duration(rc.FOREVER)
late = orders.set_duration("2d").shift("2d").join(shipped, on="order", how="anti")
alerts = late.due(by=orders, ahead="7d")


def days() -> list[dict[str, pa.Table]]:
    """What is told on each of six days. Order b1 is shipped in time, which is told two days later."""
    told = [
        ({"a1": 0.1, "a2": 0.2}, {}),
        ({"b1": 1.1, "b2": 1.2}, {"a1": 1.5}),
        ({"c1": 2.5}, {"b2": 2.2}),
        ({"d1": 3.6, "year": 3650.0}, {"d1": 3.7}),
        ({"e1": 4.5}, {"c1": 4.1}),
        ({"f1": 5.5}, {"b1": 2.4, "e1": 5.1}),
    ]
    return [{"orders": _table(ordered), "shipments": _table(shipped)} for ordered, shipped in told]


def _table(rows: dict[str, float]) -> pa.Table:
    at = pa.array([FIRST + day * DAY for day in rows.values()], pa.timestamp("us", "UTC"))
    return pa.table({"order": pa.array(rows, pa.string()), "at": at})


def write_days(folder: Path) -> None:
    """A file of each input for each day."""
    for number, inputs in enumerate(days()):
        for name, table in inputs.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            file = folder / name / f"{number:04}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_000_000 + number, 1_000_000 + number))  # Spark takes files by their age


def start(spark: Any, folder: Path) -> Any:
    """Start the query, or go on with it; it ends when all files are read."""
    inputs = {name: folder / name for name in ("orders", "shipments")}
    answers = rc.spark.stream(spark, alerts, inputs, files_per_batch=1, shards=2)
    return rc.spark.write(
        answers,
        changelog=folder / "changes",
        history=folder / "alerts",
        checkpoint=folder / "checkpoint",
        trigger={"availableNow": True},
    )


def show_locally() -> None:
    """The same on the local engine, day by day."""
    session = rc.session(alerts)
    for number, inputs in enumerate(days(), 1):
        for name in ("shipments", "orders"):
            session.push(name, inputs[name])
        for element in session.read().elements():
            print(f"day {number}: {element}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        show_locally()
    else:
        start(rc.spark.session(*sys.argv[2:3]), Path(sys.argv[1])).awaitTermination()
