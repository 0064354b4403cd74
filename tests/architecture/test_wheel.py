"""The wheel holds all of the library, and its command runs from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and laid out as an installer would."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(place), str(ROOT)], check=True, capture_output=True)
    (wheel,) = place.glob("recension-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


def test_nothing_is_left_out(installed: Path) -> None:
    kept = {p.relative_to(ROOT / "src") for p in (ROOT / "src" / "recension").rglob("*") if p.is_file()}
    kept = {p for p in kept if "__pycache__" not in p.parts}
    assert kept == {p.relative_to(installed) for p in (installed / "recension").rglob("*") if p.is_file()}
    assert Path("recension/py.typed") in kept


def test_the_command_runs_from_there(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    program = (
        "import recension, sys; from recension.cli import main; print(recension.__file__); sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "generate", "--size", "100", "--output", "s.parquet"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    assert (tmp_path / "s.parquet").exists()
