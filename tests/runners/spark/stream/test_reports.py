"""What the engines of shards report: every warning once, every event once, and asked for once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.runners import metrics
from recension.runners.engine import Engine
from recension.runners.local import Session
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.metrics import Report, pipeline_metrics
from recension.runners.spark.stream.packets import METRICS


def turn(session: Session, report: Report, since: int) -> dict[str, Any]:
    """The progress report of a micro-batch of 60 rows."""
    session.push("s", [rc.Insert({"x": x}, x, x + 5) for x in range(since, since + 60)])
    stages = {"load_seconds": 0, "kernel_seconds": 0, "save_seconds": 0, "bytes_written": 0}
    told = {**json.loads(json.dumps(report.take())), **stages, "level": 0, "was_live": True}
    return {"observedMetrics": {"recension 0": {"reports": [json.dumps(told)]}}}


def test_a_warning_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_WITHOUT_CTI", 100)
    session = rc.session(rc.source("s", {"x": "int64"}).agg(n=rc.count()))
    report = Report(session)
    found = pipeline_metrics([turn(session, report, since) for since in range(0, 600, 60)])
    (warning,) = [warning for line in found.operators for warning in line.warnings]
    assert warning.startswith("source s has sent 120 rows and no cti")


def test_metrics_are_computed_once_a_micro_batch_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once more where the engine was restored: what it did before must not be reported again."""
    calls: list[Engine] = []
    compute = Engine.metrics

    def note(engine: Engine, *given: Any) -> Any:
        calls.append(engine)
        return compute(engine, *given)

    monkeypatch.setattr(Engine, "metrics", note)
    source = rc.source("s", {"k": "int64"})
    rehearsal = Rehearsal([source.group_by("k").agg(n=rc.count(), speculate="eager").plan], shards=2)
    processor._parked.clear()
    counted, seen = [], []
    for number in range(4):
        if number == 2:
            processor._parked.clear()
        calls.clear()
        batch = from_elements([rc.Insert({"k": k}, number, number + 9) for k in range(8)], source.schema)
        packets = rehearsal.turn({"s": [batch]})
        reports = [json.loads(packet.info) for packet in packets if packet.edge == METRICS]
        counted.append(len(calls) / len(reports))
        seen.append(sum(report["operators"][0]["events_out"] for report in reports))
    processor._parked.clear()
    assert counted == [1, 1, 2, 1]
    assert seen == [8, 8, 8, 8]
