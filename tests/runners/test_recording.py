"""Recordings: what is in them is what came, and what is not in them they say."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.cli import main
from recension.core.difference import equivalent

LEASES = rc.source("leases", {"user": "string", "site": "string"})
ONLINE = LEASES.group_by("site").agg(n=rc.count(), speculate="eager")


def insert(user: str, site: str, vs: int, ve: int) -> rc.Insert:
    return rc.Insert({"user": user, "site": site}, vs, ve)


def test_every_step_is_there(tmp_path: Path) -> None:
    live = rc.session(ONLINE, clock=lambda: 7_000_000)
    with rc.record(live, tmp_path / "r") as recorder:
        live.push("leases", [insert("ann", "Oslo", 1, 9)])
        live.push("leases", [insert("bob", "Oslo", 3, 5), rc.Cti(4)])
        live.close()
    assert recorder.stopped == "closed"
    recording = rc.read_recording(tmp_path / "r")
    assert recording.is_whole
    assert recording.names == ["leases", "query"]
    assert recording.steps()["source"].to_pylist() == ["leases"] * 3
    assert recording.steps()["at"].cast(pa.int64()).to_pylist() == [7_000_000] * 3
    assert {step: len(batch) for step, batch in recording.by_step("leases").items()} == {1: 1, 2: 2, 3: 1}
    assert equivalent(recording.stream("query").history(), live.history())
    assert [str(e) for e in recording.stream("query").elements()] == [str(e) for e in live.read().elements()]


def test_a_step_without_elements_is_a_step(tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    with rc.record(live, tmp_path / "r", edges="all"):
        live.push("leases", [])
    recording = rc.read_recording(tmp_path / "r")
    assert recording.steps()["source"].to_pylist() == ["leases"]
    assert not any(len(recording.stream(name).history()) for name in recording.names)


def test_all_edges_or_some(tmp_path: Path) -> None:
    query = LEASES.where(rc.col("user") != "root").group_by("site").agg(n=rc.count())
    live = rc.session(query)
    with rc.record(live, tmp_path / "all", edges="all"):
        live.push("leases", [insert("ann", "Oslo", 1, 9), insert("root", "Oslo", 1, 9), rc.Cti(9)])
    every = rc.read_recording(tmp_path / "all")
    assert len(every.names) == 3
    assert len(every.stream(every.names[1]).history()) == 1
    with rc.record(live, tmp_path / "one", edges=["query"]):
        pass
    assert rc.read_recording(tmp_path / "one").names == ["query"]
    with pytest.raises(rc.RecensionError, match=r"no edge 'lease' \(did you mean 'leases'\?\)"):
        rc.record(live, tmp_path / "none", edges=["lease"])


def test_edges_are_streams_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = rc.session(ONLINE)
    with rc.record(live, tmp_path / "r"):
        live.push("leases", [insert("ann", "Oslo", 1, 9), insert("bob", "Oslo", 3, 5)])
    number = rc.read_recording(tmp_path / "r").queries["query"]
    assert main(["history", str(tmp_path / "r" / "edges" / str(number))]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["1,3,Oslo,1", "3,5,Oslo,2", "5,9,Oslo,1"]


def test_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    live, rng = rc.session(LEASES), np.random.default_rng(1)
    table = pa.table({"_vs": rng.integers(0, 100, 1000), "_ve": np.full(1000, 200), "user": ["u" * 40] * 1000,
                      "site": ["Oslo"] * 1000, "_kind": ["insert"] * 1000})  # fmt: skip
    recorder = rc.record(live, tmp_path / "r", limit=1 << 18)
    for _ in range(30):
        live.push("leases", table)
        recorder.flush()
    recorder.close()
    size = sum(file.stat().st_size for file in (tmp_path / "r").rglob("*.arrows"))
    recording = rc.read_recording(tmp_path / "r")
    kept = recording.rows("leases")
    assert kept is not None
    gone = recording.manifest["gone"]
    assert size <= (1 << 18) + (1 << 18) // 8 + 200_000  # a step is never cut
    assert gone["elements"]["0"] + len(kept) == 30_000
    assert gone["steps"] + len(recording.steps()) == 30
    assert not recording.is_whole
    assert any("steps (" in line and "are gone" in line for line in recording.describe_gaps())


def test_it_may_be_read_while_it_grows_and_after_a_crash(tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    recorder = rc.record(live, tmp_path / "r")
    live.push("leases", [insert("ann", "Oslo", 1, 9)])
    recorder.flush()
    assert len(rc.read_recording(tmp_path / "r").stream("query").elements()) == 1
    (file,) = (tmp_path / "r" / "edges" / "0").glob("*.arrows")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[-100:])  # half a message, which the manifest does not count
    assert len(rc.read_recording(tmp_path / "r").stream("leases").elements()) == 1
    file.write_bytes(whole[:-100])
    with pytest.raises(rc.RecensionError, match=r"1\.arrows: .* bytes where .* were written: a part of"):
        rc.read_recording(tmp_path / "r").rows("leases")
    file.write_bytes(whole)
    recorder.close()


def made_recording(folder: Path) -> Path:
    """A recording of all edges, closed."""
    live = rc.session(ONLINE)
    with rc.record(live, folder, edges="all"):
        live.push("leases", [insert("ann", "Oslo", 1, 9)])
        live.push("leases", [insert("bob", "Rome", 2, 5)])
    return folder


def read_whole(folder: Path) -> tuple[Any, ...]:
    """All that a recording has."""
    recording = rc.read_recording(folder)
    said = recording.names, recording.describe(), recording.steps(), recording.is_whole
    return (
        *said,
        [(recording.stream(edge).elements(), recording.schema_of(edge)) for edge in recording.edges],
    )


def test_a_part_that_is_missing_or_cut_off_is_not_read_as_complete(tmp_path: Path) -> None:
    folder = made_recording(tmp_path / "r")
    files = sorted(folder.rglob("*.arrows"))
    assert len(files) == len(rc.read_recording(folder).edges) + 1
    for file in files:
        content = file.read_bytes()
        with pa.ipc.open_stream(content) as stored:
            schema, first = stored.schema, stored.read_next_batch()
        file.unlink()
        with pytest.raises(rc.RecensionError, match=r"1\.arrows: the file is not there any more: a part"):
            read_whole(folder)
        with pa.ipc.new_stream(str(file), schema) as shorter:  # a sound file with fewer rows
            shorter.write_batch(first.slice(1))
        with pytest.raises(rc.RecensionError, match=r"1\.arrows: \d rows where \d were written: a part"):
            read_whole(folder)
        file.write_bytes(content)
    read_whole(folder)


def refusal(folder: Path) -> str | None:
    """Why a recording is not read, if so; another error than ours is a fault."""
    try:
        read_whole(folder)
    except rc.RecensionError as why:
        return str(why)
    return None


def inner_values(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value is in a manifest."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield (*path, name)
        yield from inner_values(one, (*path, name))


@pytest.mark.parametrize("with_sum", [True, False])
def test_a_damaged_manifest_is_refused_in_one_line(tmp_path: Path, with_sum: bool) -> None:
    """Each of its values is taken out, and made another; recordings of before have no checksum."""
    folder = made_recording(tmp_path / "r")
    manifest = json.loads((folder / "recording.json").read_text())
    if not with_sum:
        del manifest["sum"]
    read = accepted = 0
    for *path, name in inner_values(manifest):
        values: tuple[Any, ...] = (None, -1, "x", [], {"a": 1})
        for value in values:
            changed = copy.deepcopy(manifest)
            place = reduce(getitem, path, changed)
            if value is None:
                del place[name]
            else:
                place[name] = value
            read += 1
            (folder / "recording.json").write_text(json.dumps(changed))
            said = refusal(folder)
            accepted += said is None
            assert said is None or (said.startswith(str(folder)) and "\n" not in said)
    assert read > 400
    assert accepted <= (10 if with_sum else read // 5)


def test_a_damaged_part_is_refused_in_one_line_if_it_cannot_be_read(tmp_path: Path) -> None:
    """Arrow has no checksums: what can be read is read. Whatever else Arrow says is told as ours."""
    folder = made_recording(tmp_path / "r")
    refused = 0
    for file in sorted(folder.rglob("*.arrows")):
        content = file.read_bytes()
        for at in range(0, len(content), 12):
            file.write_bytes(content[:at] + bytes(16) + content[at + 16 :])
            said = refusal(folder)
            refused += said is not None
            assert said is None or (said.startswith(str(folder)) and "\n" not in said)
        file.write_bytes(content)
    assert refused > 20


def test_a_recording_that_begins_late_says_so(tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    live.push("leases", [insert("ann", "Oslo", 1, 9)])
    with rc.record(live, tmp_path / "r"):
        live.push("leases", [rc.Retract({"user": "ann", "site": "Oslo"}, 1, 9, 4)])
    recording = rc.read_recording(tmp_path / "r")
    assert recording.describe_gaps() == [
        "the recording begins after the session: what came before is not in it"
    ]
    assert len(recording.stream("leases").elements()) == 1


def test_what_ends_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = rc.session(ONLINE)
    live.push("leases", [insert("ann", "Oslo", 1, 9)])
    live.read()
    saved = live.snapshot()
    recorder = rc.record(live, tmp_path / "r")
    with pytest.raises(rc.RecensionError, match="close that first"):
        rc.record(live, tmp_path / "s")
    live.restore(saved)
    assert recorder.stopped == "the session was restored from a snapshot"
    assert "restored" in caplog.text
    assert any("restored" in line for line in rc.read_recording(tmp_path / "r").describe_gaps())


def test_a_full_disk_ends_the_recording_and_not_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = rc.session(ONLINE)
    recorder = rc.record(live, tmp_path / "r")
    live.push("leases", [insert("ann", "Oslo", 1, 9)])

    def fail(self: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(Path, "mkdir", fail)
        recorder.flush()
    assert recorder.stopped == "it could not be written: no space left on device"
    live.push("leases", [insert("bob", "Oslo", 1, 9)])
    assert len(live.history()) == 1


def test_a_step_that_fails_is_not_recorded(tmp_path: Path) -> None:
    def fail(user: str) -> str:
        raise ValueError("no")

    failing = rc.udf(fail, result="string")
    refused = rc.session(LEASES.select(x=failing(rc.col("user"))))
    with rc.record(refused, tmp_path / "refused") as recorder:
        with pytest.raises(rc.RecensionError):  # it reads only its row: the push is refused
            refused.push("leases", [insert("ann", "Oslo", 1, 9)])
        assert recorder.stopped is None
    assert rc.read_recording(tmp_path / "refused").rows("leases") is None
    latest = LEASES.agg(user=rc.last("user"), speculate="eager")
    live = rc.session(latest.select(x=failing(rc.col("user"))))
    recorder = rc.record(live, tmp_path / "r")
    with pytest.raises(rc.RecensionError):
        live.push("leases", [insert("ann", "Oslo", 1, 9)])
    assert recorder.stopped == "the session failed"
    assert rc.read_recording(tmp_path / "r").rows("leases") is None


def test_what_it_needs_is_checked(tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(rc.RecensionError, match="is not empty: name a new directory"):
        rc.record(live, tmp_path / "there")
    with pytest.raises(rc.RecensionError, match="the limit is at least 64 KiB"):
        rc.record(live, tmp_path / "r", limit=1)
    with pytest.raises(rc.RecensionError, match="edges are 'ends', 'all'"):
        rc.record(live, tmp_path / "r", edges="some")
    with pytest.raises(rc.RecensionError, match="a session is needed"):
        rc.record(ONLINE, tmp_path / "r")  # type: ignore[arg-type]
    with pytest.raises(rc.RecensionError, match="no recording"):
        rc.read_recording(tmp_path)
    (tmp_path / "recording.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(rc.FormatError, match="not a recording that this version can read"):
        rc.read_recording(tmp_path)


def test_the_command_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.py").write_text(
        "import recension as rc\nquery = rc.source('s', {'k': 'string'}).group_by('k').agg(n=rc.count())\n"
    )
    (tmp_path / "s.csv").write_text("_vs,_ve,k\n1,5,a\n2,6,a\n")
    arguments = ["run", str(tmp_path / "q.py"), "-i", f"s={tmp_path / 's.csv'}", "--record"]
    assert main([*arguments, str(tmp_path / "r")]) == 0
    recording = rc.read_recording(tmp_path / "r")
    assert recording.is_whole
    assert recording.manifest["ended"] == "closed"
    assert len(recording.stream("query").history()) == 3
    assert main([*arguments, str(tmp_path / "r")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "b"), "--engine", "batch"]) == 2
    assert "--record is for --engine local" in capsys.readouterr().err


def test_inputs_that_join_a_merge_are_recorded_too(tmp_path: Path) -> None:
    one, other = (rc.source(name, {"user": "string"}) for name in ("one", "other"))
    live = rc.session(rc.merge(one))
    with rc.record(live, tmp_path / "r"):
        live.push("one", [rc.Insert({"user": "ann"}, 1, 5)])
        live.attach(other)
        live.push("other", [rc.Insert({"user": "ann"}, 1, 5), rc.Insert({"user": "bob"}, 2, 5), rc.Cti(9)])
    recording = rc.read_recording(tmp_path / "r")
    assert set(recording.names) == {"one", "query", "other"}
    assert len(recording.stream("other").elements()) == 3
    assert equivalent(recording.stream("query").history(), live.history())
    (merge,) = [vertex for vertex in recording.manifest["plan"] if vertex["id"] == recording.queries["query"]]
    assert sorted(merge["inputs"]) == sorted(recording.sources.values())
