"""Reading and writing streams in every format, beside pyarrow's own reading and writing of the same file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks.harness import Measurement, Suite
from benchmarks.streams import disordered_and_revised
from recension.core.batch import EventBatch
from recension.core.formats import write_stream
from recension.gate.files import open_stream

_MILLION = 1_000_000
_SUFFIXES = {"Parquet": "parquet", "Arrow": "arrow", "CSV": "csv", "JSON Lines": "jsonl"}


def _file(size: int, folder: Path, suffix: str) -> Path:
    return folder / f"{size}.{suffix}"


def _make_file(suffix: str) -> Callable[[int, Path], None]:
    def setup(size: int, folder: Path) -> None:
        batches = list(disordered_and_revised(size))
        write_stream(_file(size, folder, suffix), batches, batches[0].schema)

    setup.__name__ = f"make_{suffix}"
    return setup


def _read(path: Path, *, check_orphans: bool) -> int:
    return sum(len(batch) for batch in open_stream(path, check_orphans=check_orphans))


def _pyarrow_read(path: Path) -> int:
    match path.suffix:
        case ".parquet":
            table = pq.read_table(path, use_threads=False)
        case ".arrow":
            # Mapping the file would read nothing at all.
            with pa.OSFile(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
        case ".csv":
            table = pa.csv.read_csv(path, pa.csv.ReadOptions(use_threads=False))
        case _:
            table = pa.json.read_json(path, pa.json.ReadOptions(use_threads=False))
    return int(table.num_rows)


def _to_write(suffix: str) -> Callable[[int, Path], tuple[Path, list[EventBatch]]]:
    return lambda size, folder: (_file(size, folder, suffix), list(disordered_and_revised(size)))


def _write(stream: tuple[Path, list[EventBatch]]) -> int:
    path, batches = stream
    return write_stream(path, batches, batches[0].schema)


def _table_to_write(suffix: str) -> Callable[[int, Path], tuple[Path, pa.Table]]:
    """The very rows of the stream file, in memory."""

    def load(size: int, folder: Path) -> tuple[Path, pa.Table]:
        path = folder / f"table-{size}.parquet"
        batches = list(disordered_and_revised(size))
        write_stream(path, batches, batches[0].schema)
        return folder / f"table-{size}.{suffix}", pq.read_table(path, use_threads=False)

    return load


def _pyarrow_write(stream: tuple[Path, pa.Table]) -> int:
    path, table = stream
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
        case _:
            pa.csv.write_csv(table, path)
    return int(table.num_rows)


def _reading(name: str, suffix: str, sizes: tuple[int, ...], target: float | None) -> list[Measurement]:
    own = f"pyarrow reads {name}"
    shared: dict[str, Any] = {
        "setup": _make_file(suffix),
        "load": partial(_located, suffix=suffix),
        "sizes": sizes,
    }
    return [
        Measurement(
            f"{name}: read and check every retraction",
            run=partial(_read, check_orphans=True),
            against=(own,),
            **shared,
        ),
        Measurement(
            f"{name}: read into batches",
            run=partial(_read, check_orphans=False),
            against=(own,),
            target=target,
            **shared,
        ),
        Measurement(own, run=_pyarrow_read, **shared),
    ]


def _located(size: int, folder: Path, suffix: str) -> Path:
    return _file(size, folder, suffix)


def _writing(name: str, suffix: str, size: int) -> list[Measurement]:
    own = f"pyarrow writes {name}"
    # pyarrow writes no JSON: there is nothing to compare with.
    baseline = [Measurement(own, _table_to_write(suffix), _pyarrow_write, sizes=(size,))]
    write = Measurement(f"{name}: write", _to_write(suffix), _write, sizes=(size,), against=(own,))
    return [write, *(baseline if suffix != "jsonl" else [])]


_SIZES = {
    "parquet": (_MILLION, 2 * _MILLION, 4 * _MILLION),
    "arrow": (2 * _MILLION,),
    "csv": (_MILLION // 4,),
    "jsonl": (_MILLION // 4,),
}
_TARGETS = {"parquet": 5_000_000.0}

SUITE = Suite(
    "formats",
    "Stream files: 20 % disorder, 20 % of the events revised, payload = number + 16-byte text",
    tuple(
        measurement
        for name, suffix in _SUFFIXES.items()
        for measurement in (
            *_reading(name, suffix, _SIZES[suffix], _TARGETS.get(suffix)),
            *_writing(name, suffix, _SIZES[suffix][0]),
        )
    ),
)
