"""`recension calibrate` measures, shows and keeps the constants that schemes are chosen by."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from recension.cli import main
from recension.operators.schemes.constants import load_constants


def test_constants_are_measured_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "constants.json"
    monkeypatch.setenv("RECENSION_CONSTANTS", str(path))
    assert main(["calibrate", "--quick"]) == 0
    measured, shown = asdict(load_constants()), capsys.readouterr().out
    assert shown.splitlines()[-1] == f"saved as {path}"
    assert "away from what these explain" in shown
    for name, nanoseconds in measured.items():
        assert f"{name:12} {nanoseconds:10.1f} ns" in shown
    # Whatever the machine, readings are not read, taken in or put into place for nothing.
    assert min(measured[name] for name in ("read", "insert", "merge", "lazy_insert")) > 0
