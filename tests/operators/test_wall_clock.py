"""Block and remember by the wall clock: what waited long enough comes out, what comes too late is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import recension as rc
from recension.cli import load_commands
from recension.core.batch import from_elements
from recension.core.events import Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.align import Align
from recension.operators.finalize import Finalize
from recension.operators.state.progress import ClockHistory
from recension.runners.local import Session
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

s = rc.source("s", {"x": "int64"})


class Reached:
    """Where a stream had got to so long ago, by looking at everything that ever came."""

    def __init__(self, length: int) -> None:
        self.length, self.now, self.seen = length, 0, list[tuple[int, int]]()

    def __call__(self) -> int:
        return max((vs for at, vs in self.seen if at + self.length <= self.now), default=BEGINNING)

    def note(self, events: list[Event]) -> None:
        self.seen += [(self.now, e.vs) for e in events]


@given(st.data(), st.integers(1, 4))
def test_align_shows_what_the_stream_had_reached_so_long_ago(data: st.DataObject, block: int) -> None:
    drive, reached = Driver(lambda: Align(SCHEMA, block, by_clock=True), SCHEMA), Reached(block)
    for batch in data.draw(st.lists(histories(max_size=3), max_size=6)):
        reached.now += data.draw(st.integers(0, 3))
        drive.tick(reached.now)
        drive.feed([Insert(e.payload, e.vs, e.ve) for e in batch])
        reached.note(batch)
        assert_equivalent(drive.history(), [e for e in drive.input_history() if e.vs <= reached()])
        if data.draw(st.booleans()):
            drive.restore_twin()
    drive.tick(reached.now + block)
    assert_equivalent(drive.history(), drive.input_history())
    assert drive.operator.state_rows() == 0


@given(st.data(), st.integers(1, 4))
def test_align_gives_the_history_of_any_stream(data: st.DataObject, block: int) -> None:
    drive, now = Driver(lambda: Align(SCHEMA, block, by_clock=True), SCHEMA), 0
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        now += data.draw(st.integers(0, 3))
        drive.tick(now)
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    drive.tick(now + block)
    assert_equivalent(drive.history(), drive.input_history())


@given(st.data(), st.integers(1, 4))
def test_finalize_loses_exactly_what_comes_too_late(data: st.DataObject, remember: int) -> None:
    drive = Driver(lambda: Finalize(SCHEMA, remember, by_clock=True), SCHEMA)
    reached, in_time, late = Reached(remember), list[Event](), 0
    for batch in data.draw(st.lists(histories(max_size=3), max_size=6)):
        reached.now += data.draw(st.integers(0, 3))
        drive.tick(reached.now)
        drive.feed([Insert(e.payload, e.vs, e.ve) for e in batch])
        in_time += [e for e in batch if e.vs >= reached()]
        late += sum(e.vs < reached() for e in batch)
        reached.note(batch)
        assert drive.cti == reached()
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert_equivalent(drive.history(), in_time)
    assert drive.operator.counts().total() == late


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def shown(session: Session) -> list[str]:
    return [str(e) for e in session.read().elements()]


def test_time_passes_without_input() -> None:
    clock = Clock()
    session = rc.session(s.align(rc.wall_clock("5s")), clock=clock)
    session.push("s", [Insert({"x": 1}, 5, 9)])
    clock.now = 2_000_000
    session.push("s", [Insert({"x": 2}, 2, 9)])
    assert shown(session) == []
    clock.now = 5_000_000
    assert shown(session) == ["insert [2, 9) {'x': 2}", "insert [5, 9) {'x': 1}"]
    session.push("s", [Insert({"x": 3}, 8, 9), Retract({"x": 3}, 8, 9, 8), Insert({"x": 4}, 9, 12)])
    clock.now = 11_000_000
    session.tick()
    assert session.metrics()[-1].events_out == 3
    assert shown(session) == ["insert [9, 12) {'x': 4}"]


def test_waiting_outlives_the_session() -> None:
    query = s.align(rc.wall_clock("5s")).finalize(rc.wall_clock("1m"))
    clock = Clock()
    session = rc.session(query, clock=clock)
    session.push("s", [Insert({"x": 1}, 5, 9)])
    clock.now = 4_000_000
    chunks = session.snapshot()
    restored = rc.session(query, clock=clock)
    restored.restore(chunks)
    assert shown(restored) == []
    clock.now = 5_000_000
    assert shown(restored) == ["insert [5, 9) {'x': 1}"]
    clock.now = 65_000_000
    assert shown(restored) == ["cti 5"]
    restored.push("s", [Insert({"x": 2}, 4, 9), Insert({"x": 3}, 5, 9)])
    clock.now = 70_000_000
    assert shown(restored) == ["insert [5, 9) {'x': 3}"]
    assert restored.metrics()[-1].dropped == 1


def test_a_long_passage_is_told_to_a_4096th_and_freed_by_time() -> None:
    """A step every 100 ms for 100 minutes; a 4096th of the hour is not quite nine of them."""
    passage, hour = ClockHistory(3_600_000_000), 36_000
    for n in range(60_000):
        reached = passage.tick(n * 100_000)
        passage.note(n)
        assert reached == BEGINNING if n < hour else n - hour - 9 <= reached <= n - hour or n < hour + 9
    assert 3_900 < len(passage) <= 4097
    assert passage.nbytes() >= 16 * len(passage)
    assert passage.tick((n + hour) * 100_000) == n
    assert len(passage) == 0


@pytest.mark.parametrize("operator", [Align, Finalize])
def test_what_is_remembered_of_the_clock_is_counted(operator: type[Align | Finalize]) -> None:
    clocked, timeless = operator(SCHEMA, 100, by_clock=True), operator(SCHEMA, FOREVER)
    for n in range(10):
        come_and_gone: list[Element] = [
            Insert({"k": "a", "v": 1}, n, 50),
            Retract({"k": "a", "v": 1}, n, 50, n),
        ]
        clocked.on_clock(n)
        for each in (clocked, timeless):
            each.on_batch(0, from_elements(come_and_gone, SCHEMA))
    assert clocked.state_rows() == timeless.state_rows() + 10
    assert clocked.state_bytes() > timeless.state_bytes()


def test_a_clock_set_back_stands_still() -> None:
    clock = Clock()
    session = rc.session(s.align(rc.wall_clock(10)), clock=clock)
    clock.now = 100
    session.push("s", [Insert({"x": 1}, 5, 9)])
    clock.now = 50
    session.push("s", [Insert({"x": 2}, 6, 9)])
    clock.now = 110
    assert len(session.read().elements()) == 2


def test_explain_and_refusals() -> None:
    query = s.agg(n=rc.count()).consistency(block=rc.wall_clock("5s"), remember=rc.wall_clock("1m"))
    text = query.explain()
    assert "align, block 5000000 by the wall clock" in text
    assert "finalize, remember 60000000 by the wall clock" in text
    assert "once the block has passed on the wall clock" in text
    assert "a CTI at most" not in text
    for length in (0, -1, FOREVER):
        with pytest.raises(rc.TimeError, match="wall_clock: it takes 1 microsecond or more"):
            rc.wall_clock(length)


def test_a_run_over_a_file(tmp_path: Path) -> None:
    query, stream = tmp_path / "query.py", tmp_path / "s.jsonl"
    query.write_text(
        'import recension as rc\nquery = rc.source("s", {"x": "int64"}).align(rc.wall_clock("1h"))\n'
    )
    stream.write_text('{"_kind": "insert", "_vs": 5, "_ve": 9, "x": 1}\n{"_kind": "cti", "_vs": 4}\n')
    arguments = ["run", str(query), "--input", f"s={stream}"]
    waiting, closed = (CliRunner().invoke(load_commands(), [*arguments, *more]) for more in ([], ["--close"]))
    assert (waiting.exit_code, closed.exit_code) == (0, 0)
    assert "5" not in waiting.stdout
    assert "5" in closed.stdout
