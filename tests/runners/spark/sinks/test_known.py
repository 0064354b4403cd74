"""What a table makes of a number that it has: skipped if it was made of the same, refused if not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.runners.spark.sinks.feeding import QUERY, assert_same, fed, prefixes, read, revised

from recension.core.errors import FormatError, RecensionError, SchemaError
from recension.core.formats.changelog import MARK, part_path
from recension.core.formats.manifest import manifest_path
from recension.runners.spark.sinks import micro_batch
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable

Sink = Changelog | HistoryTable
SINKS: list[Callable[[Path], Sink]] = [Changelog, lambda path: HistoryTable(path, keep=0)]
BATCHES = revised(8, 6, size=120)
REMEDY = "restore the table and the checkpoint from the same backup, or start with a new path and a new"


def filled(make: Callable[[Path], Sink], path: Path, upto: int = 4) -> None:
    sink = make(path)
    for number, batch in enumerate(BATCHES[:upto]):
        sink.apply(fed(batch, number, content=f"c{number}"))


def files_in(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


@pytest.mark.parametrize("make", SINKS)
@pytest.mark.parametrize("is_reopened", [True, False])
def test_other_content_under_a_number_that_is_there(
    tmp_path: Path, make: Callable[[Path], Sink], is_reopened: bool
) -> None:
    sink = make(tmp_path)
    for number, batch in enumerate(BATCHES[:4]):
        sink.apply(fed(batch, number, content=f"c{number}"))
    sink = make(tmp_path) if is_reopened else sink
    before = files_in(tmp_path)
    for number in range(4):
        again = fed(BATCHES[number], number, content=f"c{number}")
        sink.check(again)
        sink.apply(again)
        other = fed(BATCHES[number], number, content="other")
        for attempt in (sink.check, sink.apply):
            with pytest.raises(RecensionError, match=f"micro-batch {number} was made of other .*{REMEDY}"):
                attempt(other)
    assert files_in(tmp_path) == before
    sink.apply(fed(BATCHES[4], 4, content="c4"))
    assert_same(read(tmp_path), prefixes(BATCHES)[4])


@pytest.mark.parametrize("make", SINKS)
def test_one_that_follows_another_than_the_last(tmp_path: Path, make: Callable[[Path], Sink]) -> None:
    """The checkpoint has gone on elsewhere, and comes back."""
    filled(make, tmp_path)
    with pytest.raises(RecensionError, match="micro-batch 3 was made of other input"):
        make(tmp_path).apply(fed(BATCHES[4], 4, content="c4", before="other"))
    make(tmp_path).apply(fed(BATCHES[4], 4, content="c4", before="c3"))
    with pytest.raises(RecensionError, match=f"has 5 micro-batches, and the next one has number 6.*{REMEDY}"):
        make(tmp_path).apply(fed(BATCHES[5], 6, content="c6"))


@pytest.mark.parametrize("make", SINKS)
def test_longer_ago_than_a_table_remembers(
    tmp_path: Path, make: Callable[[Path], Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batch, "REMEMBERED", 2)
    filled(make, tmp_path)
    make(tmp_path).apply(fed(BATCHES[2], 2, content="c2"))
    with pytest.raises(RecensionError, match=r"number 1 comes again, which is longer ago than it"):
        make(tmp_path).apply(fed(BATCHES[1], 1, content="c1"))


def test_a_part_whose_writer_was_killed_before_the_mark(tmp_path: Path) -> None:
    """Only the part itself says what it was made of."""
    filled(Changelog, tmp_path, 3)
    mark = (tmp_path / MARK).read_bytes()
    Changelog(tmp_path).apply(fed(BATCHES[3], 3, content="c3"))
    (tmp_path / MARK).write_bytes(mark)
    assert_same(read(tmp_path), prefixes(BATCHES)[3])
    with pytest.raises(RecensionError, match="micro-batch 3 was made of other input"):
        Changelog(tmp_path).apply(fed(BATCHES[3], 3, content="other"))
    written = part_path(tmp_path, 3).stat().st_ino
    Changelog(tmp_path).apply(fed(BATCHES[3], 3, content="c3"))
    assert part_path(tmp_path, 3).stat().st_ino == written
    Changelog(tmp_path).apply(fed(BATCHES[4], 4, content="c4"))
    assert_same(read(tmp_path), prefixes(BATCHES)[4])


def test_tables_of_an_earlier_version_are_read_and_not_written(tmp_path: Path) -> None:
    """They carry no record of what their micro-batches were made of."""
    log, table = tmp_path / "log", tmp_path / "table"
    filled(Changelog, log)
    filled(SINKS[1], table)
    (log / MARK).write_text('{"format": "recension changelog 1", "query": "the query"}')
    for file in (manifest_path(table, number) for number in (3, 4)):
        _without_seals(file)
    for path, make in zip((log, table), SINKS, strict=True):
        assert_same(read(path), prefixes(BATCHES)[3])
        with pytest.raises(FormatError, match=r"format 'recension \w+ 1', to which this version .* new path"):
            make(path).apply(fed(BATCHES[4], 4, content="c4"))


def _without_seals(file: Path) -> None:
    stored = json.loads(file.read_text())
    for name in ("digest", "recent", "schema_seal"):
        del stored[name]
    for entry in (*stored["files"], *stored["deletions"]):
        del entry["seal"]
    file.write_text(json.dumps({**stored, "format": "recension history 1"}))


def test_what_is_known_before_anything_runs(tmp_path: Path) -> None:
    """Whose a directory is, which columns it has, and whether all of it is there; nothing is written."""
    columns = fed(BATCHES[0], 0).rows.schema
    for name, make in zip(("log", "table"), SINKS, strict=True):
        path = tmp_path / name
        make(path).check_owner(None, False, columns)
        with pytest.raises(RecensionError, match="already written micro-batches elsewhere"):
            make(path).check_owner(QUERY, True, columns)
        assert not path.exists()
        filled(make, path)
        make(path).check_owner(QUERY, True, columns)
        for query in (None, "another"):
            with pytest.raises(RecensionError, match="of another query"):
                make(path).check_owner(query, False, columns)
        with pytest.raises(SchemaError, match="the table has a column value int64 where now value string"):
            make(path).check_owner(QUERY, True, columns.set(5, pa.field("value", pa.string())))
    with pytest.raises(RecensionError, match=r"not a history table, but not empty either: it has _changelog"):
        SINKS[1](tmp_path / "log").check_owner(None, False, columns)
    with pytest.raises(RecensionError, match="not a changelog, but not empty either: it has _history"):
        Changelog(tmp_path / "table").check_owner(None, False, columns)
    (tmp_path / "file").write_text("")
    for make in SINKS:
        with pytest.raises(RecensionError, match="file: not a directory"):
            make(tmp_path / "file").check_owner(None, False, columns)
    part_path(tmp_path / "log", 1).unlink()
    with pytest.raises(FormatError, match="is missing"):
        Changelog(tmp_path / "log").check_owner(QUERY, True, columns)
