"""Cleanse: the longest final prefix, in order, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from recension.core.events import Cti, Element, Event, Insert
from recension.core.ticks import FOREVER
from recension.operators.cleanse import Cleanse
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams


def key(event: Event | Insert) -> tuple[object, ...]:
    """(vs, payload, ve) with nulls first."""
    return event.vs, *((value is not None, value) for value in event.payload.values()), event.ve


def due(given: list[Event], t: int) -> tuple[list[Event], int]:
    """The longest prefix that is final at ``t``, and the CTI that goes with it."""
    released: list[Event] = []
    for event in sorted(given, key=key):
        if event.ve >= t and t < FOREVER:
            return released, min(t, event.vs)
        released.append(event)
    return released, t


@given(st.data())
def test_exactly_the_final_prefix_is_shown(data: st.DataObject) -> None:
    drive = Driver(lambda: Cleanse(SCHEMA), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        shown, t = due(drive.input_history(), drive.input_cti())
        assert_equivalent(drive.history(), shown)
        assert drive.cti == t or not any(isinstance(e, Cti) for e in batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert_equivalent(drive.history(), drive.input_history())
    assert drive.operator.state_rows() == 0


@given(st.data())
def test_the_output_is_perfect_and_the_same_for_every_replica(data: st.DataObject) -> None:
    history = data.draw(histories())
    outputs: list[list[Element]] = []
    for _ in range(2):
        drive = Driver(lambda: Cleanse(SCHEMA), SCHEMA)
        for batch in data.draw(batchings(data.draw(physical_streams(history)))):
            drive.feed(batch)
        outputs.append([e for e in drive.output if not isinstance(e, Cti)])
    assert all(isinstance(e, Insert) for e in outputs[0])
    keys = [key(e) for e in outputs[0] if isinstance(e, Insert)]
    assert keys == sorted(keys)
    assert list(map(str, outputs[0])) == list(map(str, outputs[1]))
