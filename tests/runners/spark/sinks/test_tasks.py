"""Micro-batches written by tasks, without Spark: each writes a bucket, some twice, some die, one commit."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised
from tests.runners.spark.sinks.test_crashes import Crash, Fuse

from recension.core.batch import CTI, EventBatch, concat, empty, from_elements
from recension.core.errors import FormatError, RecensionError, StreamError
from recension.core.events import Cti, Insert, Retract
from recension.core.formats.changelog import MARK, read_mark
from recension.core.formats.files import require_seal, to_sealed_json
from recension.core.formats.manifest import FOLDER, LAST, current_manifest, manifest_path
from recension.core.rowhash import combine, row_hash
from recension.core.validity import Checker
from recension.gate.files import open_stream
from recension.runners.spark.sinks import revision, table_files
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.sinks.micro_batch import MicroBatch
from recension.testing.generator.settings import SCHEMA

Sink = Changelog | HistoryTable
BUCKETS = 3
SINKS: list[Callable[[Path], Sink]] = [Changelog, lambda path: HistoryTable(path, keep=0, buckets=BUCKETS)]


class TaskError(Exception):
    """A task fails after it has written."""


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "FULL", 60)
    monkeypatch.setattr(revision, "SMALLEST", 4)
    monkeypatch.setattr(revision, "FAN_IN", 3)


def buckets_of(batch: MicroBatch) -> list[MicroBatch]:
    """The rows of each bucket, by another hash than Spark's: it is the sink's business to rely on none."""
    events = batch.events()
    place = combine(row_hash(events.payload, len(events)), events.vs) % np.uint64(BUCKETS)
    is_cti = events.kind == CTI
    rows = [np.flatnonzero(is_cti | (place == bucket)) for bucket in range(BUCKETS)]
    return [replace(batch, rows=batch.rows.take(pa.array(at))) for at in rows]


def apply_by_tasks(
    sink: Sink, batch: MicroBatch, twice: frozenset[int] = frozenset(), dies: bool = False
) -> None:
    """As the driver does; the tasks of some buckets are attempted twice, and either attempt may count."""
    header = replace(batch, rows=batch.rows.slice(0, 0))
    sink.check(header)
    with sink.hold(header) as writer:
        if writer is None:
            return
        task: Any = pickle.loads(pickle.dumps(writer))
        written = []
        for bucket, rows in enumerate(buckets_of(batch)):
            attempts = [task.write(rows, bucket, BUCKETS) for _ in range(1 + (bucket in twice))]
            if len(rows.rows) and attempts[bucket % len(attempts)] is not None:
                written.append(attempts[bucket % len(attempts)])
        if dies:
            raise TaskError
        sink.commit(header, pickle.loads(pickle.dumps(written)))


@pytest.mark.parametrize("make", SINKS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_any_mixture_of_writers(
    tmp_path: Path, small_files: None, make: Callable[[Path], Sink], seed: int
) -> None:
    """The driver, tasks, tasks that run twice or die after writing, and restarts: always the history."""
    batches, draw = revised(seed, 25), random.Random(seed)
    batches.insert(4, empty(SCHEMA))
    sink = make(tmp_path)
    histories = prefixes(batches)
    for number, (batch, expected) in enumerate(zip(batches, histories, strict=True)):
        sink = make(tmp_path) if draw.random() < 0.3 else sink
        given = fed(batch, number, content=f"c{number}")
        if draw.random() < 0.3:
            with pytest.raises(TaskError):
                apply_by_tasks(sink, given, dies=True)
            if number:
                assert_same(read(tmp_path), histories[number - 1])
        if draw.random() < 0.3:
            sink.apply(given)
        else:
            apply_by_tasks(sink, given, frozenset(draw.sample(range(BUCKETS), draw.randrange(BUCKETS))))
        assert_same(read(tmp_path), expected)
        apply_by_tasks(sink, given)
    elements = concat(list(open_stream(tmp_path))).to_elements()
    assert make is not Changelog or elements == concat(batches).to_elements()


def test_what_attempts_have_left_is_cleared_away(tmp_path: Path, small_files: None) -> None:
    batches = revised(1, 6)
    for name, make in zip(("log", "table"), SINKS, strict=True):
        for number, batch in enumerate(batches):
            apply_by_tasks(make(tmp_path / name), fed(batch, number), frozenset(range(BUCKETS)))
        make(tmp_path / name).apply(fed(batches[-1], len(batches) - 1))
    assert [f.name for f in (tmp_path / "log" / "_tmp").iterdir()] == [".lock"]
    manifest = current_manifest(tmp_path / "table")
    assert manifest is not None
    manifests = {manifest_path(tmp_path, manifest.number - back).name for back in (0, 1)}
    there = {f.name for f in (tmp_path / "table" / FOLDER).iterdir()}
    assert there == manifest.all_files() | manifests | {LAST, ".lock"}
    assert manifest.buckets == BUCKETS
    assert {file.bucket for file in manifest.files} <= set(range(BUCKETS))


@pytest.mark.parametrize("make", SINKS)
def test_killed_at_every_step(
    tmp_path: Path, make: Callable[[Path], Sink], monkeypatch: pytest.MonkeyPatch, small_files: None
) -> None:
    """Whoever dies, readers see whole micro-batches, and the next driver, who may write alone, goes on."""
    fuse = Fuse(monkeypatch)
    batches = revised(2, 6, size=150)
    expected, crashes = prefixes(batches), 0
    for number, batch in enumerate(batches):
        for steps in range(1000):
            fuse.left = steps
            sink, given = make(tmp_path), fed(batch, number, content=f"c{number}")
            try:
                if steps % 5:
                    apply_by_tasks(sink, given)
                else:
                    sink.apply(given)
                break
            except Crash:
                crashes += 1
                _assert_whole(tmp_path, number, expected)
        fuse.left = 1000
        assert_same(read(tmp_path), expected[number])
    assert crashes > 5 * len(batches)


def _assert_whole(path: Path, number: int, expected: list[Any]) -> None:
    """After the micro-batch or before it."""
    try:
        found = read(path)
    except FormatError as why:
        if number or not re.search("nothing was (written|committed) yet|without data files", str(why)):
            raise
        return
    allowed = [expected[n] for n in (number - 1, number) if n >= 0]
    assert any(sorted(found.identity()) == sorted(one.identity()) for one in allowed) or not len(found)


def test_pieces_that_half_a_publication_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not count before the mark does; the same input finishes it, and no other."""
    batches = revised(3, 3)
    apply_by_tasks(Changelog(tmp_path), fed(batches[0], 0, content="c0"))
    replaced: list[Path] = []

    def stop(source: Path, target: Path) -> None:
        if target.name.startswith("part-"):
            if replaced:
                raise Crash
            replaced.append(target)
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda a, b: os.rename(a, b) if b.name == MARK else stop(a, b))
        with pytest.raises(Crash):
            apply_by_tasks(Changelog(tmp_path), fed(batches[1], 1, content="c1"))
    mark = read_mark(tmp_path)
    assert mark is not None
    assert mark.publishing is not None
    assert (tmp_path / mark.publishing.pieces[0].name).exists()
    assert_same(read(tmp_path), prefixes(batches)[0])
    for attempt in (Changelog(tmp_path).apply, lambda given: apply_by_tasks(Changelog(tmp_path), given)):
        with pytest.raises(RecensionError, match="micro-batch 1 was made of other input"):
            attempt(fed(batches[1], 1, content="other"))
    Changelog(tmp_path).apply(fed(batches[1], 1, content="c1"))
    Changelog(tmp_path).apply(fed(batches[2], 2, content="c2"))
    assert concat(list(open_stream(tmp_path))).to_elements() == concat(batches).to_elements()


