"""A payload is stored once, whatever the number of inputs; R3- stores it once for each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import inserts
from recension.operators.lmerge.choice import merge_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
EVENTS = 5_000


def _held(case: str, ports: int) -> int:
    """Memory held when all inputs have sent the same events."""
    vs = np.arange(EVENTS, dtype=np.int64)
    payload = pa.record_batch([pa.array(vs), pa.array([f"{i:0200}" for i in range(EVENTS)])], schema=SCHEMA)
    batch = inserts(vs, vs + 10 * EVENTS, payload)
    merge = merge_of(case, SCHEMA, ports)
    for port in range(ports):
        for start in range(0, EVENTS, 500):
            merge.on_batch(port, batch.slice(start, start + 500))
    assert merge.state_rows() == EVENTS * (ports + 1 if case == "R3-" else 1)
    return merge.state_bytes()


def test_ten_inputs_take_hardly_more_than_two() -> None:
    for case in ("R3", "R4"):
        two, ten = _held(case, 2), _held(case, 10)
        # Beyond one integer for each event and further input, with room to grow.
        assert ten - 8 * 2 * 8 * EVENTS <= 1.2 * two
    assert _held("R3-", 10) > 3 * _held("R3-", 2)
