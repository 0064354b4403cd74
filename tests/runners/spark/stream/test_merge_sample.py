"""A seeded sample of merges on real Spark: every case and policy, streams that come, go and die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import scripts
from tests.runners.spark.stream.many import run_together
from tests.runners.spark.stream.staged import KINDS, Staged

EXAMPLES = 8
SHARDS = 3


def _drawn(kind: str, number: int, size: int) -> list[Staged]:
    """The same scripts every time, of those in which something happens."""
    found: list[Staged] = []

    @seed(number)
    @given(st.data())
    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    def draw(data: st.DataObject) -> None:
        name = number * EXAMPLES + len(found)
        found.append(Staged(name, kind, data.draw(scripts(KINDS[kind][0])), [3, 5, 2]))

    draw()
    return sorted(found, key=lambda stage: len(stage.turns()))[-size - 1 : -1]


@pytest.mark.parametrize("size", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_every_case_and_policy(spark: Any, tmp_path: Path, size: int) -> None:
    stages = [one for i, kind in enumerate(KINDS) for one in _drawn(kind, i, size)]
    arriving = [stage.turns() for stage in stages]
    turns = [
        {stage.source: own[n] for stage, own in zip(stages, arriving, strict=True) if n < len(own)}
        for n in range(max(map(len, arriving)))
    ]
    inlets = {stage.source: Staged.inlet for stage in stages}
    answers = run_together(spark, [stage.query for stage in stages], turns, SHARDS, tmp_path, inlets)
    for stage, answer in zip(stages, answers, strict=True):
        for number in range(len(stage.turns())):
            stage.judge(number, answer[number])
        stage.check()
