"""The history table without Spark: after every micro-batch it is the history of the stream so far."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised

from recension.core.batch import EventBatch, from_elements
from recension.core.errors import FormatError, RecensionError, SchemaError, StreamError
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.formats.manifest import FOLDER, current_manifest, manifest_path
from recension.core.ticks import FOREVER
from recension.runners.spark.sinks import revision
from recension.runners.spark.sinks.history_table import HistoryTable

NAMES = pa.schema([("name", pa.string())])


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are full at 60 rows, so that a few hundred go through every kind of rewriting."""
    monkeypatch.setattr(revision, "FULL", 60)
    monkeypatch.setattr(revision, "SMALLEST", 4)
    monkeypatch.setattr(revision, "FAN_IN", 3)


def elements(*given: Element) -> EventBatch:
    return from_elements(given, NAMES)


def stored_names(path: Path) -> set[str]:
    return {f.name for f in (path / FOLDER).iterdir()}


@pytest.mark.parametrize(
    ("seed", "reopened"),
    [
        (0, False),
        (1, True),
        pytest.param(0, True, marks=pytest.mark.soak),
        pytest.param(1, False, marks=pytest.mark.soak),
    ],
)
def test_the_table_is_the_history_after_every_micro_batch(
    tmp_path: Path, small_files: None, seed: int, reopened: bool
) -> None:
    batches = revised(seed, 25)
    table = HistoryTable(tmp_path, keep=0)
    for number, (batch, expected) in enumerate(zip(batches, prefixes(batches), strict=True)):
        table = HistoryTable(tmp_path, keep=0) if reopened else table
        table.apply(fed(batch, number))
        assert_same(read(tmp_path), expected)


def test_rewriting_keeps_files_few_and_final_events_apart(tmp_path: Path, small_files: None) -> None:
    batches = revised(7, 40, size=1500)
    table = HistoryTable(tmp_path, keep=0)
    kinds, largest = set(), 0
    for number, batch in enumerate(batches):
        table.apply(fed(batch, number))
        manifest = current_manifest(tmp_path)
        assert manifest is not None
        kinds |= {name.split("-")[0] for name in manifest.used_files()}
        largest = max(
            largest, len([f for f in manifest.files if f.rows < revision.FULL]) + len(manifest.deletions)
        )
        last_ends = {f.name: f.last_end for f in manifest.files if f.name.startswith("final")}
        assert all(end < manifest.cti for end in last_ends.values())
    assert kinds == {"added", "merged", "final", "deleted"}
    assert largest <= 3 * 3 * revision.FAN_IN
    assert_same(read(tmp_path), prefixes(batches)[-1])


def test_a_file_of_settled_events_is_not_rewritten(tmp_path: Path, small_files: None) -> None:
    """Full and final, without deletions: it stays what it is while thousands of events follow."""
    table = HistoryTable(tmp_path, keep=0)
    settled = elements(*(Insert({"name": str(i)}, i, i + 1) for i in range(80)), Cti(100))
    table.apply(fed(settled, 0))
    first = current_manifest(tmp_path)
    assert first is not None
    for number in range(1, 30):
        at = 100 * number
        table.apply(
            fed(elements(*(Insert({"name": "x"}, at + i, at + i + 5) for i in range(30)), Cti(at)), number)
        )
    last = current_manifest(tmp_path)
    assert last is not None
    assert first.files[0] in last.files


def test_a_micro_batch_counts_once(tmp_path: Path) -> None:
    batches = revised(1, 5)
    for again in range(2):
        table = HistoryTable(tmp_path, keep=0)
        for number, batch in enumerate(batches):
            table.apply(fed(batch, number))
            table.apply(fed(batch, number))
        manifest = current_manifest(tmp_path)
        assert manifest is not None
        assert (manifest.number, manifest.batch, again) == (5, 4, again)
    assert_same(read(tmp_path), prefixes(batches)[-1])


def test_copies_of_an_event_are_events(tmp_path: Path) -> None:
    table = HistoryTable(tmp_path, keep=0)
    same, gone = Insert({"name": "a"}, 1, 5), Retract({"name": "a"}, 1, 5, 1)
    table.apply(fed(elements(same, same, same), 0))
    table.apply(fed(elements(gone, same, gone, gone), 1))
    assert len(read(tmp_path)) == 1
    table.apply(fed(elements(gone), 2))
    assert len(read(tmp_path)) == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            Retract({"name": "b"}, 1, 5, 3),
            r"retracts an event that is not there: retract \[1, 5\) -> 3 .*'b'",
        ),
        (Retract({"name": "a"}, 1, FOREVER, 7), r"not there: retract \[1, ∞\) -> 7"),
        (Insert({"name": "a"}, 1, 9), r"breaks an earlier cti: insert \[1, 9\)"),
        (Insert({"name": "a"}, 9, 9), r"ends before it has begun"),
    ],
)
def test_what_no_stream_may_hold_leaves_the_table_as_it_was(
    tmp_path: Path, bad: Element, reason: str
) -> None:
    table = HistoryTable(tmp_path, keep=0)
    table.apply(fed(elements(Insert({"name": "a"}, 1, 5), Cti(3)), 0))
    before, names = read(tmp_path), stored_names(tmp_path)
    with pytest.raises(StreamError, match=f"micro-batch 1: .*{reason}"):
        table.apply(fed(elements(Insert({"name": "c"}, 4), bad), 1))
    assert_same(read(tmp_path), before)
    assert stored_names(tmp_path) == names
    table.apply(fed(elements(Retract({"name": "a"}, 1, 5, 4)), 1))
    assert read(tmp_path).ve.tolist() == [4]


