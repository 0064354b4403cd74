"""Alerts that come when they are due: on the local engine, and on Spark with a kill in the middle."""

from __future__ import annotations

import runpy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.stream.processes import Program

import recension as rc

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "deadlines.py"))
DAYS: list[dict[str, pa.Table]] = EXAMPLE["days"]()
TWO_DAYS = timedelta(days=2)


def alerts_after(days: int) -> dict[str, datetime]:
    """By hand: the orders whose two days are over, by the last order that is near the others."""
    orders, shipments = dict[str, datetime](), dict[str, datetime]()
    for inputs in DAYS[:days]:
        orders |= _rows(inputs["orders"])
        shipments |= _rows(inputs["shipments"])
    now = max(at for order, at in orders.items() if order != "year")
    late = {order: at + TWO_DAYS for order, at in orders.items() if at + TWO_DAYS <= now}
    return {o: at for o, at in late.items() if o not in shipments or shipments[o] > at}


def _rows(table: pa.Table) -> dict[str, datetime]:
    return {row["order"]: row["at"] for row in table.to_pylist()}


def test_every_day_the_alerts_are_those_that_are_due() -> None:
    session = rc.session(EXAMPLE["alerts"])
    for number, inputs in enumerate(DAYS, 1):
        for name, table in inputs.items():
            session.push(name, table)
        events = session.history().to_arrow().to_pylist()
        assert {row["order"]: row["_vs"] for row in events} == alerts_after(number)
    assert "b1" in alerts_after(5)
    assert "b1" not in alerts_after(6), "its shipment was in time after all"


def _changes(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """By micro-batch, what Spark has written."""
    files = sorted((folder / "changes").rglob("*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    found: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["_batch"], row["_seq"])):
        found.setdefault(row["_batch"], []).append(row)
    return found


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_on_spark_with_a_kill_in_the_middle(tmp_path: Path) -> None:
    EXAMPLE["write_days"](tmp_path)
    commits = tmp_path / "checkpoint" / "commits"

    def run() -> Program:
        return Program("examples.deadlines", str(tmp_path), "local[2,4]", log=tmp_path / "words.txt")

    program = run()
    program.wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= 3)
    program.kill()
    assert len(list(commits.glob("[0-9]*"))) < len(DAYS), "it was killed in the middle"
    run().finish()
    there: dict[str, datetime] = {}
    changes = _changes(tmp_path)
    for number in range(len(DAYS)):
        for row in changes.get(number, []):
            if row["_kind"] == "insert":
                there[row["order"]] = row["_vs"]
            elif row["_kind"] == "retract":
                assert there.pop(row["order"]) == row["_vs"]
        assert there == alerts_after(number + 1), f"micro-batch {number}"
    assert any(row["_kind"] == "retract" and row["order"] == "b1" for row in changes[5])


def test_a_batch_job_has_all_alerts_that_hold(spark: Any) -> None:
    """There everything is due."""
    given = {name: pa.concat_tables([day[name] for day in DAYS]) for name in ("orders", "shipments")}
    frames = {name: spark.createDataFrame(table.to_pandas()) for name, table in given.items()}
    rows = rc.spark.batch(spark, EXAMPLE["alerts"], frames).toArrow().to_pylist()
    local = rc.run(EXAMPLE["alerts"], given, close=True).history().to_arrow().to_pylist()
    assert sorted(row["order"] for row in rows) == sorted(row["order"] for row in local)
