"""Every measurement runs, at a small size, and finds what its baselines find. Timings are not looked at."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from benchmarks.__main__ import RUN_THEMSELVES, SUITES
from benchmarks.harness import Suite

from benchmarks import lmerge_figures, scale

SMALL = 2_000
# A micro-batch of the sink has 50,000; pushed one by one, or group by group, elements take long.
SIZES = {"history_sink": 100_000, "group_apply": 1_000, "small_pushes": 50, "why": 500, "sessions": 1_000}


def suites() -> list[Suite]:
    return [
        importlib.import_module(f"benchmarks.{name}").SUITE for name in SUITES if name not in RUN_THEMSELVES
    ]


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.name)
def test_measurements_agree_with_their_baselines(suite: Suite, tmp_path: Path) -> None:
    size = SIZES.get(suite.name, SMALL)
    for setup in {m.setup.__name__: m.setup for m in suite.measurements if m.setup}.values():
        setup(size, tmp_path)
    found = {m.name: m.run(m.load(size, tmp_path)) for m in suite.measurements}
    assert any(found.values())
    for measurement in suite.measurements:
        for other in (name for name in measurement.against if name in found):
            assert found[measurement.name] == found[other], f"{measurement.name} and {other}"


@pytest.fixture
def small_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZE": SMALL, "LIVE": 100, "TEXT": 20}.items():
        monkeypatch.setattr(lmerge_figures, name, value)


@pytest.mark.usefixtures("small_figures")
def test_memory_by_inputs_is_as_in_figure_2(monkeypatch: pytest.MonkeyPatch) -> None:
    # More live events than a batch has: a merge keeps the room that its largest step took.
    monkeypatch.setattr(lmerge_figures, "SIZE", 2 * SMALL)
    monkeypatch.setattr(lmerge_figures, "LIVE", SMALL)
    memory = lmerge_figures.inputs_figures()[0].ys
    grown = {name: ys[-1] - ys[0] for name, ys in memory.items()}
    assert max(memory["R0"]) == max(memory["R1"]) == 0
    assert memory["R2"][-1] < memory["R3"][-1]
    assert grown["R3-"] > 5 * grown["R3"]


@pytest.mark.usefixtures("small_figures")
def test_memory_by_stables_is_as_in_figure_6() -> None:
    memory = lmerge_figures.stable_figure()[0].ys
    assert memory["R3"][-1] < memory["R3"][0] / 2
    assert memory["R4"][-1] < memory["R4"][0] / 2
    assert max(memory["R0"]) == 0


@pytest.mark.usefixtures("small_figures")
def test_lagging_inputs_are_merged_as_for_figure_5() -> None:
    (figure,) = lmerge_figures.lag_figure()
    assert all(len(rates) == len(figure.xs) and min(rates) > 0 for rates in figure.ys.values())


@pytest.mark.parametrize("query", scale.QUERIES)
def test_cost_by_size_of_state_is_measured(query: str) -> None:
    cost = scale.measure(scale.QUERIES[query](20_000), live=20_000, batches=4)
    assert cost.intake > 0
    assert len(cost.batches) == 4
