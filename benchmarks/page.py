"""The inspector's page with 100,000 events in a headless Chromium: first drawing, and frames while stepping.

``python -m benchmarks.page`` prints them. A frame is the time from one picture of the browser to the next,
its own painting included: what a person sees as stutter. It depends on what else the machine does; the
processor time of the page's main thread for a frame hardly does.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from tests.inspector.webdriver import Browser, find_browser

import recension as rc
from recension.core.batch import EventBatch, concat, cti, inserts
from recension.inspector.export import page_in_one_file
from recension.inspector.page_data import Shown
from recension.inspector.questions import Questions
from recension.runners.recording import read_recording

EVENTS, SITES, STEPS = 100_000, 40, 500
MOVES = 150
SCHEMA = pa.schema([("user", pa.string()), ("site", pa.string())])

# One act a frame; how long each frame was.
_PLAY = """
const acts = (%s);
return (async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const frames = [];
  for (let i = 0; i < 5; i++) await frame();
  let last = await frame();
  for (let i = 0; i < arguments[0]; i++) {
    acts(i, arguments[0]);
    const now = await frame();
    frames.push(now - last); last = now;
  }
  return frames;
})();
"""
_SLIDE = """(i, n) => { const s = document.querySelector('#moment');
  s.value = String(Math.round(s.max * (i + 1) / n)); s.dispatchEvent(new Event('input')); }"""
_STEP = """() => document.querySelector('#back-step').click()"""
_ZOOM = """(i) => document.querySelector(i % 40 < 20 ? '#zoom-in' : '#zoom-out').click()"""


def _feed(rng: np.random.Generator) -> list[EventBatch]:
    """Leases in order, some minutes long, in so many steps; each ends with a CTI."""
    vs = np.sort(rng.integers(0, 86_400, EVENTS)) * 1_000_000
    ve = vs + rng.integers(60, 1_200, EVENTS) * 1_000_000
    users = pa.array([f"user {n}" for n in rng.integers(0, 5_000, EVENTS)])
    sites = pa.array([f"site {n}" for n in rng.integers(0, SITES, EVENTS)])
    leases = inserts(vs, ve, pa.RecordBatch.from_arrays([users, sites], schema=SCHEMA))
    size = EVENTS // STEPS
    shares = (leases.slice(first, first + size) for first in range(0, EVENTS, size))
    return [concat([part, cti(int(part.vs[0]), SCHEMA)]) for part in shares]


def write_page(folder: Path, name: str, skips: int = 0) -> Path:
    """A page of all leases, their number by site, and the same from which some leases are missing."""
    leases = rc.source("leases", SCHEMA)
    feeds, recorded = _feed(np.random.default_rng(5)), []
    for number in range(2 if skips else 1):
        counts = leases.group_by("site").tumbling(600_000_000).agg(n=rc.count(), speculate="eager")
        live = rc.session(counts)
        with rc.record(live, folder / f"{name} {number}"):
            for at, part in enumerate(feeds):
                live.push("leases", part.filter(~part.is_data()) if number and at % skips == 0 else part)
        recorded.append(folder / f"{name} {number}")
    read = [(one.name, read_recording(one)) for one in recorded]
    sizes = [
        f"{sum(map(len, one.stream(edge).batches)):,} on {one.name_of(edge)}"
        for _, one in read
        for edge in one.edges
    ]
    print(f"elements: {', '.join(sizes)}", flush=True)
    shown = Shown(name, read, limit=1_000_000)
    page = folder / f"{name}.html"
    asked = Questions(shown, [partial(read_recording, one) for one in recorded], None)
    page.write_text(page_in_one_file(asked.export({})), encoding="utf-8")
    return page


def _play(browser: Browser, what: str, acts: str) -> None:
    busy = browser.busy_seconds()
    frames: list[float] = browser.run(_PLAY % acts, MOVES)
    busy = (browser.busy_seconds() - busy) / MOVES * 1e3
    worst = sorted(frames)[int(0.95 * len(frames))]
    slow = sum(frame > 50 for frame in frames)
    print(
        f"{what:<40} {busy:5.1f} ms of processor time a frame;  frames {statistics.median(frames):5.1f} ms "
        f"(95 % {worst:5.1f}, most {max(frames):5.1f}), {slow} of {len(frames)} over 50 ms",
        flush=True,
    )


def main() -> None:
    """Open the pages and print what was measured."""
    if find_browser() is None:
        sys.exit("no Chromium with its driver here (Debian: chromium and chromium-driver)")
    with TemporaryDirectory() as name, Browser(Path(name)) as browser:
        began = time.perf_counter()
        page = write_page(Path(name), "one")
        print(
            f"{os.cpu_count()} cores; {EVENTS:,} leases; written in {time.perf_counter() - began:.1f} s,",
            end=" ",
        )
        print(f"{page.stat().st_size / 1e6:.1f} MB", flush=True)
        for _ in range(3):
            browser.open(page.as_uri())
            after = browser.run("return Number(document.documentElement.dataset.firstDrawn)")
            busy = browser.busy_seconds()
            print(f"first drawing after {after / 1e3:.1f} s, {busy:.1f} s of processor time", flush=True)
        _play(browser, "the slider moves", _SLIDE)
        _play(browser, "a step back at a time", _STEP)
        _play(browser, "zooming", _ZOOM)
        browser.click("#pin")
        _play(browser, "the slider moves, a moment is pinned", _SLIDE)
        browser.open(write_page(Path(name), "two", skips=50).as_uri())
        browser.run(
            "const panes = document.querySelectorAll('.pane'), over = panes[1].querySelectorAll('select')[1];"
            "over.value = panes[3].id.slice(5).replace('-', ':'); over.dispatchEvent(new Event('change'))"
        )
        _play(browser, "the slider moves, two answers overlaid", _SLIDE)


if __name__ == "__main__":
    main()
