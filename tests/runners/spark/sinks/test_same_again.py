"""A micro-batch that is written again writes the same: names, bytes and times, whoever comes first.

The whole pipeline on Spark, lake tables and recordings too: `stream/test_again.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from tests.runners.spark.sinks import again
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised
from tests.runners.spark.stream.processes import ROOT

from recension.core.formats import read_history
from recension.core.formats.manifest import FOLDER, LAST, current_manifest, manifest_path
from recension.runners.spark.sinks import changelog, history_table, revision, table_files
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.files import SealedName, write_parquet
from recension.runners.spark.sinks.history_table import HistoryTable

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FULL", 60), ("SMALLEST", 4), ("FAN_IN", 3)):
        monkeypatch.setattr(revision, name, value)


def test_every_attempt_writes_the_same_bytes_under_the_same_names(tmp_path: Path) -> None:
    """In another process, with another hash seed; rows, tasks and Arrow batches come in another way."""
    again.write(tmp_path / "one", 1)
    written = subprocess.run(
        [sys.executable, "-m", "tests.runners.spark.sinks.again", str(tmp_path / "two"), "2"],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        check=True,
    )
    one, two = again.digests(tmp_path / "one"), json.loads(written.stdout)
    assert len(one) > again.BATCHES
    assert one == two
    assert_same(read(tmp_path / "one" / "table"), prefixes(revised(0, again.BATCHES))[-1])


def test_a_task_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    """It writes when another attempt has committed, and the next micro-batch after it."""
    batches, rng = revised(1, 4), np.random.default_rng(0)
    for number, events in enumerate(batches):
        batch = again.given(events, number, rng)
        for sink in (Changelog(tmp_path / "log"), HistoryTable(tmp_path / "table", 0, again.BUCKETS)):
            with sink.hold(batch) as late:
                pass  # this driver dies
            with sink.hold(batch) as writer:
                assert late is not None
                again.commit_parts(sink, writer, batch, rng)
            before = again.digests(tmp_path)
            for bucket, part in again.parts_of(batch, rng):
                late.write(part, bucket, again.BUCKETS)
            after = again.digests(tmp_path)
            assert before.items() <= after.items()
    expected = prefixes(batches)[-1]
    for name in ("log", "table"):
        assert_same(read(tmp_path / name), expected)
    # What came late and counts nowhere goes when a writer begins.
    Changelog(tmp_path / "log").apply(fed(batches[-1], len(batches) - 1, content="content 3"))
    HistoryTable(tmp_path / "table", 0).apply(fed(batches[-1], len(batches) - 1, content="content 3"))
    manifest = current_manifest(tmp_path / "table")
    assert manifest is not None
    manifests = {manifest_path(tmp_path, manifest.number - back).name for back in (0, 1)}
    assert {f.name for f in (tmp_path / "table" / FOLDER).iterdir()} == (
        manifest.all_files() | manifests | {LAST, ".lock"}
    )
    assert [f.name for f in (tmp_path / "log" / "_tmp").iterdir()] == [".lock"]


def test_what_an_earlier_release_has_written_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named files at random, and took the time of a commit, which is after the one that was planned."""
    batches, number = revised(3, 9), count()

    def at_random(folder: Path, prefix: str, *rows: Any) -> SealedName:
        name = f"{prefix.partition('-')[0]}-{uuid4().hex}.parquet"
        return SealedName(name, write_parquet(folder / name, *rows))

    def go_on(files: int, later: int) -> None:
        for at in islice(number, files):
            batch = fed(batches[at], at, at=again.PLANNED + at * SECOND + later)
            for sink in (Changelog(tmp_path / "log"), HistoryTable(tmp_path / "table", keep=3600)):
                sink.apply(batch)

    with monkeypatch.context() as earlier:
        for module in (changelog, history_table, table_files):
            earlier.setattr(module, "write_named", at_random)
        go_on(5, later=2 * SECOND)
    go_on(4, later=0)
    expected = prefixes(batches)
    for name in ("log", "table"):
        assert_same(read(tmp_path / name), expected[-1])
    for version in range(1, 10):
        assert_same(read_history(tmp_path / "table", version=version), expected[version - 1])


@pytest.mark.parametrize("hours", [0, 5])
def test_a_version_stays_though_its_successor_was_planned_long_ago(tmp_path: Path, hours: int) -> None:
    """A micro-batch bears the time for which it was planned; its driver died, and it was run hours later.

    Whoever read the version before it, until a moment ago, may go on reading.
    """
    batches = revised(2, 6)
    late = 5 * SECOND + 3600 * hours * SECOND
    planned = [SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND, late, late + 10 * SECOND]
    for number, (events, at) in enumerate(zip(batches[:5], planned, strict=False)):
        HistoryTable(tmp_path, keep=30).apply(fed(events, number, at=at))
    # The fourth was planned at 4 s and run just before the fifth was planned.
    assert_same(read_history(tmp_path, version=3), prefixes(batches)[2])
    HistoryTable(tmp_path, keep=30).apply(fed(batches[5], 5, at=planned[5]))
    assert_same(read_history(tmp_path, version=3), prefixes(batches)[2])
