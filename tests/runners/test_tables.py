"""Tables without times: true for ever, read once or again, in every kind of join on the local engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension import denote
from recension.cli import main
from recension.core.events import Element, Event
from recension.testing import assert_equivalent
from recension.testing.strategies import batchings, histories, physical_streams

JOBS = pa.schema([("k", pa.string()), ("v", pa.int64())])
SITES = pa.schema([("k", pa.string()), ("country", pa.string())])
jobs = rc.source("jobs", JOBS)
sites = rc.table("sites", SITES)
refreshed = rc.table("sites", SITES, refresh="10m")
SWISS = pa.table({"k": ["a", "b"], "country": ["CH", "CH"]}, SITES)
BRITISH = pa.table({"k": ["b", "b", "a"], "country": ["UK", "CH", "CH"]}, SITES)
WORK = [rc.Insert({"k": "a", "v": 1}, 1, 5), rc.Insert({"k": "c", "v": 2}, 2, 4), rc.Cti(3)]

rows = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from(["a", "b", None]), "country": st.sampled_from(["CH", "UK", None])}
    ),
    max_size=4,
).map(lambda found: pa.Table.from_pylist(found, SITES))


def elements(result: rc.Result) -> list[str]:
    return [str(element) for element in result.elements()]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("is_left", [False, True])
@given(data=st.data())
def test_a_table_is_a_closed_stream_of_rows_that_never_begin_or_end(
    how: Literal["inner", "left", "semi", "anti"], is_left: bool, data: st.DataObject
) -> None:
    history: list[Event] = data.draw(histories(JOBS))
    stream: list[Element] = data.draw(physical_streams(history))
    table: pa.Table = data.draw(rows)
    always = [Event(row, rc.BEGINNING, rc.FOREVER) for row in table.to_pylist()]
    query = sites.join(jobs, on="k", how=how) if is_left else jobs.join(sites, on="k", how=how)
    sides = (always, history) if is_left else (history, always)
    expected = denote.join(*sides, on="k", how=how, right_columns=["v"] if is_left else ["country"])
    live, is_late = rc.session(query), data.draw(st.booleans())
    if not is_late:
        live.push("sites", table)
    for part in data.draw(batchings(stream)):
        live.push("jobs", part)
    if is_late:
        live.push("sites", table)
    assert_equivalent(live.history(), rc.History.from_events(expected, query.schema))
    assert_equivalent(rc.run(query, {"jobs": stream, "sites": table}), live.history())


def test_the_stream_alone_decides_how_far_a_join_is() -> None:
    out = rc.run(jobs.join(sites, on="k", how="left"), {"jobs": WORK, "sites": SWISS})
    assert elements(out) == [
        "insert [1, 5) {'k': 'a', 'v': 1, 'country': 'CH'}",
        "insert [2, 4) {'k': 'c', 'v': 2, 'country': None}",
        "cti 3",
    ]


def test_windows_over_a_table_are_refused_with_advice() -> None:
    filtered = sites.where(rc.col("k") == "a")
    wrong: list[Any] = [
        lambda: sites.tumbling(5),
        lambda: filtered.group_by("k").hopping(5, 1),
        lambda: filtered.count_window(2),
        lambda: sites.join(jobs, on="k", how="left").tumbling(5),
        lambda: sites.join(sites.rename({"country": "other"}), on="k").tumbling(5),
        lambda: jobs.select("k").union(sites.select("k")).tumbling(5),
        lambda: sites.coalesce(on="country", group_by="k", window=rc.range(5, slide=5)),
    ]
    for build in wrong:
        with pytest.raises(rc.SchemaError, match=r"true at all times.*stream\.join\(sites, on=\.\.\.\)"):
            build()
    assert jobs.join(sites, on="k").tumbling(5).agg(n=rc.count()).schema.names == ["n"]
    assert sites.join(jobs, on="k", how="semi").tumbling(5).agg(n=rc.count()).schema.names == ["n"]
    counted = rc.run(sites.agg(n=rc.count()), {"sites": SWISS}).history()
    assert (counted.vs.tolist(), counted.ve.tolist()) == ([rc.BEGINNING], [rc.FOREVER])


def test_rows_of_a_table_with_lifetimes_of_their_own_are_events() -> None:
    leases = rc.table("sites", {"from": "int64", "to": "int64"})
    counted = leases.with_lifetime("from", "to", bound=0).tumbling(5).agg(n=rc.count())
    found = rc.run(counted, {"sites": pa.table({"from": [3, -2], "to": [9, 1]})}).history()
    assert (found.vs.tolist(), found.to_arrow()["n"].to_pylist()) == ([-5, 0, 5], [1, 2, 1])
    with_end = leases.with_columns(last=rc.end())
    for still in (
        leases.with_lifetime("from", rc.end(), bound=0),
        with_end.with_lifetime("from", "last", bound=0),
    ):
        with pytest.raises(rc.SchemaError, match="true at all times"):
            still.tumbling(5)


def test_a_table_is_pushed_once_and_whole() -> None:
    live = rc.session(jobs.join(sites, on="k"))
    refused: list[tuple[Any, str]] = [
        (
            [rc.Insert({"k": "a", "country": "CH"}, 0, 1)],
            "comes as a whole",
        ),
        (pa.table({"k": ["a"]}), "no column country"),
        (
            SWISS.append_column("_vs", pa.array([1, 2])),
            "column _vs: a table .* has rows without times",
        ),
    ]
    for data, message in refused:
        with pytest.raises(rc.RecensionError, match=message):
            live.push("sites", data)
    live.push("sites", pd.DataFrame({"country": ["CH"], "k": ["a"], "more": [1]}))
    with pytest.raises(rc.RecensionError, match=r"there already; .*refresh='10m'"):
        live.push("sites", SWISS)
    live.push("jobs", WORK)
    assert elements(live.read()) == ["insert [1, 5) {'k': 'a', 'v': 1, 'country': 'CH'}", "cti 3"]


def test_no_rows_is_a_table_too() -> None:
    out = rc.run(jobs.join(sites, on="k", how="anti"), {"jobs": WORK, "sites": SWISS.slice(0, 0)})
    assert len(out.history()) == 2
    with pytest.raises(rc.RecensionError, match="a table needs a name"):
        rc.table("", SITES)
    with pytest.raises(rc.RecensionError, match="refresh"):
        rc.table("sites", SITES, refresh=0)


def test_a_new_version_holds_from_the_cti_of_the_stream_on() -> None:
    live = rc.session(jobs.join(refreshed, on="k"))
    live.push("jobs", WORK[:1])
    live.push("sites", SWISS)
    live.push("jobs", WORK[2:])
    live.push("sites", BRITISH)
    live.push("jobs", [rc.Insert({"k": "b", "v": 3}, 3, 6), rc.Cti(5)])
    live.push("sites", SWISS.slice(0, 0))
    assert elements(live.read()) == [
        "insert [1, 5) {'k': 'a', 'v': 1, 'country': 'CH'}",
        "cti 3",
        "insert [3, 6) {'k': 'b', 'v': 3, 'country': 'CH'}",
        "insert [3, 6) {'k': 'b', 'v': 3, 'country': 'UK'}",
        "cti 5",
        "retract [3, 6) -> 5 {'k': 'b', 'v': 3, 'country': 'CH'}",
        "retract [3, 6) -> 5 {'k': 'b', 'v': 3, 'country': 'UK'}",
    ]
    live.close()
    with pytest.raises(rc.RecensionError, match="have ended"):
        live.push("sites", SWISS)


@given(st.data())
def test_versions_are_the_bag_differences_at_the_ctis(data: st.DataObject) -> None:
    """The history is that of a join with the rows of each version, from its CTI to the next one's."""
    history: list[Event] = data.draw(histories(JOBS))
    stream: list[Element] = data.draw(physical_streams(history, closed=False))
    query = jobs.join(refreshed, on="k")
    live = rc.session(query)
    versions: list[tuple[int, pa.Table]] = [(rc.BEGINNING, data.draw(rows))]
    live.push("sites", versions[0][1])
    reached = rc.BEGINNING
    for part in data.draw(batchings(stream)):
        live.push("jobs", part)
        reached = max([reached, *(e.t for e in part if isinstance(e, rc.Cti))])
        if reached < rc.FOREVER and data.draw(st.booleans()):
            versions.append((reached, data.draw(rows)))
            live.push("sites", versions[-1][1])
        if data.draw(st.booleans()):
            saved = live.snapshot()
            live = rc.session(query)
            live.restore(saved)
    ends = [*(start for start, _ in versions[1:]), rc.FOREVER]
    joined = [
        event
        for (start, table), end in zip(versions, ends, strict=True)
        if start < end
        for event in denote.join(
            history, [Event(row, start, end) for row in table.to_pylist()], on="k", right_columns=["country"]
        )
    ]
    found = live.history()
    for t in range(-1, 40):
        assert sorted(map(str, _at(joined, t))) == sorted(map(str, _at(found.to_events(), t)))


