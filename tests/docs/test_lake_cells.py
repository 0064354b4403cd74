"""The guide's table of the tests of lake tables names every cell of them, and no other."""

from __future__ import annotations

import re

from tests.docs.places import ROOT
from tests.runners.spark.lake.test_cells import CELLS


def test_every_cell_is_in_the_table() -> None:
    text = (ROOT / "docs" / "guide" / "lake.md").read_text(encoding="utf-8")
    told = re.findall(r"\| `(\w+, \w+, \w+, [\w ]+)`(?= \|)", text)
    assert sorted(told) == sorted(", ".join(cell) for cell in CELLS)
