"""Eager against lazy coalescing: cost surfaces, and the selections of tables 5 and 6 beside the paper's.

Run as ``python -m benchmarks.coalescing_study``, or with ``--quick`` on few readings. All costs are of real
runs, see `coalescing_runs`, put together by equations 7 to 10; beside the selections stand those that the
cost model makes with the constants fitted to the paper.

Source      Temporal Coalescing on Window Extents, §7.2 and §7.3, figures 3 and 4, tables 5 and 6.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from benchmarks.coalescing_runs import FULL, QUERIES, QUICK, Cost, Effort, measured
from benchmarks.coalescing_scenarios import AS_PRINTED, ROW_BYTES, SCENARIOS, WITH_CHARGE, Scenario
from recension.operators.schemes.constants import Constants, Numbers
from recension.operators.schemes.costs import CostModel, Load, Queries, Weights
from recension.operators.schemes.plan import SchemeSelection, select

FIGURES: Final = (
    ("figure 3(a)", Weights(1, 1, 1), "eager below lazy everywhere"),
    ("figure 3(b)", Weights(1, 50, 1), "lazy gains; the crossover moves towards (1, 0)"),
    ("figure 3(c)", Weights(1, 100, 1), "lazy gains more"),
    ("figure 4", Weights(0, 1, 1), "nearly equal; eager slightly worse at low cp and high oop"),
)


@dataclass(frozen=True)
class Greatest:
    """M_max, U_max and S_max, by which costs are normalised: of runs in which all readings coalesce.

    The first and the last are of the lazy extent; the second is of an eager one at the usual disorder.
    """

    memory: float
    update: float
    scan: float

    @classmethod
    def of(cls, effort: Effort, usual_oop: float) -> Greatest:
        """From two runs of Q1."""
        eager, lazy = (measured(effort, 0, 1.0, usual_oop, is_eager=each) for each in (True, False))
        return cls(lazy.memory, eager.update, lazy.scan)

    def kept(self, cost: Cost, weights: Weights) -> float:
        """What it costs to have an extent: memory and updates."""
        return weights.memory * cost.memory / self.memory + weights.update * cost.update / self.update

    def scanned(self, cost: Cost, weights: Weights) -> float:
        """What it costs to scan it."""
        return weights.scan * cost.scan / self.scan


@dataclass(frozen=True)
class Surfaces:
    """What a lone query costs by either scheme, cp down and oop across, both from 0 to 1."""

    steps: Numbers
    eager: Numbers
    lazy: Numbers

    def lines(self) -> Iterator[str]:
        """Both, row by row: eager / lazy."""
        yield "  cp \\ oop " + "".join(f"{oop:>16.1f}" for oop in self.steps)
        for cp, eager, lazy in zip(self.steps, self.eager, self.lazy, strict=True):
            pairs = (f"{e:.2f} / {z:.2f}" for e, z in zip(eager, lazy, strict=True))
            yield f"  {cp:>8.1f} " + "".join(f"{pair:>16}" for pair in pairs)

    def relations(self) -> str:
        """Where eager is cheaper, dearest and cheapest."""
        ahead = f"eager cheaper at {int((self.eager < self.lazy).sum())} of {self.eager.size} points"
        dearest, cheapest = (self._at(int(place)) for place in (self.eager.argmax(), self.eager.argmin()))
        return f"{ahead}, dearest at {dearest}, cheapest at {cheapest}"

    def _at(self, place: int) -> str:
        cp, oop = divmod(place, len(self.steps))
        return f"({self.steps[cp]:.1f}, {self.steps[oop]:.1f})"


def surfaces(effort: Effort, weights: Weights) -> Surfaces:
    """Of real runs of Q1. A lone lazy query pays for the shared extent by itself."""
    greatest, steps = Greatest.of(effort, 0.5), effort.probabilities

    def cost(cp: float, oop: float, *, is_eager: bool) -> float:
        run = measured(effort, 0, cp, oop, is_eager=is_eager)
        return greatest.kept(run, weights) + greatest.scanned(run, weights)

    both = (
        np.array([[cost(float(cp), float(oop), is_eager=each) for oop in steps] for cp in steps])
        for each in (True, False)
    )
    return Surfaces(steps, *both)


@dataclass(frozen=True)
class Chosen:
    """A selection; and what an extent of its own costs each query, and saves it in scans (ruling 32)."""

    selection: SchemeSelection
    kept: Numbers
    saved: Numbers

    @property
    def letters(self) -> str:
        """E for eager, l for lazy."""
        return "".join("E" if is_eager else "l" for is_eager in self.selection.is_eager)

    def reason(self, paper: str) -> str:
        """Why a query is not what the paper made it, if one is not."""
        found = self.selection
        costs = f"optimal {found.cost:.2f}, eager {found.all_eager:.2f}, lazy {found.all_lazy:.2f}"
        others = [j for j, letter in enumerate(self.letters) if letter != paper[j]]
        if not others:
            return f"as the paper; {costs}"
        j = others[0]
        return f"Q{j + 1}: an extent costs {self.kept[j]:.2f} and saves {self.saved[j]:.2f} in scans; {costs}"


def ours(effort: Effort, scenario: Scenario) -> Chosen:
    """The selection by real runs of all six queries, with the shared extent's charge."""
    usual, weights = float(np.mean(scenario.oop)), scenario.weights
    greatest, numbers = Greatest.of(effort, usual), range(len(QUERIES))
    run = partial(measured, effort)
    owned = [run(j, scenario.cp[j], scenario.oop[j], is_eager=True) for j in numbers]
    shared = [run(j, scenario.cp[j], scenario.oop[j], is_eager=False) for j in numbers]
    kept = np.array([greatest.kept(cost, weights) for cost in owned])
    scans, lazy = (np.array([greatest.scanned(cost, weights) for cost in each]) for each in (owned, shared))
    # It is one extent, whichever query reads it.
    charge = float(np.mean([greatest.kept(cost, weights) for cost in shared]))
    return Chosen(select(kept + scans, lazy, charge), kept, lazy - scans)


