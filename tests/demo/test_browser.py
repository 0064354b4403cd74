"""The report as a browser shows it: every figure has a place on the page, and nothing is complained of."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from shutil import which

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPEN = 120
# Put at the end of a copy of the page: what is shown, and how large.
_PROBE = """
<script>
  const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
  const seen = Object.fromEntries([...document.querySelectorAll("figure")].map(f => [f.id,
    {figure: box(f), drawings: [...f.querySelectorAll("svg, .step")].map(box),
     shapes: [...f.querySelectorAll("svg rect, svg path, svg circle")].filter(s => box(s)[0] > 0).length}]));
  const pre = document.createElement("pre");
  pre.id = "seen"; pre.textContent = JSON.stringify({seen, wide: document.documentElement.scrollWidth});
  document.body.append(pre);
</script>
"""


@pytest.fixture(scope="module")
def browser() -> str:
    """A Chromium; `make test` installs one where it can."""
    found = next((path for name in NAMES if (path := which(name))), None)
    if found is None:
        pytest.skip("no Chromium here (Debian: chromium): the report is not opened")
    return found


def _opened(browser: str, page: Path) -> tuple[str, list[str]]:
    """The page's content after it was shown, and what the console said."""
    how = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    how += ["--window-size=1000,900", f"--user-data-dir={page.parent / 'profile'}"]
    how += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri()]
    done = subprocess.run([browser, *how], capture_output=True, text=True, timeout=_OPEN, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_every_figure_is_shown(browser: str, report: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report.replace("</body>", _PROBE + "</body>"), encoding="utf-8")
    content, console = _opened(browser, page)
    assert console == []
    told = re.search(r'<pre id="seen">(.*?)</pre>', content, re.DOTALL)
    assert told is not None, "the page's own script has run"
    found = json.loads(unescape(told[1]))
    assert found["wide"] <= 1000, "nothing has to be scrolled to the side"
    assert len(found["seen"]) == 6
    for name, shown in found["seen"].items():
        assert shown["drawings"], name
        for width, height in [shown["figure"], *shown["drawings"]]:
            assert width > 200, name
            assert height > 40, name
        assert name == "plans" or shown["shapes"] >= 5, f"{name}: something of every stream"


def test_complaints_are_heard(browser: str, tmp_path: Path) -> None:
    """The test above can fail: an error in a page is seen."""
    page = tmp_path / "broken.html"
    page.write_text("<html><body><script>throw new Error('seen')</script></body></html>", encoding="utf-8")
    _, console = _opened(browser, page)
    assert any("Uncaught Error: seen" in line for line in console)
