"""How long a row lives: the guide's table, way by way; and what is said of queries that misjudge it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.cli.inputs import open_inputs
from recension.runners.finite import push_inputs

SCHEMA = {"k": "string"}
PLAIN = rc.source("s", SCHEMA)
INSTANTS = rc.source("s", SCHEMA, start="t")
SPANS = rc.source("s", SCHEMA, start="t", end="u")
NEVER = rc.FOREVER


def table(**columns: list[Any]) -> pa.Table:
    """Whole numbers, also where all are null; texts in k."""
    kinds = {name: pa.string() if name in ("k", "_kind") else pa.int64() for name in columns}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


AT_5: dict[str, list[Any]] = {"k": ["a"], "t": [5]}
WAYS: dict[str, tuple[rc.Stream, Any, list[tuple[int, int]]]] = {
    "element with an end": (PLAIN, [rc.Insert({"k": "a"}, 5, 9)], [(5, 9)]),
    "element": (PLAIN, [rc.Insert({"k": "a"}, 5)], [(5, NEVER)]),
    "_vs and _ve": (PLAIN, table(_vs=[5, 6], _ve=[9, None], k=["a", "a"]), [(5, 9), (6, NEVER)]),
    "_vs only": (PLAIN, table(_vs=[5], k=["a"]), [(5, NEVER)]),
    "start and end": (SPANS, table(**AT_5, u=[9]), [(5, 9)]),
    "start, and an end that is null": (SPANS, table(**AT_5, u=[None]), [(5, NEVER)]),
    "start only": (INSTANTS, table(**AT_5), [(5, 6)]),
    "elements for a source with start": (INSTANTS, [rc.Insert({"k": "a"}, 5)], [(5, NEVER)]),
    "a stream for a source with start": (INSTANTS, table(_kind=["insert"], _vs=[5], k=["a"]), [(5, NEVER)]),
    "a history for a source with start": (
        INSTANTS,
        rc.History.from_events([rc.Event({"k": "a"}, 5, 8)]),
        [(5, 8)],
    ),
    "open and close": (
        PLAIN,
        table(_kind=["open", "open", "close"], _vs=[5, 6, None], _ve=[None, None, 9], k=["a", "b", "a"]),
        [(5, 9), (6, NEVER)],
    ),
    "a table": (rc.table("s", SCHEMA), table(k=["a"]), [(rc.BEGINNING, NEVER)]),
    "a key, start only": (rc.source("s", SCHEMA, start="t", key="k"), table(**AT_5), [(5, 6)]),
    "a key, _vs only": (rc.source("s", SCHEMA, key="k"), table(_vs=[5], k=["a"]), [(5, NEVER)]),
    "changes": (
        rc.changes("s", {**SCHEMA, "v": "int64"}, key="k", start="t"),
        table(k=["a", "a"], t=[5, 8], v=[1, 2]),
        [(5, 8), (8, NEVER)],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_how_long_a_row_lives(way: str) -> None:
    query, given, lives = WAYS[way]
    assert _lives(rc.run(query, {"s": given})) == lives
    live = rc.session(query)
    live.push("s", given)
    assert _lives(live) == lives


# A file is read by the columns that its source names: there a stream has to have them.
IN_FILES = [
    way
    for way, (_, given, _) in WAYS.items()
    if isinstance(given, pa.Table) and not way.startswith("a stream")
]


@pytest.mark.parametrize("way", IN_FILES)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_are_as_tables(way: str, form: str, tmp_path: Path) -> None:
    query, given, lives = WAYS[way]
    path = tmp_path / f"s.{form}"
    write: Callable[..., None] = pa.csv.write_csv if form == "csv" else pq.write_table
    write(given, path)
    live = rc.session(query)
    readers = open_inputs({"s": path}, query.plan, live.unchecked_sources, 10)
    assert list(push_inputs(live, readers))
    assert _lives(live) == lives


def _lives(answer: Any) -> list[tuple[int, int]]:
    history = answer.history().to_arrow()
    ends = [NEVER if end is None else end for end in history["_ve"].to_pylist()]
    starts = [rc.BEGINNING if start is None else start for start in history["_vs"].to_pylist()]
    return sorted(zip(starts, ends, strict=True))


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (PLAIN, "rows live from _vs to _ve; without _ve, for ever"),
        (INSTANTS, "rows are instants: one tick; end=, .set_duration() or .inserts() give them length"),
        (SPANS, "rows live from t to u; where u is null, for ever"),
        (rc.table("s", SCHEMA), "rows live for ever, from the beginning of time on"),
        (rc.table("s", SCHEMA, refresh="1h"), "rows live until a later version of the table lacks them"),
        (rc.source("s", SCHEMA, start="t", end="u", key="k"), "null, for ever; the next row of a key repl"),
        (
            rc.changes("s", SCHEMA, key="k"),
            "a row lives until the next row of its key; the last one for ever",
        ),
        (rc.debezium("s", SCHEMA, key="k").stream, "a row lives until the next row of its key"),
    ],
)
def test_explain_says_it_of_each_source(stream: rc.Stream, says: str) -> None:
    lines = [line for line in stream.explain().splitlines() if "lifetimes: " in line]
    assert [says in line for line in lines] == [True]
    assert says in rc.session(stream).explain()


CALLS = rc.source("calls", {"k": "string", "t": "int64"}, start="t")
FAULTS = rc.source("faults", SCHEMA, start="t")
TWO_INSTANTS = "inner join on k: both sides are instants, which meet only at the very same tick"
DOUBTS = {
    "instants with instants": (CALLS.join(FAULTS, on="k"), TWO_INSTANTS),
    "through filters": (CALLS.where(rc.col("t") > 0).union(CALLS).join(FAULTS, on="k"), TWO_INSTANTS),
    "points": (PLAIN.to_points().join(FAULTS, on="k", how="left"), "left join on k: both sides are instants"),
    "a key that is a start": (
        CALLS.group_by("t").agg(n=rc.count()),
        "the key t is the start column of source calls, so nearly every row has a key of its own",
    ),
    "a renamed key": (
        CALLS.rename({"t": "at"}).group_by("at").tumbling(10).agg(n=rc.count()),
        "the key t is the start column of source calls",
    ),
    "a keyed source": (
        rc.source("s", {"t": "int64"}, key="t", start="t"),
        "records by t: the key t is the start column of source s",
    ),
    "windows over inserts": (
        PLAIN.inserts().tumbling(10).agg(n=rc.count()),
        "rows that never end are in every window from their start on; name a last start with until=",
    ),
    "sessions over inserts": (
        PLAIN.inserts().sessions(10).agg(n=rc.count()),
        "rows that never end are in a session that is never over",
    ),
}
SURE = {
    "instants with lifetimes": CALLS.join(FAULTS.set_duration(9), on="k"),
    "instants by the distance of their starts": CALLS.join(FAULTS, on="k", starts=(0, 5)),
    "instants by that, and those without": CALLS.join(FAULTS, on="k", how="full", starts=(0, 5)),
    "what does not follow": rc.unless(CALLS, FAULTS, within=5, on="k"),
    "windows of instants": CALLS.tumbling(9).agg(n=rc.count()).join(FAULTS, where=rc.lit(True)),
    "instants with spans": CALLS.join(SPANS, on="k"),
    "a part of a time as a key": CALLS.group_by(day=rc.col("t") % 7).agg(n=rc.count()),
    "windows that end": PLAIN.inserts().tumbling(10, until=50).agg(n=rc.count()),
    "windows of instants alone": CALLS.tumbling(10).agg(n=rc.count()),
    "a day as a key": rc.source("s", {"day": "date32"}, start="day").group_by("day").agg(n=rc.count()),
    "a reading is known by where and when": rc.source(
        "s", {"k": "string", "t": "int64"}, key=["k", "t"], start="t"
    ),
    "joined by where and when": CALLS.set_duration(9).join(CALLS.set_duration(5), on=["k", "t"]),
    "an answer with a start of its own": PLAIN.agg(t=rc.count()).group_by("t").agg(n=rc.count()),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_is_hardly_meant_is_said_by_explain(doubt: str) -> None:
    query, says = DOUBTS[doubt]
    found = [line for line in query.explain().splitlines() if line.startswith("warning: ")]
    assert [says in line for line in found] == [True]


@pytest.mark.parametrize("query", SURE.values(), ids=SURE)
def test_nothing_is_said_of_what_can_be_meant(query: rc.Stream) -> None:
    assert "warning" not in query.explain()


def test_a_run_says_it_once_with_the_first_rows(caplog: pytest.LogCaptureFixture) -> None:
    live = rc.session(CALLS.join(FAULTS, on="k"))
    with caplog.at_level(logging.WARNING, "recension"):
        live.push("calls", table(**AT_5))
        assert caplog.messages == []  # the other side may be events with lifetimes
        live.push("faults", table(**AT_5))
        live.push("faults", table(k=["b"], t=[9]))
    assert [message.startswith(TWO_INSTANTS) for message in caplog.messages] == [True]
    assert [line for one in live.metrics() for line in one.warnings] == caplog.messages


def test_a_run_says_nothing_of_elements_that_have_lifetimes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "recension"):
        rc.run(CALLS.join(FAULTS, on="k"), {"calls": table(**AT_5), "faults": [rc.Insert({"k": "a"}, 3, 9)]})
    assert caplog.messages == []


def test_a_run_says_it_of_tables_that_never_end(caplog: pytest.LogCaptureFixture) -> None:
    """Elements without an end may still get one; the rows of a plain table do not."""
    query = PLAIN.sessions(5).agg(n=rc.count())
    with caplog.at_level(logging.WARNING, "recension"):
        rc.run(query, {"s": [rc.Insert({"k": "a"}, 5)]})
        assert caplog.messages == []
        rc.run(query, {"s": table(_vs=[5], k=["a"])})
    assert ["a session that is never over" in message for message in caplog.messages] == [True]
