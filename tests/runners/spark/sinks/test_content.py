"""What a micro-batch is made of, as the logs of a checkpoint say: offsets, and the files behind a count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recension.core.errors import FormatError
from recension.runners.spark.sinks.checkpoint import (
    InputLog,
    LocalFiles,
    clear_unfinished_plan,
    source_numbers,
)

QUERY = "the query"


def offsets(checkpoint: Path, number: int, *lines: str) -> None:
    """The log of a micro-batch's offsets; its second line differs with every attempt to plan it."""
    file = checkpoint / "offsets" / str(number)
    file.parent.mkdir(parents=True, exist_ok=True)
    planned = json.dumps({"batchTimestampMs": file.parent.stat().st_mtime_ns, "conf": {}})
    file.write_text("\n".join(["v1", planned, *lines]))


def source_log(checkpoint: Path, name: str, *entries: tuple[str, int], source: int = 0) -> None:
    """The log of a file source: names of files, and the number under which each was taken."""
    file = checkpoint / "sources" / str(source) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f'{{"path":"file:///in/{path}","timestamp":7,"batchId":{number}}}' for path, number in entries]
    file.write_text("\n".join(["v1", *lines]))


def counted(number: int) -> str:
    return f'{{"logOffset":{number}}}'


def content(checkpoint: Path, number: int, sources: tuple[int, ...] = (0,), query: str = QUERY) -> str:
    return InputLog(LocalFiles(checkpoint), query, sources).contents(number)[0]


def test_offsets_say_all(tmp_path: Path) -> None:
    """Planned again with the same offsets it is the same; other offsets, numbers or queries are not."""
    offsets(tmp_path, 0, '{"t":{"0":5}}', "-")
    first = content(tmp_path, 0)
    (tmp_path / "offsets" / "0").unlink()
    offsets(tmp_path, 0, '{"t":{"0":5}}', "-")
    assert content(tmp_path, 0) == first
    assert content(tmp_path, 0, query="another") != first
    offsets(tmp_path, 0, '{"t":{"0":6}}', "-")
    assert content(tmp_path, 0) != first
    offsets(tmp_path, 1, '{"t":{"0":5}}', "-")
    assert content(tmp_path, 1) != first


def test_when_it_was_planned(tmp_path: Path) -> None:
    """In microseconds; 0 where an early Spark has not noted it."""
    file = tmp_path / "offsets" / "0"
    file.parent.mkdir()
    for noted, at in (
        ('{"batchWatermarkMs":0,"batchTimestampMs":1700000000123}', 1_700_000_000_123_000),
        ('{"batchWatermarkMs":0}', 0),
        ("", 0),
    ):
        file.write_text(f"v1\n{noted}\n-")
        assert InputLog(LocalFiles(tmp_path), QUERY, ()).planned_at(0) == at
    file.write_text("v1")
    with pytest.raises(FormatError, match="offsets of micro-batch 0 are damaged"):
        InputLog(LocalFiles(tmp_path), QUERY, ()).planned_at(0)


def test_a_count_of_files_stands_for_their_names(tmp_path: Path) -> None:
    offsets(tmp_path, 0, counted(0))
    offsets(tmp_path, 1, counted(2))
    for number, name in enumerate("abc"):
        source_log(tmp_path, str(number), (name, number))
    contents = [content(tmp_path, number) for number in (0, 1)]
    # Both of the second's files count, the first's does not.
    for number, changed in ((1, [False, True]), (2, [False, True]), (0, [True, False])):
        kept = (tmp_path / "sources" / "0" / str(number)).read_text()
        source_log(tmp_path, str(number), ("other", number))
        assert [content(tmp_path, n) != contents[n] for n in (0, 1)] == changed
        (tmp_path / "sources" / "0" / str(number)).write_text(kept)


def test_compacted_logs_say_the_same(tmp_path: Path) -> None:
    entries = [(f"file{number}", number) for number in range(12)]
    for number, entry in enumerate(entries):
        offsets(tmp_path, number, counted(number))
        source_log(tmp_path, str(number), entry)
    contents = [content(tmp_path, number) for number in range(12)]
    for number in range(10):
        (tmp_path / "sources" / "0" / str(number)).unlink()
    source_log(tmp_path, "9.compact", *entries[:10])
    assert [content(tmp_path, number) for number in range(12)] == contents


def test_a_source_that_is_read_twice_has_one_log(tmp_path: Path) -> None:
    """Its line is there twice; the log of the next source is the next."""
    offsets(tmp_path, 0, counted(0), counted(0), counted(0))
    source_log(tmp_path, "0", ("a", 0), source=0)
    source_log(tmp_path, "0", ("b", 0), source=1)
    first = content(tmp_path, 0, (0, 0, 1))
    source_log(tmp_path, "0", ("c", 0), source=1)
    assert content(tmp_path, 0, (0, 0, 1)) != first


class Running:
    """A query of Spark's, with the sources of its plan in their order."""

    def __init__(self, *sources: str) -> None:
        self._sources = sources

    def sources(self) -> Running:
        return self

    def size(self) -> int:
        return len(self._sources)

    def apply(self, at: int) -> Running:
        return Running(self._sources[at])

    def getClass(self) -> Running:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._sources[0]

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._sources[0])


def test_sources_are_numbered_once_each() -> None:
    assert source_numbers(Running("a", "a", "b", "a", "c")) == [0, 0, 1, 0, 2]


def test_the_one_before(tmp_path: Path) -> None:
    """Known from the log of the same run, from the checkpoint, or not at all."""
    for number in range(4):
        offsets(tmp_path, number, str(number))
    running = InputLog(LocalFiles(tmp_path), QUERY, (0,))
    told = [running.contents(number) for number in range(4)]
    assert [before for _, before in told] == [None, *(one for one, _ in told[:3])]
    fresh = InputLog(LocalFiles(tmp_path), QUERY, (0,))
    assert fresh.contents(3) == told[3]
    (tmp_path / "offsets" / "1").unlink()
    assert InputLog(LocalFiles(tmp_path), QUERY, (0,)).contents(3) == (told[3][0], None)


def test_offsets_that_cannot_be(tmp_path: Path) -> None:
    offsets(tmp_path, 0, counted(10**12))
    with pytest.raises(FormatError, match="damaged"):
        content(tmp_path, 0)
    offsets(tmp_path, 0, "[" * 100_000)
    assert content(tmp_path, 0)


def test_offsets_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="lacks the offsets of micro-batch 3"):
        content(tmp_path, 3)


def test_a_plan_that_was_not_finished_is_cleared_away(tmp_path: Path) -> None:
    """The first one alone: Spark would refuse every later start. Nothing else is touched."""
    folder, files = tmp_path / "offsets", LocalFiles(tmp_path)
    clear_unfinished_plan(files)
    folder.mkdir()
    unfinished = [".0.849c3b32-8e00.tmp", "..0.849c3b32-8e00.tmp.crc"]
    for name in [*unfinished, "notes.txt", ".hidden"]:
        (folder / name).touch()
    clear_unfinished_plan(files)
    assert sorted(files.names("offsets")) == [".hidden", "notes.txt"]
    for name in [*unfinished, "0"]:
        (folder / name).touch()
    clear_unfinished_plan(files)
    assert set(unfinished) < set(files.names("offsets"))
