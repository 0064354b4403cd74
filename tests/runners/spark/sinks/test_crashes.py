"""Killed between any two steps on the disk, both sinks keep what was committed and go on from there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised

from recension.core.errors import RecensionError
from recension.core.formats.manifest import FOLDER, LAST, current_manifest, manifest_path
from recension.core.formats.parquet import ParquetSink
from recension.runners.spark.sinks import revision
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.files import writer_lock
from recension.runners.spark.sinks.history_table import HistoryTable


class Crash(BaseException):
    """The process dies here."""


class Fuse:
    """Lets so many steps on the disk happen, and no more: a dead process cleans nothing up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for owner, name in ((os, "fsync"), (os, "replace"), (Path, "unlink"), (ParquetSink, "close")):
            monkeypatch.setattr(owner, name, self._guarded(getattr(owner, name)))

    def _guarded(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*given: Any, **named: Any) -> Any:
            if not self.left:
                raise Crash
            self.left -= 1
            return step(*given, **named)

        return guarded


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    monkeypatch.setattr(revision, "FULL", 60)
    monkeypatch.setattr(revision, "SMALLEST", 4)
    monkeypatch.setattr(revision, "FAN_IN", 3)
    return Fuse(monkeypatch)


def test_a_history_table_survives_a_crash_at_every_step(tmp_path: Path, fuse: Fuse) -> None:
    batches = revised(2, 9, size=200)
    expected, crashes = prefixes(batches), 0
    for number, batch in enumerate(batches):
        for steps in range(1000):
            fuse.left = steps
            try:
                HistoryTable(tmp_path, keep=0).apply(fed(batch, number))
                break
            except Crash:
                crashes += 1
                manifest = current_manifest(tmp_path)
                done = -1 if manifest is None else manifest.batch
                assert done in (number - 1, number)
                if done >= 0:
                    assert_same(read(tmp_path), expected[done])
        assert_same(read(tmp_path), expected[number])
    assert crashes > 5 * len(batches)
    manifest = current_manifest(tmp_path)
    assert manifest is not None
    fuse.left = 1000
    HistoryTable(tmp_path, keep=0).apply(fed(batches[-1], len(batches) - 1))
    manifests = {manifest_path(tmp_path, manifest.number - back).name for back in (0, 1)}
    assert {f.name for f in (tmp_path / FOLDER).iterdir()} == {
        *(manifest.all_files() | manifests),
        *(LAST, ".lock"),
    }


def test_a_changelog_survives_a_crash_at_every_step(tmp_path: Path, fuse: Fuse) -> None:
    batches = revised(2, 5, size=200)
    expected = prefixes(batches)
    for number, batch in enumerate(batches):
        for steps in range(100):
            fuse.left = steps
            try:
                Changelog(tmp_path).apply(fed(batch, number))
                break
            except Crash:
                parts = sorted(tmp_path.glob("part-*.parquet"))
                assert len(parts) in (number, number + 1)
                if parts:
                    assert_same(read(tmp_path), expected[len(parts) - 1])
        assert_same(read(tmp_path), expected[number])
        assert steps > 2
    fuse.left = 100
    Changelog(tmp_path).apply(fed(batches[-1], len(batches) - 1))
    assert [f.name for f in (tmp_path / "_tmp").iterdir()] == [".lock"]


def test_the_writer_itself_goes_on_after_a_failure(tmp_path: Path, fuse: Fuse) -> None:
    """What the writer remembers of a failed attempt does not leak into the next one."""
    batches = revised(4, 8, size=200)
    table = HistoryTable(tmp_path, keep=0)
    for number, batch in enumerate(batches):
        fuse.left = 4 if number else 1000
        try:
            table.apply(fed(batch, number))
        except Crash:
            fuse.left = 1000
            table.apply(fed(batch, number))
    assert_same(read(tmp_path), prefixes(batches)[-1])


def test_a_reader_sees_whole_micro_batches_while_they_are_written(tmp_path: Path) -> None:
    batches = revised(5, 25)
    expected = prefixes(batches)
    table = HistoryTable(tmp_path, keep=60)
    table.apply(fed(batches[0], 0))

    def write() -> None:
        for number, batch in enumerate(batches):
            table.apply(fed(batch, number))

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while writer.is_alive():
        before = current_manifest(tmp_path)
        found = read(tmp_path)
        after = current_manifest(tmp_path)
        assert before is not None
        assert after is not None
        candidates = range(before.batch, after.batch + 1)
        matching = [n for n in candidates if sorted(found.identity()) == sorted(expected[n].identity())]
        assert matching, f"neither of {list(candidates)}"
        seen.update(matching)
    writer.join()
    assert len(seen) > 2


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    with (
        writer_lock(tmp_path / FOLDER, tmp_path),
        pytest.raises(RecensionError, match="another query is writing there"),
    ):
        HistoryTable(tmp_path, keep=0).apply(fed(revised(0, 1)[0], 0))
