"""Where the time of a measurement goes. Timings are not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.profile import OUTSIDE, chosen, main, profile
from benchmarks.windows import SUITE

from benchmarks import matrix


def test_a_measurement_by_stage_and_by_operator(tmp_path: Path) -> None:
    one = SUITE.named("W3, tumbling")
    data = one.load(2_000, tmp_path)
    found = profile(lambda: one.run(data))
    assert found.seconds == pytest.approx(sum(found.stages.values()))
    assert {"checks of what comes in", "state of operators", "operators themselves"} <= set(found.stages)
    windowed = [name for name in found.operators if "Window" in name]
    assert windowed
    assert 0 < found.operators[windowed[0]] <= found.seconds


def test_of_the_matrix_the_default_row_is_taken() -> None:
    assert [m.name.partition(":")[0] for m in chosen(matrix.SUITE)] == list(map(str, matrix.COLUMNS))
    assert chosen(SUITE) == list(SUITE.measurements)


def test_it_is_printed_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    main(["--suite", "matrix", "--only", "W3, 1,000 keys", "--events", "2000"])
    (one,) = json.loads(next(tmp_path.glob("bench-results/*-profile.json")).read_text())["profiles"].values()
    assert OUTSIDE in one["stages"]
    assert one["operators"]
    assert "operators themselves" in capsys.readouterr().out


def test_another_suite_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--suite", "gone"])
    assert "invalid choice: 'gone'" in capsys.readouterr().err.splitlines()[-1]
