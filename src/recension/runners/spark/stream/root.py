"""A root: a folder whose sub-folders are streams that a merge reads, and small files on who comes and goes.

    root/
        a/                  a stream, as rc.spark.write_changelog writes it
            part-000000000000.parquet
        b/
        b.join              {"from_time": 1700000000000000}: b is complete for all that ends then or later
        a.leave             a does not count any more
        _feedback/          what the merge no longer wants of anybody

Everything goes through Spark's own log of files: a micro-batch that is run again sees the same files, and the
same words of who joins and leaves. So files must never change, and appear as a whole.
"""

from __future__ import annotations

import json
from functools import partial, reduce
from os import PathLike
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from recension.core.errors import RecensionError
from recension.core.formats.columns import TimeColumns
from recension.core.formats.listing import StoredFile, is_data_file
from recension.core.formats.reader import open_file
from recension.core.formats.stream_files import StreamFile, agreed_payload
from recension.core.ticks import TimeLike, instant
from recension.core.time_kind import OneKind, TimeKind, kind_of, merge_kinds
from recension.runners.spark.sinks.files import local_path, publish_text
from recension.runners.spark.stream.inputs import Input, found_files
from recension.runners.spark.stream.root_packing import JOIN, LEAVE, RootPacker
from recension.runners.spark.stream.topology import Inlet


def attach(root: str | PathLike[str], name: str, from_time: TimeLike) -> None:
    """Say, before the first file of a stream is in its sub-folder, from which time on it is complete.

    It then tells every event that ends at ``from_time`` or later, and moves nothing until the merge has come
    so far. A stream of which nobody says so is complete from the beginning.
    """
    times, since = OneKind(), instant(from_time)
    for file in _seen(local_path(root)):
        times.note(file.layout.kind, file.name)
    times.require(kind_of(since), f"attach {name}, from_time")
    _publish(root, name, JOIN, {"from_time": int(since)})


def detach(root: str | PathLike[str], name: str) -> None:
    """Let a stream leave the merge: what its sub-folder still gets is ignored."""
    _publish(root, name, LEAVE, {})


def _publish(root: str | PathLike[str], name: str, verb: str, words: dict[str, int]) -> None:
    if not name or name[0] in "_." or "/" in name:
        raise RecensionError(f"{name!r} is not the name of a sub-folder that a merge reads")
    folder = local_path(root)
    folder.mkdir(parents=True, exist_ok=True)
    publish_text(folder / f"{name}{verb}", json.dumps(words) + "\n")


def read_root(spark: SparkSession, root: Path, files: int | None, kind: TimeKind) -> Input:
    """All streams of a root as one input."""
    root.mkdir(parents=True, exist_ok=True)
    frame = found_files(spark, root, files, recursiveFileLookup="true")
    return Input(frame, Inlet(is_root=True), kind, partial(RootPacker, root=root))


def seen_columns(root: Path) -> tuple[pa.Schema, TimeKind]:
    """The payload and the kind of times of the streams that are there."""
    known = _seen(root)
    if not known:
        raise RecensionError(f"{root}: no stream is there yet whose columns could be seen; give schema=")
    return agreed_payload(known, None), reduce(merge_kinds, (file.layout.kind for file in known), None)


def _seen(root: Path) -> list[StreamFile]:
    files = [_opened(folder) for folder in sorted(root.glob("[!_.]*/"))] if root.is_dir() else []
    return [file for file in files if file is not None and file.rows.schema.names]


def _opened(folder: Path) -> StreamFile | None:
    """The first file of a stream."""
    files = sorted(file for file in folder.iterdir() if is_data_file(file))
    return open_file(StoredFile(files[0]), TimeColumns(), None) if files else None
