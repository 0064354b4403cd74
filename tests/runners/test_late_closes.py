"""A stream of open and close rows gives what the same stream gives in inserts and retractions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.events import Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.core.validity import LATE
from recension.gate.open_close import GONE
from recension.operators.advance_time import Late
from recension.testing import assert_equivalent

Row = tuple[str, int | None, int | None, str]
FIELDS = pa.schema([("_kind", pa.string()), ("_vs", pa.int64()), ("_ve", pa.int64()), ("x", pa.string())])
COLUMNS = {"x": "string"}
s, clock = rc.source("s", COLUMNS), rc.source("clock", COLUMNS)


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FIELDS.names, row, strict=True)) for row in rows], FIELDS)


def translated(rows: list[Row]) -> list[Element]:
    """The rows in inserts and retractions, by hand."""
    found: list[Element] = []
    lives: dict[str, tuple[int, int]] = {}
    for kind, vs, ve, x in rows:
        if kind == "close":
            start, end = lives[x]
            assert ve is not None
            found.append(Retract({"x": x}, start, end, ve))
            lives[x] = start, ve
        else:
            assert vs is not None
            found.append(Insert({"x": x}, vs, FOREVER if ve is None else ve))
            if kind == "open":
                lives[x] = vs, FOREVER
    return found


CUT: list[Row] = [
    ("open", 0, None, "a"),
    ("insert", 100, 101, "x"),
    ("close", None, 7, "a"),
    ("close", None, 200, "a"),
]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_an_event_cut_off_at_the_cti_can_be_closed_again(size: int) -> None:
    result = rc.run(s.advance_time(10, late="adjust"), {"s": table(CUT)}, batch_size=size)
    assert_equivalent(result.history(), [Event({"x": "a"}, 0, 200), Event({"x": "x"}, 100, 101)])


def test_so_it_can_in_a_group() -> None:
    query = s.group_by("x").apply(lambda g: g.advance_time(by=clock, late="adjust"))
    session = rc.session(query)
    session.push("s", table(CUT[:1]))
    session.advance("clock", 90)
    for row in CUT[2:]:
        session.push("s", table([row]))
    assert_equivalent(session.read().history(), [Event({"x": "a"}, 0, 200)])


def test_once_the_cti_has_passed_the_cut_it_is_forgotten() -> None:
    session = rc.session(s.advance_time(10, late="adjust"))
    session.push("s", table(CUT[:3]))
    assert session.snapshot()["sources/s/open"].num_rows == 1
    session.push("s", table([("insert", 101, 102, "x")]))
    assert session.snapshot()["sources/s/open"].num_rows == 0
    session.push("s", table(CUT[3:]))
    assert session.counts()["s"] == {GONE: 1}


@st.composite
def feeds(draw: st.DrawFn) -> list[Row]:
    """A few payloads that open, and close again and again, while points let the time go on."""
    rows: list[Row] = [("open", 0, None, "a")]
    lives = {"a": (0, FOREVER)}
    for now in range(5, 5 * draw(st.integers(4, 12)), 5):
        x = draw(st.sampled_from("aab"))
        kind = draw(st.sampled_from(["open", "insert", "close", "close", "close"]))
        if kind == "open":
            lives[x] = max(0, now - draw(st.integers(0, 12))), FOREVER
            rows.append(("open", lives[x][0], None, x))
        elif kind == "close" and x in lives:
            start, end = lives[x]
            ends = {start + 1, start + 9, now - 3, now + 9, now + 20} - {end}
            lives[x] = start, draw(st.sampled_from(sorted(t for t in ends if t > start)))
            rows.append(("close", None, lives[x][1], x))
        else:
            rows.append(("insert", now, now + 1, "tick"))
    return rows


def outcome(query: rc.Stream, parts: list[object], *, revive: bool) -> tuple[list[str], int, int]:
    """What comes out, how much is dropped, and how much of it the results give."""
    session, shown, given = rc.session(query), list[str](), 0
    for part in parts:
        session.push("s", part)
        result = session.read()
        shown += map(str, result.elements())
        given += sum(len(batch) for dropped in result.dropped.values() for _, batch in dropped)
        if revive:
            chunks = session.snapshot()
            session = rc.session(query)
            session.restore(chunks)
    return shown, sum(c[LATE] + c[GONE] for c in session.counts().values()), given


@pytest.mark.parametrize("late", ["drop", "adjust"])
@given(feeds(), st.integers(0, 8), st.integers(1, 4), st.booleans())
def test_both_ways_to_write_a_stream_give_the_same(
    late: Late, rows: list[Row], delay: int, size: int, revive: bool
) -> None:
    query, elements = s.advance_time(delay, late=late), translated(rows)
    parts = range(0, len(rows), size)
    written = outcome(query, [table(rows[at : at + size]) for at in parts], revive=revive)
    by_hand = outcome(query, [elements[at : at + size] for at in parts], revive=revive)
    assert written == by_hand
