"""Without a step of the gate, the verdict of every way in differs: `test_one_verdict.py` would notice it.

Each step is taken out while a way is gone, and only then: it lets all rows pass.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gate import ways
from tests.gate.cases import Case
from tests.gate.families import make_case
from tests.gate.test_one_verdict import KINDS, reference
from tests.gate.ways import Way

from recension.core.formats.decode import Decoder
from recension.gate.declared import Declared
from recension.gate.open_close import OpenedAndClosed
from recension.gate.pace import Paced
from recension.gate.place import Place
from recension.gate.repeats import Repeats
from recension.gate.valid import Validity
from recension.testing.physical import Dice

STEPS: dict[str, tuple[type[Any], str]] = {
    "decode": (Decoder, "stream"),
    "place": (Place, "partitions"),
    "repeats": (Repeats, "numbered"),
    "open and close": (OpenedAndClosed, "open and close"),
    "pace": (Paced, "paced"),
    "declared": (Declared, "insert-only"),
    "validity": (Validity, "stream"),
}
CASES = 40


def let_all_pass(step: Any, rows: Any, *more: Any) -> Any:
    """What a step does that is not there."""
    return rows, None


def keep_all(decoder: Decoder, faults: Any, rows: Any) -> Any:
    """The same of decoding, which makes elements of all rows in any case."""
    return np.ones(len(rows), np.bool_), []


def cases(family: str) -> Iterator[Case]:
    """The same every time."""
    for number in range(CASES):
        yield make_case(family, Dice(random.Random(f"{family} {number}").randbytes(128)))


def is_noticed(name: str, way: Way, case: Case, step: type[Any], folder: Path) -> bool:
    """Is the verdict another one, or an error, without the step?"""
    expected = reference(case, folder)
    with pytest.MonkeyPatch.context() as patch:
        if step is Decoder:
            patch.setattr(Decoder, "_drop_faulty", keep_all)
        else:
            patch.setattr(step, "judge", let_all_pass)
        try:
            ways.compare(name, case, expected, way(case, folder))
        except Exception:
            return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_left_out_is_noticed(step: str, kind: str, tmp_path: Path) -> None:
    left_out, family = STEPS[step]
    tried, noticed = set[str](), set[str]()
    for case in cases(family):
        for name, way in KINDS[kind].items():
            # Elements are decoded, have no columns that give places, and do not open or close.
            has_step = step in ("declared", "validity") or name not in ways.NEEDS_ELEMENTS
            if name not in noticed and has_step and ways.may_take(name, case):
                tried.add(name)
                noticed |= {name} if is_noticed(name, way, case, left_out, tmp_path) else set()
    assert noticed == tried