def fitted(scenario: Scenario, constants: Constants, usual_oop: float, *, is_charged: bool) -> str:
    """The selection by the cost model, where the constants that are fitted to the paper stand."""
    model = CostModel(constants, Load(20_000, 1_000), ROW_BYTES[-1], usual_oop, scenario.weights)
    q = Queries.broadcast(scenario.cp, scenario.oop, ROW_BYTES)
    found = select(model.eager_cost(q), model.lazy_cost(q), model.shared_cost() if is_charged else 0.0)
    return "".join("E" if is_eager else "l" for is_eager in found.is_eager)


def study(effort: Effort = FULL) -> Iterator[str]:
    """All of it, as text."""
    yield f"real runs of {effort.size:,} readings, windows of {effort.window:,}; eager / lazy"
    yield from _costs(effort)
    for figure, weights, paper in FIGURES:
        found = surfaces(effort, weights)
        yield ""
        yield f"{figure}, weights {weights}; the paper: {paper}"
        yield f"here: {found.relations()}"
        yield from found.lines()
    yield ""
    yield from _tables(effort)


def _costs(effort: Effort) -> Iterator[str]:
    """The measurements themselves, at the corners and in the middle."""
    for cp, oop in ((0.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (1.0, 1.0)):
        eager, lazy = (measured(effort, 0, cp, oop, is_eager=each) for each in (True, False))
        yield (
            f"  cp {cp:.1f}, oop {oop:.1f}: {eager.memory / 1000:.0f} / {lazy.memory / 1000:.0f} kB held, "
            f"{eager.update:.0f} / {lazy.update:.0f} ns to update, "
            f"{eager.scan:.0f} / {lazy.scan:.0f} ns to scan a reading"
        )


def _tables(effort: Effort) -> Iterator[str]:
    yield "selections, E eager and l lazy for Q1 to Q6; printed, charged: the model with fitted constants"
    yield f"  {'case':6} {'cp':24} {'oop':24} {'paper':8} {'printed':8} {'charged':8} {'here':8} reason"
    agree = 0
    for scenario in SCENARIOS:
        here = ours(effort, scenario)
        agree += here.letters == scenario.eager
        printed = fitted(scenario, *AS_PRINTED, is_charged=False)
        charged = fitted(scenario, *WITH_CHARGE, is_charged=True)
        cp, oop = (" ".join(f"{p:g}" for p in each) for each in (scenario.cp, scenario.oop))
        letters = " ".join(f"{each:8}" for each in (scenario.eager, printed, charged, here.letters))
        reason = here.reason(scenario.eager)
        yield f"  {scenario.table}.{scenario.case:<4} {cp:24} {oop:24} {letters} {reason}"
    yield f"agreement with the paper on this machine: {agree} of {len(SCENARIOS)}"


def main() -> None:
    """Print the study."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coalescing_study", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few readings, few steps")
    for line in study(QUICK if parser.parse_args().quick else FULL):
        print(line, flush=True)


if __name__ == "__main__":
    main()
