"""AdvanceTime: exactly the late elements are missing, and all of them are counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.events import Cti, Element, Insert
from recension.core.ticks import BEGINNING
from recension.core.validity import ADJUSTED
from recension.operators.advance_time import AdvanceTime, Late, Pace
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams
from recension.testing.walk import Walk

PACES = st.builds(Pace, st.integers(0, 4), st.sampled_from([None, 1, 2, 5])) | st.builds(
    Pace, st.integers(0, 4), st.none(), st.integers(1, 4)
)


def without_ctis(elements: list[Element]) -> list[Element]:
    return [e for e in elements if not isinstance(e, Cti)]


def told(stream: list[Element], pace: Pace) -> tuple[list[Element], int]:
    """One element at a time: what stays, and how many do not."""
    walk, kept, latest, dropped = Walk(), list[Element](), BEGINNING, 0
    for number, element in enumerate(stream, start=1):
        assert not isinstance(element, Cti | rc.ExternalCti)
        latest = max(latest, element.vs)
        if walk.fault(element) is None:
            walk.take(element)
            kept.append(element)
        else:
            dropped += 1
        if number % (pace.events or 1) == 0:
            t = latest - pace.delay
            walk.take(Cti(t // pace.interval * pace.interval if pace.interval else t))
    return kept, dropped


@given(st.data(), PACES)
def test_exactly_the_late_elements_are_missing_however_they_are_cut(data: st.DataObject, pace: Pace) -> None:
    stream = without_ctis(data.draw(physical_streams(data.draw(histories()))))
    drive = Driver(lambda: AdvanceTime(SCHEMA, pace, "drop"), SCHEMA)
    for batch in data.draw(batchings(stream)):
        drive.feed(batch)
    kept, dropped = told(stream, pace)
    assert list(map(str, without_ctis(drive.output))) == list(map(str, kept))
    assert drive.operator.counts().total() == dropped


@given(st.data(), PACES, st.sampled_from(["drop", "adjust", "aside"]))
def test_the_output_is_valid_and_survives_a_restart(data: st.DataObject, pace: Pace, late: Late) -> None:
    drive = Driver(lambda: AdvanceTime(SCHEMA, pace, late), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.revive()
    assert drive.cti == drive.given_cti()


@given(st.data())
def test_nothing_is_late_with_delay_enough(data: st.DataObject) -> None:
    drive = Driver(lambda: AdvanceTime(SCHEMA, Pace(100), "drop"), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
    assert_equivalent(drive.history(), drive.given())


@pytest.mark.parametrize(("late", "dropped", "aside"), [("drop", 1, 0), ("aside", 1, 1), ("adjust", 0, 0)])
def test_late_events_are_counted(late: Late, dropped: int, aside: int) -> None:
    session = rc.session(rc.source("s", {"x": "int64"}).advance_time(2, late=late))
    session.push("s", [Insert({"x": x}, x, 20) for x in (5, 9, 2)])
    metrics = session.metrics()[-1]
    assert metrics.dropped == dropped
    assert sum(len(batch) for _, batch in session.read().dropped.get(metrics.name, [])) == aside
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
