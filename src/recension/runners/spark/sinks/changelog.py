"""The changelog: every element a query put out, one Parquet file per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last one perhaps again.
Guarantees  a file has a micro-batch's rows in the order of ``(_batch, _seq)``; it appears complete, under a
            name that only its number decides, and is never changed, so that a directory read at any time is
            a prefix of the stream, and another streaming query may read it as it grows.
State       none: the file is the proof that its micro-batch was written.
Cost        O(n) for n rows, and two fsyncs.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.place import reading
from recension.runners.spark.sinks.durable import locked, publish, publish_text, write_parquet
from recension.runners.spark.sinks.micro_batch import MicroBatch

FORMAT: Final = "recension changelog 1"
MARK: Final = "_changelog.json"


class Changelog:
    """Appends to one directory."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path / "_tmp"
        self._owner: str | None = None

    def apply(self, batch: MicroBatch) -> None:
        """Write a micro-batch, unless it is there already."""
        with locked(self._partial, self._path):
            if self._owner is None:
                self._clean()
                self._owner = _claim(self._path, batch)
            if self._owner != batch.query:
                raise RecensionError(f"{self._path}: the changelog of another query; give each its own path")
            target = self._path / f"part-{batch.number:012}.parquet"
            # Without rows there is nothing to say, but the first file tells readers the columns.
            if target.exists() or (batch.number and not len(batch.rows)):
                return
            partial = self._partial / f"{uuid4().hex}.parquet"
            write_parquet(partial, [batch.rows], batch.rows.schema)
            publish(partial, target)

    def _clean(self) -> None:
        for leftover in self._partial.glob("*.parquet"):
            with suppress(FileNotFoundError):
                leftover.unlink()


def _claim(path: Path, batch: MicroBatch) -> str:
    """The query whose changelog this is: the first to write there, and from its first micro-batch on."""
    mark = path / MARK
    if mark.exists():
        return _owner(mark)
    if foreign := [f.name for f in path.iterdir() if f.name[0] not in "_."]:
        raise RecensionError(f"{path}: not a changelog, but not empty either: it has {foreign[0]}")
    if batch.number:
        raise RecensionError(
            f"{path}: this checkpoint has already written {batch.number} micro-batches elsewhere; "
            "a changelog starts with its query: use a new checkpoint"
        )
    publish_text(mark, json.dumps({"format": FORMAT, "query": batch.query}))
    return batch.query


def _owner(mark: Path) -> str:
    with reading(str(mark)):
        text = mark.read_text(encoding="utf-8")
    try:
        stored = json.loads(text)
        if stored["format"] == FORMAT:
            return str(stored["query"])
    except (ValueError, KeyError, TypeError):
        pass
    raise FormatError(f"not the mark of a changelog of the format {FORMAT!r}", file=str(mark))
