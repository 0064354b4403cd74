"""Eager against lazy coalescing: cost surfaces, and the selections of tables 5 and 6 beside ours.

Run as ``python -m benchmarks.coalescing_study``, after `recension calibrate`. The costs are the cost model's,
with the constants under which it makes the paper's selections, and with those measured on this machine.

Source      Temporal Coalescing on Window Extents, §7.2 and §7.3, figures 3 and 4, tables 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.coalescing_scenarios import AS_PRINTED, ROW_BYTES, SCENARIOS, WITH_CHARGE, Scenario
from recension.operators.schemes.constants import Constants, Numbers, load_constants
from recension.operators.schemes.costs import CostModel, Load, Queries, Weights
from recension.operators.schemes.selection import Selection, select

# A stream of 20,000 is where the fitted constants stand; longer ones move the thin margins of table 6.
LOAD: Final = Load.of_rows(20_000, 1_000)
LAZY_ROW: Final = 40.0
FIGURES: Final = (
    ("figure 3(a)", Weights(1, 1, 1), "eager below lazy everywhere"),
    ("figure 3(b)", Weights(1, 50, 1), "lazy gains; the crossover moves towards (1, 0)"),
    ("figure 3(c)", Weights(1, 100, 1), "lazy gains more"),
    ("figure 4", Weights(0, 1, 1), "nearly equal; eager slightly worse at low cp and high oop"),
)
STEPS: Final = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class Surface:
    """What a lone query costs by either scheme, cp down and oop across, both from 0 to 1 by 0.1."""

    eager: Numbers
    lazy: Numbers

    def lines(self) -> Iterator[str]:
        """Eager less lazy: negative where eager is cheaper."""
        yield "  cp \\ oop " + "".join(f"{oop:>8.1f}" for oop in STEPS)
        for cp, row in zip(STEPS, self.eager - self.lazy, strict=True):
            yield f"  {cp:>8.1f} " + "".join(f"{difference:>8.2f}" for difference in row)

    def relations(self) -> str:
        """Where eager is cheaper, dearest and cheapest."""
        ahead = int((self.eager < self.lazy).sum())
        dearest, cheapest = (_at(int(found)) for found in (self.eager.argmax(), self.eager.argmin()))
        return f"eager cheaper at {ahead} of 121 points, dearest at {dearest}, cheapest at {cheapest}"


def _at(place: int) -> str:
    return f"({STEPS[place // 11]:.1f}, {STEPS[place % 11]:.1f})"


def surface(constants: Constants, usual_oop: float, weights: Weights) -> Surface:
    """By the cost model. A lone lazy query pays for the shared extent by itself."""
    cp, oop = (x.ravel() for x in np.meshgrid(STEPS, STEPS, indexing="ij"))
    model = CostModel(constants, LOAD, LAZY_ROW, usual_oop, weights)
    q = Queries.of(cp, oop, ROW_BYTES[0])
    return Surface(model.eager(q).reshape(11, 11), (model.lazy(q) + model.shared()).reshape(11, 11))


def selection(scenario: Scenario, constants: Constants, usual_oop: float | None, *, charged: bool) -> Chosen:
    """What the model selects; ``usual_oop`` is the scenario's own mean if it is not given."""
    usual = float(np.mean(scenario.oop)) if usual_oop is None else usual_oop
    model = CostModel(constants, LOAD, LAZY_ROW, usual, scenario.weights)
    q = Queries.of(scenario.cp, scenario.oop, ROW_BYTES)
    eager, lazy = model.eager(q), model.lazy(q)
    saved = lazy - scenario.weights.scan * model.eager_parts(q)[2]
    shared = model.shared() if charged else 0.0
    return Chosen(select(eager, lazy, shared), eager - lazy + saved, saved)


@dataclass(frozen=True)
class Chosen:
    """A selection; and what an extent of its own costs each query, and saves it in scans (ruling 32)."""

    selection: Selection
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


def study(measured: Constants) -> Iterator[str]:
    """All of it, as text."""
    sets = (("the paper's selections fitted", *WITH_CHARGE), ("this machine", measured, 0.5))
    for name, constants, _ in sets:
        yield f"constants ({name}): {constants}"
    for figure, weights, paper in FIGURES:
        yield ""
        yield f"{figure}, weights {weights}; the paper: {paper}"
        for name, constants, usual_oop in sets:
            found = surface(constants, usual_oop, weights)
            yield f"{name}: {found.relations()}"
            yield from found.lines()
    yield ""
    yield from _tables(measured)


def _tables(measured: Constants) -> Iterator[str]:
    yield "selections, E eager and l lazy for Q1 to Q6"
    yield f"  {'case':8} {'cp':24} {'oop':24} {'paper':8} {'printed':8} {'charged':8} {'here':8} reason"
    agree = 0
    for scenario in SCENARIOS:
        printed = selection(scenario, *AS_PRINTED, charged=False)
        charged = selection(scenario, *WITH_CHARGE, charged=True)
        here = selection(scenario, measured, None, charged=True)
        agree += here.letters == scenario.eager
        cells = [found.letters for found in (printed, charged, here)]
        cp, oop = (" ".join(f"{p:g}" for p in each) for each in (scenario.cp, scenario.oop))
        yield (
            f"  {scenario.table}.{scenario.case:<6} {cp:24} {oop:24} {scenario.eager:8} "
            + " ".join(f"{cell:8}" for cell in cells)
            + f" {here.reason(scenario.eager)}"
        )
    yield f"agreement with the paper on this machine: {agree} of {len(SCENARIOS)}"


def main() -> None:
    """Print the study."""
    print(*study(load_constants()), sep="\n")


if __name__ == "__main__":
    main()
