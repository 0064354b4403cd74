"""Arrow files of which Arrow's readers see only a part, or too much."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recension.core.errors import FormatError
from recension.core.formats import arrow_ipc
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream

_BATCH = pa.record_batch({"_vs": [0, 2**32 - 1], "x": ["a", "b"]})
_FORMS = [pa.ipc.new_stream, pa.ipc.new_file]


def _packed(batch: pa.RecordBatch, form: Callable[..., Any], packing: str | None = None) -> bytes:
    sink = BytesIO()
    with form(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as writer:
        writer.write(batch)
        writer.write(batch)
    return sink.getvalue()


def _rows(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    reader = open_stream(path)
    return len(reconstitute(reader, reader.schema))


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("packing", [None, "zstd", "lz4"])
def test_sound(tmp_path: Path, form: Callable[..., Any], packing: str | None) -> None:
    words = pa.record_batch({"_vs": [1, 2], "x": pa.array(["a", "b"]).dictionary_encode(), "n": pa.nulls(2)})
    for batch in (_BATCH, words):
        assert _rows(tmp_path / "s.arrow", _packed(batch, form, packing)) == 4


def test_a_stream_that_something_follows(tmp_path: Path) -> None:
    stream = _packed(_BATCH, pa.ipc.new_stream)
    for rest in (stream, b"\0", b"garbage"):
        with pytest.raises(FormatError, match=r"s\.arrows: [\d,]+ bytes after the end of the stream"):
            _rows(tmp_path / "s.arrows", stream + rest)


def test_a_stream_that_is_cut_between_messages(tmp_path: Path) -> None:
    numbers = _BATCH.select(["_vs"])  # ends with bytes that look like an end mark
    for batch in (_BATCH, numbers):
        stream = _packed(batch, pa.ipc.new_stream)
        with pytest.raises(FormatError, match=r"s\.arrows: cut off: the stream has no end mark"):
            _rows(tmp_path / "s.arrows", stream[:-8])
        with pytest.raises(FormatError):
            _rows(tmp_path / "s.arrows", stream[:-4])


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("packing", ["zstd", "lz4"])
def test_a_batch_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[..., Any], packing: str
) -> None:
    zeros = pa.array(np.zeros(1 << 17, np.int64))
    words = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), zeros)
    batches = pa.record_batch({"_vs": zeros}), pa.record_batch({"_vs": [1], "x": words})
    monkeypatch.setattr(arrow_ipc, "LARGEST", (1 << 20) - 1)
    for batch in batches:
        data = _packed(batch, form, packing)
        assert len(data) < 1 << 17
        with pytest.raises(FormatError, match=r"s\.arrow: a record batch of 1,048,[\d]+ bytes when unpacked"):
            _rows(tmp_path / "s.arrow", data)
