"""The live display: a line for everything that happens, said once, and where everyone is."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from recension.demo.performance import Display
from recension.demo.trace import MERGED, Trace
from recension.demo.verdict import Verdict


def test_who_is_where(played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    out = StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    display = Display(console)
    display.wait_for("starting Spark")
    with display.live():
        display.follow(trace)
        display.show_new()
        display.show_new()
    said = out.getvalue()
    assert "starting Spark" in said
    for mark in trace.milestones:
        assert said.count(f"{mark.stream:8} {mark.text}") == 1
    last = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "the end" in last[MERGED]
    assert f"{verdict.output.revisions:,}" in last[MERGED]
    assert "the end" not in last["north"]


def test_where_nobody_looks_there_are_lines_only(played: tuple[Trace, Verdict]) -> None:
    out = StringIO()
    display = Display(Console(file=out, width=100))
    with display.live():
        display.follow(played[0])
        display.show_new()
    assert len([line for line in out.getvalue().splitlines() if line.strip()]) == len(played[0].milestones)
