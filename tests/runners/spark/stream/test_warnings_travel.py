"""What the engine of a shard warns of is in the metrics of the pipeline, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

import recension as rc
from recension.runners import metrics
from recension.runners.local import Session
from recension.runners.spark.stream.metrics import pipeline_metrics
from recension.runners.spark.stream.report import Report


def turn(session: Session, since: int) -> dict[str, Any]:
    """The progress report of a micro-batch of 60 rows."""
    report = Report(session)
    session.push("s", [rc.Insert({"x": x}, x, x + 5) for x in range(since, since + 60)])
    stages = {"load_seconds": 0, "kernel_seconds": 0, "save_seconds": 0, "bytes_written": 0}
    told = {**json.loads(json.dumps(report.changes())), **stages, "level": 0, "was_live": True}
    return {"observedMetrics": {"recension 0": {"reports": [json.dumps(told)]}}}


def test_a_warning_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_WITHOUT_CTI", 100)
    session = rc.session(rc.source("s", {"x": "int64"}).agg(n=rc.count()))
    found = pipeline_metrics([turn(session, since) for since in range(0, 600, 60)])
    (warning,) = [warning for line in found.operators for warning in line.warnings]
    assert warning.startswith("source s has sent 120 rows and no cti")
