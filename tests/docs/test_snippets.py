"""Every snippet of the README and the guide runs, and prints what the page says it prints.

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
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    language: str
    code: str
    expected: str | None
    line: int


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    found = [Snippet(m[1], m[2], m[3], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]
    return [s for s in found if s.language in ("python", "sh") and not s.code.startswith(("make", "pip"))]


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if any("rc.spark" in snippet.code for snippet in snippets(page)):
        request.getfixturevalue("spark")  # `rc.spark.session()` then gives the session of all tests
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    namespace: dict[str, object] = {"__name__": "snippet"}
    for snippet in snippets(page):
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


def test_links_lead_somewhere() -> None:
    """Every relative link of every page names a file that is there."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
