"""Align: the same history whatever the block; ordered when the block has no end."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.operators.align import Align
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

BLOCKS = st.sampled_from([0, 1, 2, 5, 100, FOREVER])


def sync(element: Element) -> int:
    """When a change takes effect."""
    assert isinstance(element, Insert | Retract)
    return min(element.ve, element.new_ve) if isinstance(element, Retract) else element.vs


def until(history: list[Event], t: int) -> list[Event]:
    """What is true before ``t``."""
    return [Event(e.payload, e.vs, min(e.ve, t)) for e in history if e.vs < t]


@given(st.data(), BLOCKS)
def test_before_every_cti_the_history_is_the_inputs(data: st.DataObject, block: int) -> None:
    drive = Driver(lambda: Align(SCHEMA, block), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        assert drive.cti == drive.input_cti()
        assert_equivalent(until(drive.history(), drive.cti), until(drive.input_history(), drive.cti))
        if not block:
            assert_equivalent(drive.history(), drive.input_history())
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert_equivalent(drive.history(), drive.input_history())
    assert drive.operator.state_rows() == 0


@given(st.data())
def test_an_endless_block_orders(data: st.DataObject) -> None:
    drive = Driver(lambda: Align(SCHEMA, FOREVER), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
    changes = [sync(e) for e in drive.output if not isinstance(e, Cti)]
    assert all(a <= b for a, b in pairwise(changes))


@given(st.data(), st.sampled_from([1, 2, 5]))
def test_no_event_waits_longer_than_the_block(data: st.DataObject, block: int) -> None:
    drive = Driver(lambda: Align(SCHEMA, block), SCHEMA)
    latest = -(2**63)
    for element in data.draw(physical_streams(data.draw(histories()), closed=False)):
        drive.feed([element])
        latest = max(latest, element.t if isinstance(element, Cti) else sync(element))
        due = [e for e in drive.input_history() if e.vs <= latest - block]
        shown = [e for e in drive.history() if e.vs <= latest - block]
        assert_equivalent(shown, due)


@given(st.data(), BLOCKS)
def test_no_more_changes_come_out_than_go_in(data: st.DataObject, block: int) -> None:
    drive = Driver(lambda: Align(SCHEMA, block), SCHEMA)
    stream = data.draw(physical_streams(data.draw(histories())))
    for element in stream:
        drive.feed([element])
    assert len(drive.output) <= len(stream)


def test_equal_times_keep_the_order_of_arrival() -> None:
    arriving: list[Element] = [Insert({"k": k, "v": 0}, 5, 9) for k in ("b", "a", "c")]
    drive = Driver(lambda: Align(SCHEMA, FOREVER), SCHEMA)
    for element in arriving:
        drive.feed([element])
    assert drive.feed([Cti(6)]) == [*arriving, Cti(6)]
