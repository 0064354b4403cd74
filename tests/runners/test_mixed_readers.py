"""A source that Finalize mends and that others read as it is: each reader gets what it can work with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Element, Event, Insert, Retract
from recension.core.validity import UNKNOWN
from recension.gate.files import open_stream
from recension.runners.local import Session
from recension.testing import assert_equivalent
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

BROKEN = [Retract({"x": 1}, 0, 9, 4), Insert({"x": 1}, 0, 9), Insert({"x": 2}, 1, 5)]
MENDED = [Event({"x": 1}, 0, 4), Event({"x": 2}, 1, 5)]
UNMENDED = [Event({"x": 1}, 0, 9), Event({"x": 2}, 1, 5)]


def source(on_violation: str) -> rc.Stream:
    return rc.source("s", {"x": "int64"}, on_violation=on_violation)  # type: ignore[arg-type]


def both(on_violation: str) -> Session:
    s = source(on_violation)
    return rc.session(mended=s.finalize(), raw=s, above=s.where(rc.col("x") > 0))


@pytest.mark.parametrize("on_violation", ["drop", "adjust"])
def test_the_finalized_reader_mends_and_the_others_get_a_valid_stream(on_violation: str) -> None:
    session = both(on_violation)
    session.push("s", BROKEN)
    assert_equivalent(session.read("mended").history(), MENDED)
    for query in ("raw", "above"):
        result = session.read(query)
        assert_equivalent(result.history(), UNMENDED)
        assert [(reason, len(batch)) for reason, batch in result.dropped["check s"]] == [(UNKNOWN, 1)]
    assert session.counts()["check s"] == {UNKNOWN: 1}


def test_with_raise_the_error_names_the_source_and_says_what_to_do() -> None:
    session = both("raise")
    told = r"^s: row 1: retracts an event .*'s' is read without one too: put \.finalize\(\) there as well"
    with pytest.raises(StreamError, match=told):
        session.push("s", BROKEN)


def test_so_does_that_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"_kind": "retract", "_vs": 0, "_ve": 9, "_new_ve": 4, "x": 1}\n')
    s = source("raise")
    with pytest.raises(StreamError, match=r"row 1: retracts .*'s' is read without one too"):
        rc.run(s.finalize().union(s), {"s": open_stream(tmp_path / "s.jsonl")})


def test_a_source_that_only_a_finalize_reads_is_not_checked() -> None:
    result = rc.run(source("raise").finalize(), {"s": BROKEN})
    assert_equivalent(result.history(), MENDED)


def test_the_check_forgets_what_comes_to_nothing_above_it() -> None:
    s = source("drop")
    session = rc.session(mended=s.finalize(5), raw=s.advance_time(5))
    session.push("s", [Insert({"x": t}, t, t + 3) for t in range(3_000)])
    [check] = [line for line in session.metrics() if line.name == "check s"]
    assert check.state_rows <= 20


@given(st.data())
def test_a_valid_stream_passes_whole_through_a_restart_too(data: st.DataObject) -> None:
    s = rc.source("s", SCHEMA, on_violation="drop")
    queries = {"mended": s.finalize().plan, "raw": s.plan}
    session, seen = Session(queries), dict[str, list[Element]](mended=[], raw=[])
    stream = data.draw(physical_streams(data.draw(histories()), shrink_only=True))
    for batch in data.draw(batchings(stream)):
        session.push("s", batch)
        for query, elements in seen.items():
            elements += session.read(query).elements()
        if data.draw(st.booleans()):
            chunks = session.snapshot()
            session = Session(queries)
            session.restore(chunks)
    assert not session.counts().get("check s")
    assert list(map(str, seen["raw"])) == list(map(str, seen["mended"]))
