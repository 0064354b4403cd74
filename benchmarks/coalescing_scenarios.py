"""The scenarios of tables 5 and 6, and the constants under which the model makes the paper's selections.

Source: temporal coalescing §7.3; coalescing rulings, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recension.operators.schemes.constants import Constants
from recension.operators.schemes.costs import Weights

ROW_BYTES: Final = [24.0, 24.0, 24.0, 32.0, 32.0, 40.0]


@dataclass(frozen=True)
class Scenario:
    """One case of a table: probabilities of the six queries, and which of them the paper makes eager."""

    table: int
    case: int
    cp: list[float]
    oop: list[float]
    eager: str
    relation: str = ""

    @property
    def weights(self) -> Weights:
        """⟨1, 1, 2⟩ in table 5, ⟨0, 1, 1⟩ in table 6."""
        return Weights(1, 1, 2) if self.table == 5 else Weights(0, 1, 1)

    @property
    def is_eager(self) -> list[bool]:
        """Of each query."""
        return [letter == "E" for letter in self.eager]


SCENARIOS: Final = (
    Scenario(5, 1, [0.1] * 6, [0.0] * 6, "llllll", "lazy = optimal < eager"),
    Scenario(5, 2, [0.8] * 6, [0.0] * 6, "EEEEEE", "eager = optimal < lazy"),
    Scenario(5, 3, [0.5] * 3 + [0.1] * 3, [0.0] * 6, "EEElll", "optimal < lazy < eager"),
    Scenario(5, 4, [0.8] * 3 + [0.1] * 3, [0.0] * 6, "EEElll", "optimal < eager < lazy"),
    Scenario(6, 1, [0.2] * 6, [0.3] * 6, "llllll"),
    Scenario(6, 2, [0.7] * 6, [0.6] * 6, "EEEEEE"),
    Scenario(6, 3, [0.5] * 6, [0.3] * 6, "EEEEEE"),
    Scenario(6, 4, [0.5] * 6, [0.7] * 6, "llllll"),
    Scenario(6, 5, [0.4] * 3 + [0.2] * 3, [0.6] * 3 + [0.7] * 3, "EEElll"),
    Scenario(6, 6, [0.4] * 3 + [0.2] * 3, [0.6, 0.8, 0.8, 0.7, 0.7, 0.7], "Elllll"),
)
# As the objective is printed, and with the shared extent's fixed charge; each with the disorder of U_max.
AS_PRINTED: Final = (
    Constants(
        1, 1, insert=0.04, delete=0.01, detach=0.1, merge=0.9, merge_late=1, split=0.2, split_late=0.07
    ),
    0.6,
)
WITH_CHARGE: Final = (
    Constants(
        1, 1, insert=0.035, delete=0.072, detach=0.1, merge=2, merge_late=1, split=0.068, split_late=0.005
    ),
    0.47,
)
