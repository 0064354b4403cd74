"""``recension demo`` from its first line to its last, on Spark and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recension.cli import main, run_spark
from recension.core.history import History
from recension.demo.local_stage import LocalStage

PARTITIONS = "spark.sql.shuffle.partitions"
HAPPENS = [
    "north joins",
    "south joins",
    "west joins, complete from",
    "north killed",
    "west its feed falls silent",
    "south-2 joins",
    "west its feed is back",
    "south leaves: south-2 takes over",
]


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_on_spark(capsys: pytest.CaptureFixture[str], spark: Any, tmp_path: Path) -> None:
    report, shards = tmp_path / "pages" / "report.html", spark.conf.get(PARTITIONS)
    assert main(["demo", "--size", "500", "--report", str(report)]) == 0
    said = _said(capsys)
    places = [said.find(words) for words in HAPPENS]
    assert places == sorted(places)
    assert min(places) > 0
    assert "equals the batch answer" in said
    assert "yes" in said
    assert "NO" not in said
    assert "At noon south said" in said
    assert "Late: the lease of device" in said
    assert "Structured Streaming" in report.read_text(encoding="utf-8")
    assert not spark.streams.active, "nothing is left running"
    spark.conf.set(PARTITIONS, shards)


@pytest.mark.parametrize(
    ("tool", "missing"),
    [("which", "Java 17 or later"), ("find_spec", "PySpark (pip install 'recension[spark]')")],
)
def test_without_spark_it_says_why_and_goes_on(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tool: str,
    missing: str,
) -> None:
    monkeypatch.setattr(run_spark, tool, lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    report = tmp_path / "report.html"
    assert main(["demo", "--size", "500", "--report", str(report)]) == 0
    said = _said(capsys)
    assert f"Spark needs {missing}, which is not here." in said
    assert "yes" in said
    assert "At noon south said" in said
    assert "the local engine" in report.read_text(encoding="utf-8")
    assert "merged" in report.with_name("report-inspector.html").read_text(encoding="utf-8")
    monkeypatch.setattr(run_spark, "find_spec", lambda name: None)
    assert "PySpark" in str(run_spark.missing_for_spark())


def test_a_wrong_answer_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = LocalStage.history

    def without_the_first(stage: LocalStage) -> History:
        history = right(stage)
        return history.filter(np.arange(len(history)) > 0)

    monkeypatch.setattr(LocalStage, "history", without_the_first)
    assert main(["demo", "--size", "500", "--no-spark", "--report", str(tmp_path / "report.html")]) == 1
    assert "NO 1 missing, 0 unexpected" in _said(capsys)
