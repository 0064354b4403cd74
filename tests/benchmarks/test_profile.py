"""Where the time of a measurement goes. Timings are not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.profile import OUTSIDE, main, profile
from benchmarks.windows import SUITE


def test_a_measurement_by_stage_and_by_operator(tmp_path: Path) -> None:
    one = SUITE.named("W3, tumbling")
    data = one.load(2_000, tmp_path)
    found = profile(lambda: one.run(data))
    assert found.seconds == pytest.approx(sum(found.stages.values()))
    assert {"checks of what comes in", "state of operators", "operators themselves"} <= set(found.stages)
    windowed = [name for name in found.operators if "Window" in name]
    assert windowed
    assert 0 < found.operators[windowed[0]] <= found.seconds


def test_the_default_row_is_printed_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    main(["--events", "2000"])
    shown = capsys.readouterr().out
    saved = json.loads(next(tmp_path.glob("bench-results/*-profile.json")).read_text())
    assert [name.partition(":")[0] for name in saved["profiles"]] == [
        "W1, 1,000 keys",
        "W2, 1,000 keys",
        "W3, 1,000 keys",
        "W1, 1,000,000 keys",
        "W3, 1,000,000 keys",
    ]
    assert all(OUTSIDE in each["stages"] and each["operators"] for each in saved["profiles"].values())
    assert shown.count("operators themselves") == 5
