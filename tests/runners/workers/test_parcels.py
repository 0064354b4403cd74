"""Messages through shared memory: what is read is what was written, however large the one before was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recension.core.batch import EventBatch, concat, cti, inserts
from recension.runners.workers import parcels
from recension.runners.workers.parcels import Parcel


def _batch(size: int) -> EventBatch:
    columns = {"k": [f"key {i % 7}" for i in range(size)], "d": pa.array(["x"] * size).dictionary_encode()}
    payload = pa.RecordBatch.from_pydict(columns)
    rows = inserts(np.arange(size), np.arange(size) + 3, payload)
    return concat([rows, cti(size, payload.schema)])


def _plain(message: list[Any]) -> list[Any]:
    batch, table, array, words = message
    return [batch.to_elements(), table.to_pylist(), array.tolist(), words]


@pytest.mark.parametrize("is_borrowed", [False, True])
def test_messages_of_any_size_come_as_they_were_sent(
    monkeypatch: pytest.MonkeyPatch, is_borrowed: bool
) -> None:
    monkeypatch.setattr(parcels, "_KEPT", 1 << 10)
    parcel = Parcel()
    for size in (1, 3000, 0, 2, 5000, 40):
        table = pa.table({"v": np.arange(2 * size)}).slice(size)
        message = [_batch(size), table, np.arange(size, dtype=np.int32), {"size": size}]
        found = parcel.read(parcel.write(message), is_borrowed=is_borrowed)
        assert _plain(found) == _plain(message)
    parcel.close()
