"""Union: all events of all inputs, up to the least of their CTIs."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recension.core.events import Cti, Insert
from recension.core.ticks import FOREVER
from recension.denote import union
from recension.operators.union import Union
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

TURNED = pa.schema([SCHEMA.field("v"), SCHEMA.field("k")])
X = {"k": "x", "v": 1}


@given(st.data())
def test_after_every_batch_the_history_is_the_oracles(data: st.DataObject) -> None:
    """Columns of the second input come in another order."""
    drive = Driver(lambda: Union(SCHEMA, 2), SCHEMA, TURNED)
    steps = []
    for port, schema in enumerate((SCHEMA, TURNED)):
        stream = data.draw(physical_streams(data.draw(histories(schema, max_size=3))))
        steps.append([(port, batch) for batch in data.draw(batchings(stream))])
    while any(steps):
        port, batch = data.draw(st.sampled_from([s for s in steps if s])).pop(0)
        drive.feed(batch, port)
        assert_equivalent(drive.history(), union(drive.input_history(0), drive.input_history(1)))
        assert drive.cti == min(drive.input_cti(0), drive.input_cti(1))
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.cti == FOREVER
    assert drive.operator.state_rows() == 0


def test_equal_events_stay_several() -> None:
    drive = Driver(lambda: Union(SCHEMA, 2), SCHEMA, SCHEMA)
    drive.feed([Insert(X, 1, 5)], 0)
    drive.feed([Insert(X, 1, 5)], 1)
    assert len(drive.history()) == 2


def test_a_cti_waits_for_the_last_input() -> None:
    drive = Driver(lambda: Union(SCHEMA, 3), SCHEMA, SCHEMA, SCHEMA)
    assert drive.feed([Cti(5)], 0) == []
    assert drive.feed([Cti(7)], 1) == []
    assert drive.feed([Cti(3)], 2) == [Cti(3)]
    assert drive.feed([Cti(6)], 2) == [Cti(5)]
    assert drive.feed([Cti(9)], 2) == []
    assert drive.feed([Cti(FOREVER)], 0) == [Cti(7)]
