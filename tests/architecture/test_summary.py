"""The last line of `make test` says how many tests passed, and what was skipped and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.test_summary import summarize

TESTS = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_passes(n): pass

@pytest.mark.parametrize("n", range(2))
def test_needs_a_browser(n): pytest.skip("no browser here")
"""
WITHOUT_A_PACKAGE = "import pytest\npytest.importorskip('nowhere', reason='nowhere is not installed')\n"


@pytest.mark.slow
def test_what_was_skipped_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, TESTS, WITHOUT_A_PACKAGE) == (
        "make test: 3 passed; skipped: 2 × no browser here; 1 × nowhere is not installed"
    )
    assert run(tmp_path, "def test_passes(): pass") == "make test: 1 passed; skipped: nothing"
    assert run(tmp_path, "def test_fails(): assert False", "import nowhere") == (
        "make test: 0 passed, 1 failed; skipped: nothing"
    )


def test_a_run_that_did_not_end_is_said(tmp_path: Path) -> None:
    assert summarize([tmp_path / "none.xml"]) == "make test: 0 passed, a half did not end; skipped: nothing"


def run(folder: Path, *files: str) -> str:
    """The line about test files with these contents."""
    names = [f"test_{number}.py" for number, _ in enumerate(files)]
    for name, content in zip(names, files, strict=True):
        (folder / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=results.xml", *names]
    (folder / "pytest.ini").write_text("[pytest]\n")
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return summarize([folder / "results.xml"])
