"""The bank-transfer test on a smaller number of transfers."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "bank.py"


def test_the_total_is_zero_in_every_output_state() -> None:
    example = runpy.run_path(str(EXAMPLE))
    states, wrong = example["check"](60_000)
    assert states == 4
    assert wrong == 0


def test_it_would_notice() -> None:
    """A total that is taken from one half of the transfers only is not 0."""
    example = runpy.run_path(str(EXAMPLE))
    rc = example["rc"]
    half = example["debits"].group_by("account").agg(balance=rc.sum("amount"), speculate="eager")
    total = half.agg(total=rc.sum("balance"), speculate="eager")
    assert example["_wrong"](rc.run(total, {"transfers": example["arrivals"](1_000)})) > 0