def _at(events: list[Event], t: int) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in events if event.vs <= t < event.ve]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_the_command_reads_a_table(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.py").write_text(
        "import recension as rc\n"
        "jobs = rc.source('jobs', {'k': 'string', 'v': 'int64'})\n"
        "query = jobs.join(rc.table('sites', {'k': 'string', 'country': 'string'}), on='k')\n"
    )
    (tmp_path / "jobs.csv").write_text("_vs,_ve,k,v\n1,5,a,1\n2,4,c,2\n")
    table = tmp_path / f"sites.{suffix}"
    if suffix == "parquet":
        pq.write_table(SWISS, table)
    else:
        frame = SWISS.to_pandas()
        text = frame.to_csv(index=False) if suffix == "csv" else frame.to_json(orient="records", lines=True)
        table.write_text(text)
    inputs = ["--input", f"jobs={tmp_path / 'jobs.csv'}", "--input", f"sites={table}"]
    assert main(["run", str(tmp_path / "q.py"), *inputs, "-o", "-", "--format", "csv"]) == 0
    assert capsys.readouterr().out == (
        "_kind,_vs,_ve,_new_ve,_count,k,v,country\ninsert,1,5,,,a,1,CH\ncti,,,,,,,\n"
    )


def test_the_command_refuses_a_folder_of_versions_that_it_would_read_as_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.py").write_text(
        "import recension as rc\n"
        "jobs = rc.source('jobs', {'k': 'string', 'v': 'int64'})\n"
        "sites = rc.table('sites', {'k': 'string', 'country': 'string'}, refresh='10m')\n"
        "query = jobs.join(sites, on='k')\n"
    )
    (tmp_path / "jobs.csv").write_text("_vs,_ve,k,v\n1,5,a,1\n")
    (tmp_path / "sites").mkdir()
    pq.write_table(SWISS, tmp_path / "sites" / "1.parquet")
    for table, code in (("sites", 2), ("sites/1.parquet", 0)):
        inputs = ["--input", f"jobs={tmp_path / 'jobs.csv'}", "--input", f"sites={tmp_path / table}"]
        assert main(["run", str(tmp_path / "q.py"), *inputs, "-o", "-", "--format", "csv"]) == code
    assert "a folder of versions is for --engine spark" in capsys.readouterr().err


def test_what_a_table_follows_is_part_of_a_snapshot() -> None:
    """One stream is far ahead of the other when the session is restored, and sends nothing more."""
    more = rc.source("more", {"k": "string", "w": "int64"})
    query = jobs.join(refreshed, on="k").join(more, on="k")
    lives = [rc.session(query), rc.session(query)]
    for live in lives:
        live.push("sites", SWISS)
        live.push("more", [rc.Insert({"k": "b", "w": 1}, 0, 30), rc.Cti(20)])
        live.push("jobs", [rc.Insert({"k": "b", "v": 1}, 0, 30), rc.Cti(3)])
    saved = lives[0].snapshot()
    lives[0].push("jobs", [rc.Cti(25)])
    restored = rc.session(query)
    for live in (restored, lives[0]):
        live.restore(saved)
    for live in (restored, *lives):
        live.push("jobs", [rc.Cti(10)])
        live.push("sites", BRITISH)
        assert sorted({event.vs for event in live.history().to_events()}) == [0, 10]
        assert_equivalent(live.history(), restored.history())
