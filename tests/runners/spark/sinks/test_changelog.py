"""The changelog without Spark: a directory that any reader of streams reads in the right order."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised

from recension.core.batch import concat, empty
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.changelog import MARK
from recension.gate.files import open_stream
from recension.runners.spark.sinks.changelog import Changelog
from recension.testing.generator.settings import SCHEMA


def test_the_changelog_is_the_stream(tmp_path: Path) -> None:
    """Element by element, in order; and after every micro-batch its history is that of the stream so far."""
    batches = revised(0, 8)
    log = Changelog(tmp_path)
    for number, (batch, expected) in enumerate(zip(batches, prefixes(batches), strict=True)):
        log.apply(fed(batch, number))
        log.apply(fed(batch, number))
        assert_same(read(tmp_path), expected)
    found = concat(list(open_stream(tmp_path))).to_elements()
    assert found == concat(batches).to_elements()


def test_a_file_is_never_changed_and_named_by_its_number(tmp_path: Path) -> None:
    batches = revised(0, 3)
    for number, batch in enumerate(batches):
        Changelog(tmp_path).apply(fed(batch, number))
    names = [f"part-{number:012}.parquet" for number in range(3)]
    assert sorted(f.name for f in tmp_path.glob("part-*")) == names
    before = [(tmp_path / name).stat().st_ino for name in names]
    Changelog(tmp_path).apply(fed(batches[2], 2))
    assert [(tmp_path / name).stat().st_ino for name in names] == before
    order = pq.read_table(tmp_path / names[1])["_seq"].to_pylist()
    assert order == sorted(order)


def test_a_micro_batch_without_rows_leaves_no_file(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    for number in range(3):
        log.apply(fed(empty(SCHEMA), number))
    assert len(list(tmp_path.glob("part-*"))) == 1
    assert len(read(tmp_path)) == 0


def test_what_a_changelog_refuses(tmp_path: Path) -> None:
    batch = revised(0, 1)[0]
    with pytest.raises(RecensionError, match="has already written micro-batches elsewhere"):
        Changelog(tmp_path / "a").apply(fed(batch, 2))
    Changelog(tmp_path / "a").apply(fed(batch, 0))
    with pytest.raises(RecensionError, match="changelog of another query"):
        Changelog(tmp_path / "a").apply(fed(batch, 1, query="another"))
    (tmp_path / "a" / MARK).write_text("{}")
    with pytest.raises(FormatError, match="not the mark of a changelog"):
        Changelog(tmp_path / "a").apply(fed(batch, 1))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.parquet").write_bytes(b"")
    with pytest.raises(RecensionError, match=r"not empty either: it has x\.parquet"):
        Changelog(tmp_path / "b").apply(fed(batch, 0))
