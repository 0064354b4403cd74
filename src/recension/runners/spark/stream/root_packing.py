"""The files of a root into packets: what each stream says, and who joins and leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError, TimeError
from recension.core.formats.files import format_errors
from recension.core.formats.listing import SPARK_LOG
from recension.core.ticks import BEGINNING, instant
from recension.runners.spark.stream.joining import COMES, JOINS, LEAVES, word
from recension.runners.spark.stream.packets import Packet
from recension.runners.spark.stream.packing import FilePacker, Packing, paths_of
from recension.runners.spark.stream.topology import Topology

JOIN: Final = ".join"
LEAVE: Final = ".leave"


class RootPacker(FilePacker):
    """The files of all streams, and the words about them, into packets."""

    def __init__(self, topology: Topology, source: str, level: int, keys: list[int], *, root: Path) -> None:
        super().__init__(topology, source, level, keys)
        self._root = root

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        comers: dict[Path, None] = {}
        for path in paths_of(batches):
            folders = path.relative_to(self._root).parts[:-1]
            if not folders:
                yield from packing.tell(words_in(path), str(path))
            elif len(folders) > 1:
                raise FormatError("a folder inside a stream's folder", file=str(path))
            else:
                comers[path.parent] = None
                _require_whole(path.parent)
                yield from packing.read(path)
        for folder in comers:
            # A shard may get nothing of a stream, and must count it all the same.
            yield from packing.tell(word(COMES, folder.name), str(folder))


def words_in(path: Path) -> str:
    """What a small file says of who joins or leaves."""
    name, verb = path.stem, path.suffix
    if verb == LEAVE:
        return word(LEAVES, name)
    if verb != JOIN:
        raise FormatError("neither in a stream's folder nor called NAME.join or NAME.leave", file=str(path))
    with format_errors(str(path)):
        text = path.read_text(encoding="utf-8")
    try:
        since = json.loads(text)["from_time"]
        return word(JOINS, name, BEGINNING if since is None else instant(since))
    except (ValueError, KeyError, TypeError, TimeError):
        raise FormatError('it must hold {"from_time": TIME}', file=str(path)) from None


def _require_whole(folder: Path) -> None:
    """Spark's own sink leaves files of failed attempts: which ones count is known only later."""
    if (folder / SPARK_LOG).is_dir():
        raise FormatError(
            "written by Spark's file sink, where files may not count; write it with rc.spark.write_changelog",
            file=str(folder),
        )
