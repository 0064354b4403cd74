"""The snippets of the README and of docs, and how a page of them is run.

The ``python`` and ``sh`` fences of a page run in order, in one folder and one Python namespace per page. A
``text`` fence right after one of them is its output. Commands that set the project up are left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.docs.places import ROOT

BROKER = "localhost:9092"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    language: str
    code: str
    expected: str | None
    line: int


def snippets(page: Path) -> list[Snippet]:
    """What a page has to run."""
    text = page.read_text()
    found = [Snippet(m[1], m[2], m[3], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]
    return [s for s in found if s.language in ("python", "sh") and not s.code.startswith(("make", "pip"))]


def is_on_spark(page: Path) -> bool:
    """Does a page start Spark?"""
    return any("rc.spark.session(" in snippet.code for snippet in snippets(page))


def is_on_kafka(page: Path) -> bool:
    """Does a page speak to a broker?"""
    return any(BROKER in snippet.code for snippet in snippets(page))


def run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, broker: str = BROKER) -> None:
    """Run a page in a folder; what it prints must be what it says."""
    monkeypatch.chdir(folder)
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    namespace: dict[str, object] = {"__name__": "snippet"}
    for snippet in (replace(s, code=s.code.replace(BROKER, broker)) for s in snippets(page)):
        got = _python(snippet, namespace) if snippet.language == "python" else _shell(snippet)
        if snippet.expected is not None:
            assert got.rstrip() == snippet.expected.rstrip(), f"{page.name}, line {snippet.line}"


def _python(snippet: Snippet, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet.code, f"line {snippet.line}", "exec"), namespace)
    return printed.getvalue()


def _shell(snippet: Snippet) -> str:
    done = subprocess.run(["sh", "-ec", snippet.code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"line {snippet.line}: {done.stdout}{done.stderr}"
    return done.stdout
