"""One day played once, in this process, for all who look at its report."""

from __future__ import annotations

import pytest

from recension.demo.local_stage import LocalStage
from recension.demo.page import page
from recension.demo.script import World, play
from recension.demo.trace import Trace
from recension.demo.verdict import Verdict, judge


@pytest.fixture(scope="package")
def played() -> tuple[Trace, Verdict]:
    """What every stream put out, and the verdict."""
    world, stage = World(700, 1), LocalStage()
    play(world, stage, lambda: None)
    return stage.trace, judge(world, stage)


@pytest.fixture(scope="package")
def report(played: tuple[Trace, Verdict]) -> str:
    """The page."""
    return page(*played, "local", "report-inspector.html")
