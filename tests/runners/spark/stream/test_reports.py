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
from recension.runners.exchange.packets import METRICS
from recension.runners.local import Session
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.metrics import STAGES, Report, pipeline_metrics


def turn(session: Session, report: Report, since: int) -> dict[str, Any]:
    """The progress report of a micro-batch of 60 rows."""
    session.push("s", [rc.Insert({"x": x}, x, x + 5) for x in range(since, since + 60)])
    place = {"level": 0, "fragment": 0, "shard": 0, "was_live": True}
    told = json.loads(json.dumps(report.take())) | dict.fromkeys(STAGES, 0) | place
    return {"observedMetrics": {"recension 0": (json.dumps([told]),)}}


def test_a_warning_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_WITHOUT_CTI", 100)
    session = rc.session(rc.source("s", {"x": "int64"}).agg(n=rc.count()))
    report = Report(session)
    found = pipeline_metrics([turn(session, report, since) for since in range(0, 600, 60)])
    (warning,) = [warning for line in found.operators for warning in line.warnings]
    assert warning.startswith("source s has sent 120 rows and no cti")


def test_the_driver_hears_whom_a_step_waits_for() -> None:
    a, b = (rc.source(name, {"k": "int64"}) for name in ("a", "b"))
    rehearsal = Rehearsal([a.join(b, on="k").plan], shards=2)
    processor._parked.clear()
    given = {"a": [from_elements([rc.Insert({"k": 1}, 1, 5), rc.Cti(9)], a.schema)]}
    packets = rehearsal.turn(given | {"b": [from_elements([rc.Insert({"k": 1}, 2, 6)], b.schema)]})
    processor._parked.clear()
    stages = dict.fromkeys(STAGES, 0)
    reports = [
        json.loads(packet.info) | stages | {"was_live": True} for packet in packets if packet.edge == METRICS
    ]
    found = pipeline_metrics([{"observedMetrics": {"recension 0": (json.dumps(reports),)}}]).operators
    (join,) = [one for one in found if one.name.startswith("inner join")]
    assert (join.held_back_by, join.held_at) == ("b", rc.BEGINNING)
    assert join.freed_by is not None
    assert "watermark=" in join.freed_by


def test_the_share_of_the_largest_shard_is_told() -> None:
    """A key with nine of ten events fills its shard; in parts only sums come to it."""
    source = rc.source("s", {"k": "int64", "v": "int64"})
    query = source.group_by("k").tumbling(100).agg(n=rc.count(), speculate="eager").plan
    rows = [rc.Insert({"k": 0 if v % 10 else v, "v": v}, v, v + 1) for v in range(1000)]
    told = []
    for skew in ([], ["k"]):
        processor._parked.clear()
        rehearsal = Rehearsal([query], shards=4, skew=skew)
        packets = rehearsal.turn({"s": [from_elements(rows, source.schema)]})
        stages = dict.fromkeys(STAGES, 0)
        reports = [
            json.loads(packet.info) | stages | {"was_live": True}
            for packet in packets
            if packet.edge == METRICS
        ]
        told.append(pipeline_metrics([{"observedMetrics": {"recension 0": (json.dumps(reports),)}}]).levels)
    processor._parked.clear()
    whole, parts = told
    assert [level.rows.total() for level in whole] == [1000]
    assert whole[0].largest_share > 0.9
    assert str(whole[0]).startswith("fragment 1: 1,000 rows in 4 shards, 9")
    assert [level.level for level in parts] == [1, 2]
    assert parts[0].largest_share < 0.3
    assert max(parts[1].rows.values()) < 250


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
