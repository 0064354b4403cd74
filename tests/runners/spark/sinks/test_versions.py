"""Versions of tables: every one that is kept is what it was, what is gone is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, revised

import recension as rc
from recension.cli import main
from recension.core.difference import difference
from recension.core.errors import FormatError, RecensionError, TimeError
from recension.core.formats.manifest import FOLDER, LAST, manifest_numbers
from recension.core.formats.versions import Version
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import TimeLike
from recension.gate.files import open_stream, read_bitemporal, read_history
from recension.runners.spark.sinks import revision
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time for which micro-batches are planned, in seconds of 1970."""
    now = [0.0]
    monkeypatch.setattr(feeding, "now", lambda: int(now[0] * 1e6))
    for name, value in (("FULL", 60), ("SMALLEST", 4), ("FAN_IN", 3)):
        monkeypatch.setattr(revision, name, value)

    def set_time(seconds: float) -> None:
        now[0] = seconds

    return set_time


def log_history(path: Path, version: int | None = None, as_of: TimeLike | None = None) -> History:
    reader = open_stream(path, version=Version.from_request(version, as_of))
    return reconstitute(reader, reader.schema)


@pytest.mark.parametrize("reopened", [False, True])
def test_every_version_that_is_kept_is_what_it_was(
    tmp_path: Path, clock: Callable[[float], None], reopened: bool
) -> None:
    batches = revised(3, 20)
    states = prefixes(batches)
    table, log = HistoryTable(tmp_path / "t", keep=55), Changelog(tmp_path / "log")
    for number, batch in enumerate(batches):
        clock(10.0 * (number + 1))
        table = HistoryTable(tmp_path / "t", keep=55) if reopened else table
        table.apply(fed(batch, number))
        log.apply(fed(batch, number))
    # The last was planned for 200; version n was replaced before version n + 2 was planned, at 10 n + 20.
    assert min(manifest_numbers(tmp_path / "t")) == 13
    for version in range(13, 21):
        expected = states[version - 1]
        for at in (
            f"1970-01-01T00:{10 * version // 60:02}:{10 * version % 60:02}Z",
            10_000_000 * version + 9,
        ):
            assert_same(read_history(tmp_path / "t", as_of=at), expected)
            assert_same(log_history(tmp_path / "log", as_of=at), expected)
        assert_same(read_history(tmp_path / "t", version=version), expected)
    for version in range(1, 21):
        assert_same(log_history(tmp_path / "log", version=version), states[version - 1])
    for asked in ({"version": 12}, {"version": 0}, {"as_of": 129_000_000}):
        with pytest.raises(FormatError, match=r"is gone: the oldest version that is left is 13, of .*keep="):
            read_history(tmp_path / "t", **asked)
    believed = read_bitemporal(tmp_path / "log").to_arrow()
    for version in range(1, 21):
        at = 10_000_000 * version
        start, end = (believed[f"believed_{which}"].cast("int64").to_numpy() for which in ("from", "to"))
        there = believed.filter((start <= at) & ~(end <= at)).drop_columns(["believed_from", "believed_to"])
        assert_same(History.from_arrow(there), states[version - 1])