def test_pieces_in_the_order_of_their_times_are_a_valid_stream(tmp_path: Path) -> None:
    """Whoever takes files as they appear, as Spark's file source does, gets no late element."""
    batches, log = revised(5, 8), Changelog(tmp_path)
    for number, batch in enumerate(batches):
        apply_by_tasks(log, fed(batch, number))
    checker, elements = Checker(), 0
    files = sorted(tmp_path.glob("part-*"), key=lambda file: file.stat().st_mtime_ns // 1_000_000)
    assert len(files) > len(batches)
    for file in files:
        for events in open_stream(file, schema=SCHEMA, check_orphans=False):
            elements += len(checker.check(events))
    assert elements == sum(map(len, batches))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_piece_is_noticed(tmp_path: Path, missing: int) -> None:
    """Of a part in the middle, and of the last."""
    batches = revised(5, 2)
    for number, batch in enumerate(batches):
        apply_by_tasks(Changelog(tmp_path), fed(batch, number))
    file = sorted(tmp_path.glob(f"part-{missing:012}-*"))[1]
    file.unlink()
    with pytest.raises(FormatError, match=f"{file.name} is missing"):
        read(tmp_path)


def test_a_bad_element_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    names = pa.schema([("name", pa.string())])
    table = HistoryTable(tmp_path, keep=0, buckets=BUCKETS)
    good = [Insert({"name": str(n)}, n, n + 9) for n in range(9)]
    apply_by_tasks(table, fed(from_elements([*good, Cti(4)], names), 0))
    before = read(tmp_path)
    for bad, reason in (
        (Retract({"name": "no"}, 1, 5, 4), "not there"),
        (Insert({"name": "late"}, 3, 9), "breaks an earlier cti"),
    ):
        for elements in ([bad, *good[4:]], [*good[4:], bad]):
            with pytest.raises(StreamError, match=f"micro-batch 1: .*{reason}"):
                apply_by_tasks(table, fed(from_elements(elements, names), 1))
    # A cti within the micro-batch is known to all tasks.
    for name in "abcdef":
        late = from_elements([Cti(7), Insert({"name": name}, 5, 9)], names)
        with pytest.raises(StreamError, match="breaks an earlier cti"):
            apply_by_tasks(table, fed(late, 1))
    assert_same(read(tmp_path), before)


def test_tables_without_buckets_are_continued(tmp_path: Path) -> None:
    """Those of format 2: all their files are for any bucket, all their parts are of one file."""
    batches = revised(6, 6)
    for name, make in zip(("log", "table"), SINKS, strict=True):
        for number, batch in enumerate(batches[:3]):
            make(tmp_path / name).apply(fed(batch, number))
        _write_as_before(tmp_path / name)
        assert_same(read(tmp_path / name), prefixes(batches)[2])
        for number, batch in enumerate(batches[3:], 3):
            shutil.copytree(tmp_path / name, tmp_path / f"{name} {number}")
            apply_by_tasks(make(tmp_path / name), fed(batch, number))
            make(tmp_path / f"{name} {number}").apply(fed(batch, number))
            for path in (tmp_path / name, tmp_path / f"{name} {number}"):
                assert_same(read(path), prefixes(batches)[number])


def _write_as_before(path: Path) -> None:
    if (path / MARK).exists():
        stored = json.loads((path / MARK).read_text())
        (part,) = stored["part"]
        del part["bucket"], stored["publishing"], stored["digest"]
        (path / MARK).write_text(to_sealed_json({**stored, "part": part, "format": "recension changelog 2"}))
        return
    for file in (path / FOLDER).glob("*.json"):
        stored = json.loads(file.read_text())
        del stored["buckets"], stored["digest"]
        for entry in (*stored["files"], *stored["deletions"]):
            del entry["bucket"]
            for name in ("first_start", "last_start"):
                entry.pop(name, None)
        file.write_text(to_sealed_json({**stored, "format": "recension history 2"}))


def test_only_files_that_may_hold_an_event_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their times: a retraction of a recent event does not read the whole table."""
    names = pa.schema([("name", pa.string())])
    table = HistoryTable(tmp_path, keep=0)

    def inserts(number: int) -> EventBatch:
        return from_elements([Insert({"name": str(n)}, 100 * number + n) for n in range(20)], names)

    for number in range(6):
        table.apply(fed(inserts(number), number))
    opened: list[str] = []

    def note(file: Path, seal: str) -> None:
        opened.append(file.name.split("-")[0])
        require_seal(file, seal)

    monkeypatch.setattr(table_files, "require_seal", note)
    table.apply(fed(from_elements([Retract({"name": "3"}, 503, 2**63 - 1, 600)], names), 6))
    assert opened == ["added"]
