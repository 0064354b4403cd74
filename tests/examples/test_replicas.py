"""Every scenario of the example gives the uninterrupted answer; and the example would notice if not."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "replicas.py"


def test_every_scenario_gives_the_uninterrupted_answer() -> None:
    example = runpy.run_path(str(EXAMPLE))
    answers = dict(example["check"](12_000))
    assert len(answers) == 4
    assert all(answers.values()), answers


def test_it_would_notice() -> None:
    example = runpy.run_path(str(EXAMPLE))
    example["check"].__globals__["SCENARIOS"] = (lambda size: example["expected"](size // 2),)
    assert [is_right for _, is_right in example["check"](4_000)] == [False]