def test_a_null_end_is_forever(tmp_path: Path) -> None:
    table = HistoryTable(tmp_path, keep=0)
    table.apply(fed(elements(Insert({"name": "a"}, 1), Insert({"name": None}, 2)), 0))
    table.apply(fed(elements(Retract({"name": "a"}, 1, FOREVER, 4), Cti(FOREVER)), 1))
    found = read(tmp_path)
    assert sorted(zip(found.vs.tolist(), found.ve.tolist(), strict=True)) == [(1, 4), (2, FOREVER)]


def test_what_a_table_refuses(tmp_path: Path) -> None:
    batch = elements(Insert({"name": "a"}, 1))
    table = HistoryTable(tmp_path / "new", keep=0)
    with pytest.raises(RecensionError, match="has already written micro-batches elsewhere"):
        table.apply(fed(batch, 3))
    table.apply(fed(batch, 0))
    with pytest.raises(RecensionError, match="table of another query"):
        table.apply(fed(batch, 1, query="another"))
    other = from_elements([Insert({"name": 1}, 1)], pa.schema([("name", pa.int64())]))
    with pytest.raises(SchemaError, match="column name string where now name int64"):
        HistoryTable(tmp_path / "new", keep=0).apply(fed(other, 1))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.csv").write_text("a\n1\n")
    with pytest.raises(RecensionError, match=r"not empty either: it has data\.csv"):
        HistoryTable(tmp_path / "other", keep=0).apply(fed(batch, 0))


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "a damaged manifest"), ('{"format": "2"}', "not a manifest of the format")]
)
def test_a_manifest_that_cannot_be_read(tmp_path: Path, text: str, reason: str) -> None:
    HistoryTable(tmp_path, keep=0).apply(fed(elements(), 0))
    manifest_path(tmp_path, 7).write_text(text)
    with pytest.raises(FormatError, match=rf"000000000007\.json: {reason}"):
        read(tmp_path)


def test_files_out_of_use_stay_for_their_readers(tmp_path: Path, small_files: None) -> None:
    """With a long ``keep`` nothing goes; with none, what only older manifests list."""
    batches = revised(3, 30)
    patient, prompt = tmp_path / "patient", tmp_path / "prompt"
    for path, keep in ((patient, 3600.0), (prompt, 0.0)):
        table = HistoryTable(path, keep)
        ever: set[str] = set()
        for number, batch in enumerate(batches):
            table.apply(fed(batch, number))
            manifest = current_manifest(path)
            assert manifest is not None
            used, before = manifest.used_files(), ever
            ever = ever | used
            previous = manifest_path(path, manifest.number - 1)
            there = stored_names(path)
            assert number == 0 or previous.name in there
            assert used <= there
            if keep:
                assert before <= there
    assert len(stored_names(patient)) > len(stored_names(prompt))


def test_a_table_nobody_wrote_to(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(StreamError, match="nothing was committed yet"):
        read(tmp_path)


def test_an_empty_stream_is_an_empty_table(tmp_path: Path) -> None:
    HistoryTable(tmp_path, keep=0).apply(fed(elements(), 0))
    assert len(read(tmp_path)) == 0
    assert read(tmp_path).schema.names == ["name"]


def test_a_payload_without_columns(tmp_path: Path) -> None:
    nothing = pa.schema([])
    table = HistoryTable(tmp_path, keep=0)
    table.apply(fed(from_elements([Insert({}, 1, 4), Insert({}, 1, 4), Insert({}, 2)], nothing), 0))
    table.apply(fed(from_elements([Retract({}, 1, 4, 3)], nothing), 1))
    assert np.sort(read(tmp_path).ve).tolist() == [3, 4, FOREVER]


def test_a_full_file_is_rewritten_when_half_of_it_is_settled(tmp_path: Path, small_files: None) -> None:
    """By a cti that passes half of the ends, or by deleting half of the rows; not before."""
    for path, settle in ((tmp_path / "cti", _pass_by), (tmp_path / "deleted", _delete)):
        table = HistoryTable(path, keep=0)
        table.apply(fed(elements(*(Insert({"name": str(i)}, 0, 10 + i) for i in range(80))), 0))
        whole = _data_names(path)
        table.apply(fed(settle(0, 35), 1))
        assert whole <= _data_names(path)
        table.apply(fed(settle(35, 50), 2))
        assert not whole & _data_names(path)
        expected = _ends_after([settle(0, 35), settle(35, 50)])
        assert sorted(read(path).ve.tolist()) == expected


def _pass_by(first: int, last: int) -> EventBatch:
    return elements(Cti(10 + last))


def _delete(first: int, last: int) -> EventBatch:
    return elements(*(Retract({"name": str(i)}, 0, 10 + i, 0) for i in range(first, last)))


def _ends_after(later: list[EventBatch]) -> list[int]:
    gone = sum(int((batch.kind == 1).sum()) for batch in later)
    return [10 + i for i in range(gone, 80)]


def _data_names(path: Path) -> set[str]:
    manifest = current_manifest(path)
    assert manifest is not None
    return {file.name for file in manifest.files}


@pytest.mark.parametrize("name", ["../../precious.txt", "link.parquet"])
def test_a_commit_deletes_nothing_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    """A manifest that lists a foreign file as fallen out of use; and a link that leads to one."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    table = HistoryTable(tmp_path / "t", keep=0)
    table.apply(fed(elements(Insert({"name": "ann"}, 1)), 0))
    (tmp_path / "t" / FOLDER / "link.parquet").symlink_to(precious)
    file = manifest_path(tmp_path / "t", 0)
    stored = json.loads(file.read_text())
    file.write_text(json.dumps({**stored, "dropped": [{"name": name, "at": 0.0}]}))
    with suppress(FormatError):
        HistoryTable(tmp_path / "t", keep=0).apply(fed(elements(Insert({"name": "bob"}, 2)), 1))
    assert precious.read_text() == "mine"
