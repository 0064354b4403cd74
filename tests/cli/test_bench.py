"""``recension bench compare``."""

import json
from pathlib import Path

import pytest

from recension.cli import main


def saved(path: Path, rates: dict[str, float], python: str = "3.11.7") -> str:
    results = [
        {"suite": "windows", "name": name, "size": 1000, "rate": rate, "peak_mb": 50.0}
        for name, rate in rates.items()
    ]
    path.write_text(
        json.dumps({"when": "2026-01-01T00:00:00", "machine": {"python": python}, "results": results})
    )
    return str(path)


def test_measurements_of_one_name_stand_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = saved(tmp_path / "a.json", {"tumbling": 100.0, "gone": 1.0})
    b = saved(tmp_path / "b.json", {"tumbling": 150.0, "new": 1.0}, python="3.12.1")
    assert main(["bench", "compare", a, b]) == 0
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if "tumbling" in line)
    assert "100" in row
    assert "150" in row
    assert "1.50" in row
    assert "the machines differ: python 3.11.7 / 3.12.1" in told
    assert "windows: gone (1,000)" in told
    assert "windows: new (1,000)" in told


def test_what_got_slower_is_marked_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = saved(tmp_path / "a.json", {"tumbling": 100.0, "hopping": 100.0})
    b = saved(tmp_path / "b.json", {"tumbling": 95.0, "hopping": 80.0})
    assert main(["bench", "compare", a, b]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "0.80 slower" in line and "hopping" in line]
    assert lines[-1] == "slower by more than 10%: windows: hopping (1,000)"


def test_a_profile_needs_the_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--profile"]) == 2
    assert "run this in a checkout of the project" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON", '{"when": 1, "machine": {}, "results": [{}]}'])
def test_another_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    a, other = saved(tmp_path / "a.json", {"tumbling": 1.0}), tmp_path / "other.json"
    other.write_text(text)
    assert main(["bench", "compare", a, str(other)]) == 2
    assert capsys.readouterr().err == f"recension: {other}: not a file that `make bench` has saved\n"
