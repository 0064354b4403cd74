"""A payload is stored once, whatever the number of inputs; R3- stores it once for each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recension.core.batch import inserts
from recension.operators.lmerge.choice import make_merge

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
LIVE, STEP = 10_000, 500


def _held(case: str, ports: int, text: int, steps: int, *, is_rolling: bool) -> int:
    """The most memory held while all inputs send the same events, which go as stables pass if it rolls."""
    merge, most = make_merge(case, SCHEMA, ports), 0
    texts = pa.array([f"{i:0{text}}" for i in range(STEP)])
    for start in range(0, steps * STEP, STEP):
        vs = np.arange(start, start + STEP, dtype=np.int64)
        batch = inserts(vs, vs + LIVE, pa.record_batch([pa.array(vs), texts], schema=SCHEMA))
        for port in range(ports):
            merge.on_batch(port, batch)
        if is_rolling:
            for port in range(ports):
                merge.on_cti(port, start + STEP)
        most = max(most, merge.state_bytes())
    held = min(steps * STEP, LIVE) if is_rolling else steps * STEP
    # Events that end where a stable is may still change.
    assert merge.state_rows() - held * (ports + 1 if case == "R3-" else 1) in (0, 1)
    return most


def test_what_is_final_is_forgotten_of_lagging_inputs_too() -> None:
    row = pa.record_batch([pa.array([1]), pa.array(["a"])], schema=SCHEMA)
    batch = inserts(np.array([1]), np.array([5]), row)
    for case in ("R3", "R3-", "R4"):
        merge = make_merge(case, SCHEMA, 2)
        for port in (0, 1):
            merge.on_batch(port, batch)
        merge.on_cti(0, 9)
        assert merge.state_rows() == 0, case


@pytest.mark.slow
@pytest.mark.parametrize("text", [16, 200])
@pytest.mark.parametrize(("steps", "is_rolling"), [(17, False), (20, False), (80, True)])
def test_ten_inputs_take_hardly_more_than_two(text: int, steps: int, is_rolling: bool) -> None:
    for case in ("R3", "R4"):
        two, ten = (_held(case, ports, text, steps, is_rolling=is_rolling) for ports in (2, 10))
        # Beyond one integer for each event and further input.
        assert ten - 8 * 8 * min(steps * STEP, LIVE) <= 1.2 * two, (case, two, ten)


def test_the_baseline_takes_a_payload_for_each_input() -> None:
    two, ten = (_held("R3-", ports, 200, 10, is_rolling=False) for ports in (2, 10))
    assert ten > 3 * two
