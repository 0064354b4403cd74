"""A checkpoint that was put back: what the tables have already is skipped or refused, never mixed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.runners.spark.sinks.feeding import assert_same, prefixes, read, revised
from tests.runners.spark.sinks.test_queries import NOW, put, stream

import recension as rc
from recension.cli import main
from recension.core.batch import from_elements
from recension.core.errors import RecensionError
from recension.runners.spark.sinks.checkpoint import HadoopFiles, LocalFiles
from recension.testing.generator.settings import SCHEMA

REFUSED = r"micro-batch 2 was made of other input than the checkpoint's.* restore the table and"


def run(spark: Any, folder: Path) -> str:
    """Take all files there are; what stopped the query, in one line."""
    where: dict[str, Any] = {"changelog": folder / "log", "history": folder / "table"}
    query = rc.spark.write(stream(spark, folder / "in"), **where, checkpoint=folder / "ck", trigger=NOW)
    try:
        query.awaitTermination()
    except StreamingQueryException as why:
        return rc.spark.reason_of(why)
    return ""


def state_of(folder: Path) -> dict[str, bytes]:
    """Every file of both tables."""
    files = [f for name in ("log", "table") for f in (folder / name).rglob("*") if f.is_file()]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def forget(checkpoint: Path, first: int) -> None:
    """Take micro-batches out of a checkpoint, as if it had been restored from an older backup."""
    for log in ("commits", "offsets", "sources/0"):
        for file in (checkpoint / log).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                file.unlink()


def test_a_checkpoint_that_went_back(spark: Any, tmp_path: Path) -> None:
    """With the same input it goes on; with another neither table is touched."""
    batches = revised(6, 5, size=200)
    put(tmp_path / "in", batches[:4])
    assert run(spark, tmp_path) == ""
    forget(tmp_path / "ck", 2)
    put(tmp_path / "in", batches[4:], 4)
    assert run(spark, tmp_path) == ""
    for name in ("log", "table"):
        assert_same(read(tmp_path / name), prefixes(batches)[-1])

    forget(tmp_path / "ck", 2)
    put(tmp_path / "in", [batches[4]], 2)
    os.utime(tmp_path / "in" / "0002.parquet", (1_000_100, 1_000_100))
    before = state_of(tmp_path)
    refused = run(spark, tmp_path)
    assert "\n" not in refused
    assert re.search(REFUSED, refused)
    assert state_of(tmp_path) == before


def test_a_changelog_that_lacks_a_file(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the middle, of events that nothing corrects: noticed by the command, and by the query."""
    events = [rc.Insert({"value": n, "text": "x"}, n, n + 5) for n in range(5)]
    batches = [from_elements([event], SCHEMA) for event in events]
    put(tmp_path / "in", batches[:4])
    assert run(spark, tmp_path) == ""
    sorted((tmp_path / "log").glob("*.parquet"))[1].unlink()
    capsys.readouterr()
    for command in ("check", "history"):
        assert main([command, str(tmp_path / "log")]) == 2
        assert "part-000000000001.parquet is missing" in capsys.readouterr().err
    put(tmp_path / "in", batches[4:], 4)
    with pytest.raises(RecensionError, match="is missing; restore it from a backup"):
        run(spark, tmp_path)


def test_files_are_read_alike_from_any_file_system(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\nümläute")
    here, there = LocalFiles(tmp_path), HadoopFiles(spark, f"file:{tmp_path}")
    for name in ("offsets/0", "offsets/1", "nowhere/0"):
        assert here.text(name) == there.text(name)
    for folder in ("offsets", "nowhere"):
        assert here.names(folder) == there.names(folder)
    with pytest.raises(RecensionError, match=r"nowhere://x: the checkpoint cannot be read: No FileSystem"):
        HadoopFiles(spark, "nowhere://x")
