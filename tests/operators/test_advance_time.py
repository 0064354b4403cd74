"""AdvanceTime: exactly the late elements are missing, and all of them are counted."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.late_by_element import LateByElement

import recension as rc
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING
from recension.core.validity import ADJUSTED, LATE
from recension.operators.advance_time import AdvanceTime, Late, Pace
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import payload_key
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

PACES = st.builds(Pace, st.integers(0, 4), st.sampled_from([None, 1, 2, 5])) | st.builds(
    Pace, st.integers(0, 4), st.none(), st.integers(1, 4)
)

P = {"x": 1}


def without_ctis(elements: list[Element]) -> list[Element]:
    return [e for e in elements if not isinstance(e, Cti)]


def paced(stream: list[Element], pace: Pace) -> Iterator[tuple[Insert | Retract, int]]:
    """Each element with the CTI before it."""
    latest, cti = BEGINNING, BEGINNING
    for number, element in enumerate(stream, start=1):
        assert isinstance(element, Insert | Retract)
        yield element, cti
        latest = max(latest, element.vs)
        if number % (pace.events or 1) == 0:
            t = latest - pace.delay
            cti = max(cti, t // pace.interval * pace.interval if pace.interval else t)


LATE_WAYS: list[Late] = ["drop", "adjust"]


@pytest.mark.parametrize("late", LATE_WAYS)
@given(st.data(), PACES)
def test_late_elements_go_where_the_walk_puts_them(late: Late, data: st.DataObject, pace: Pace) -> None:
    stream = without_ctis(data.draw(physical_streams(data.draw(histories()))))
    drive = Driver(lambda: AdvanceTime(SCHEMA, pace, late), SCHEMA)
    for batch in data.draw(batchings(stream)):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    sieve = LateByElement(adjusts=late == "adjust")
    for element, cti in paced(stream, pace):
        sieve.take(element, cti)
    assert list(map(str, without_ctis(drive.output))) == list(map(str, sieve.output))
    assert drive.operator.counts() == Counter({LATE: len(sieve.lost), ADJUSTED: sieve.moved})
    dropped = [e for _, batch in drive.operator.take_dropped() for e in batch.to_elements()]
    assert list(map(str, dropped)) == list(map(str, sieve.lost))


@given(st.data(), PACES)
def test_what_the_adjusted_stream_tells_from_the_last_cti_on_is_true(data: st.DataObject, pace: Pace) -> None:
    """Of events that had not ended before a CTI when they were told, nothing is lost after it."""
    stream = without_ctis(data.draw(physical_streams(data.draw(histories()))))
    drive = Driver(lambda: AdvanceTime(SCHEMA, pace, "adjust"), SCHEMA)
    drive.feed(stream)
    if not drive.operator.counts()[LATE]:
        assert after(drive.history(), drive.cti) == after(drive.input_history(), drive.cti)


def after(history: list[Event], t: int) -> list[str]:
    return sorted(f"{max(e.vs, t)} {e.ve} {payload_key(e.payload)}" for e in history if e.ve > t)


@given(st.data(), PACES, st.sampled_from(LATE_WAYS))
def test_the_output_is_valid_and_survives_a_restart(data: st.DataObject, pace: Pace, late: Late) -> None:
    drive = Driver(lambda: AdvanceTime(SCHEMA, pace, late), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.cti == drive.input_cti()


@given(st.data())
def test_nothing_is_late_with_delay_enough(data: st.DataObject) -> None:
    drive = Driver(lambda: AdvanceTime(SCHEMA, Pace(100), "drop"), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
    assert_equivalent(drive.history(), drive.input_history())
    assert drive.operator.state_rows() == 0


@pytest.mark.parametrize("late", LATE_WAYS)
def test_only_what_was_altered_is_remembered_until_the_cti_has_passed_it(late: Late) -> None:
    session = rc.session(rc.source("s", {"x": "int64"}).advance_time(2, late=late))
    for first in range(0, 5_000, 1_000):
        vs = np.arange(first, first + 1_000)
        vs[10::10] -= 9
        session.push("s", pa.table({"_kind": ["insert"] * 1_000, "_vs": vs, "_ve": vs + 20, "x": vs % 3}))
        assert 0 < session.metrics()[-1].state_rows < 20
    session.push("s", [Insert({"x": 0}, 6_000, 6_001)])
    assert session.metrics()[-1].state_rows == 0


def test_an_event_cut_off_is_corrected_ever_after() -> None:
    s = rc.source("s", {"x": "int64"})
    told = [
        Insert(P, 8, 9),
        Insert(P, 2, 10),
        Retract(P, 2, 10, 15),
        Retract(P, 2, 15, 12),
        Retract(P, 2, 12, 2),
    ]
    query = s.advance_time(2, late="adjust")
    assert_equivalent(rc.run(query, {"s": told[:4]}).history(), [Event(P, 8, 9), Event(P, 6, 12)])
    for batch_size in (1, 5):
        out = rc.run(query, {"s": told}, batch_size=batch_size)
        assert_equivalent(out.history(), [Event(P, 8, 9)])
        assert out.metrics[-1].dropped == 0


def test_a_chain_of_revisions_of_a_late_event_takes_time_in_proportion() -> None:
    size = 20_000
    ends = np.arange(size) + 30
    rows = {"_kind": ["insert", "insert"] + ["retract"] * size, "_vs": [20, 2] + [2] * size}
    rows |= {"_ve": [21, 30, *ends], "_new_ve": [None, None, *(ends + 1)], "x": [1] * (size + 2)}
    session = rc.session(rc.source("s", {"x": "int64"}).advance_time(2, late="adjust"))
    session.push("s", pa.table(rows))
    assert_equivalent(session.read().history(), [Event(P, 20, 21), Event(P, 18, 30 + size)])


@pytest.mark.parametrize(("late", "dropped"), [("drop", 1), ("aside", 1), ("adjust", 0)])
def test_late_events_are_counted_and_what_is_dropped_is_in_the_result(
    late: Literal["drop", "aside", "adjust"], dropped: int
) -> None:
    session = rc.session(rc.source("s", {"x": "int64"}).advance_time(2, late=late))
    session.push("s", [Insert({"x": x}, x, 20) for x in (5, 9, 2)])
    metrics = session.metrics()[-1]
    assert metrics.dropped == dropped
    assert sum(len(batch) for _, batch in session.read().dropped.get(metrics.name, [])) == dropped
    assert session.counts()[metrics.name][ADJUSTED] == (late == "adjust")


def test_a_slow_reference_does_not_hold_up_a_join() -> None:
    events, names = rc.source("events", {"k": "int64"}), rc.source("names", {"k": "int64", "name": "string"})
    session = rc.session(events.join(names.advance_time(by=events), on="k"))
    session.push("names", [Insert({"k": 1, "name": "one"}, 0, 100)])
    session.push("events", [Insert({"k": 1}, 5, 6), Cti(8)])
    assert [str(e) for e in session.read().elements()] == ["insert [5, 6) {'k': 1, 'name': 'one'}", "cti 8"]


def test_settings_that_say_nothing_are_refused() -> None:
    s = rc.source("s", {"x": "int64"})
    for settings in ({}, {"delay": 1, "by": s}, {"delay": -1}, {"delay": 1, "events": 0}):
        with pytest.raises(rc.TimeError, match="advance_time"):
            s.advance_time(**settings)
    with pytest.raises(rc.RecensionError, match="late is"):
        s.advance_time(1, late="keep")  # type: ignore[arg-type]