def test_nothing_is_kept_for_long_that_nobody_asked_to_keep(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    table = HistoryTable(tmp_path, keep=0)
    for number, batch in enumerate(revised(4, 9)):
        clock(float(number + 1))
        table.apply(fed(batch, number))
    assert manifest_numbers(tmp_path) == {8, 9}


def test_a_clock_that_goes_back_changes_no_order(tmp_path: Path, clock: Callable[[float], None]) -> None:
    table, log = HistoryTable(tmp_path / "t", keep=1000), Changelog(tmp_path / "log")
    batches = revised(5, 4)
    for number, (batch, seconds) in enumerate(zip(batches, (40.0, 20.0, 30.0, 50.0), strict=True)):
        clock(seconds)
        table.apply(fed(batch, number))
        log.apply(fed(batch, number))
    for read in (read_history, log_history):
        path = tmp_path / ("t" if read is read_history else "log")
        assert_same(read(path, as_of=45_000_000), prefixes(batches)[2])
        assert_same(read(path, as_of=50_000_000), prefixes(batches)[3])


def test_refusals(tmp_path: Path, clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]) -> None:
    table, log = HistoryTable(tmp_path / "t", keep=1000), Changelog(tmp_path / "log")
    for number, batch in enumerate(revised(6, 2)):
        clock(10.0 + number)
        table.apply(fed(batch, number))
        log.apply(fed(batch, number))
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"version": 3}, FormatError, "no version 3 yet: the last is 2"),
        ({"version": -1}, RecensionError, "from 0, not -1"),
        ({"version": True}, RecensionError, "not True"),
        ({"version": 1, "as_of": 5}, RecensionError, "not both"),
        ({"as_of": 2**62}, TimeError, "yet to come"),
        ({"as_of": "2024-01-01"}, TimeError, "no time zone"),
    ]
    for asked, kind, message in refused:
        for read in (read_history, log_history):
            with pytest.raises(kind, match=message):
                read(tmp_path / ("t" if read is read_history else "log"), **asked)
    with pytest.raises(FormatError, match="there was no such table yet"):
        read_history(tmp_path / "t", as_of=9_999_999)
    with pytest.raises(FormatError, match="nothing was committed to that version: the first is 1"):
        read_history(tmp_path / "t", version=0)
    with pytest.raises(FormatError, match="nothing was written yet"):
        log_history(tmp_path / "log", as_of=9_999_999)
    with pytest.raises(FormatError, match="not a changelog"):
        read_bitemporal(tmp_path / "t")
    (tmp_path / "plain.csv").write_text("_vs,_ve,k\n1,2,a\n")
    assert main(["history", str(tmp_path / "plain.csv"), "--version", "1"]) == 2
    assert "only history tables and changelogs" in capsys.readouterr().err
    for name in ("t", "log"):
        assert main(["history", str(tmp_path / name), "--as-of", "1970-01-01T00:00:10Z"]) == 0
        assert capsys.readouterr().out.count("\n") == len(read_history(tmp_path / "t", version=1)) + 1
    assert main(["history", str(tmp_path / "log"), "--bitemporal"]) == 0
    assert capsys.readouterr().out.startswith("_vs,_ve,")


def test_a_version_whose_files_are_gone_is_refused(tmp_path: Path, clock: Callable[[float], None]) -> None:
    table = HistoryTable(tmp_path, keep=1000)
    for number, batch in enumerate(revised(8, 12)):
        clock(10.0 + number)
        table.apply(fed(batch, number))
    now = read_history(tmp_path)
    for file in (tmp_path / FOLDER).glob("added-*"):
        file.unlink()
    with pytest.raises(FormatError, match="version 1 is gone"):
        read_history(tmp_path, version=1)
    assert len(now)


def test_a_table_without_its_newest_manifest_is_refused(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    """Older versions are there, and each would be a sound answer."""
    batches = revised(8, 4)
    for number, batch in enumerate(batches[:3]):
        clock(10.0 + number)
        HistoryTable(tmp_path, keep=1000).apply(fed(batch, number))
    newest = max((tmp_path / FOLDER).glob("*.json"))
    stored = newest.read_text()
    newest.unlink()
    missing = f"{newest.name}: the newest manifest is missing; restore the table from a backup"
    with pytest.raises(FormatError, match=missing):
        read_history(tmp_path)
    with pytest.raises(FormatError, match=missing):
        HistoryTable(tmp_path, keep=1000).apply(fed(batches[3], 3))
    newest.write_text(stored)
    (tmp_path / FOLDER / LAST).unlink()  # a table of before
    before = read_history(tmp_path)
    HistoryTable(tmp_path, keep=1000).apply(fed(batches[3], 3))
    assert not difference(read_history(tmp_path, version=3), before)
    assert (tmp_path / FOLDER / LAST).read_text() == "4\n"
    (tmp_path / FOLDER / LAST).write_text("four")
    with pytest.raises(FormatError, match="last: damaged: it is not the number of a manifest"):
        read_history(tmp_path)


def test_spark_reads_the_same(spark: Any, tmp_path: Path, clock: Callable[[float], None]) -> None:
    table, log = HistoryTable(tmp_path / "t", keep=1000), Changelog(tmp_path / "log")
    for number, batch in enumerate(revised(9, 6, size=200)):
        clock(10.0 + number)
        table.apply(fed(batch, number))
        log.apply(fed(batch, number))
    for asked in ({"version": 3}, {"as_of": 12_500_000}, {"as_of": "1970-01-01T00:00:12Z"}):
        found = rc.spark.read_history(spark, tmp_path / "t", **asked).toArrow()
        assert_same(History.from_arrow(found), read_history(tmp_path / "t", version=3))
    with pytest.raises(FormatError, match="no version 7 yet"):
        rc.spark.read_history(spark, tmp_path / "t", version=7)
    believed = History.from_arrow(rc.spark.read_bitemporal(spark, tmp_path / "log").toArrow())
    expected = read_bitemporal(tmp_path / "log")
    assert believed.schema.names == expected.schema.names
    assert_same(History(believed.vs, believed.ve, believed.payload.cast(expected.schema)), expected)
    with pytest.raises(FormatError, match="not a changelog"):
        rc.spark.read_bitemporal(spark, tmp_path / "t")
