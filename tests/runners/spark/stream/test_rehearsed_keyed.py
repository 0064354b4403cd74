"""Keyed sources in shards, rehearsed without Spark: any worker for any micro-batch, failed attempts."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.test_keyed import feeds
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Cti, Element
from recension.core.ticks import FOREVER
from recension.plan.fragments import cut, describe_fragments
from recension.runners.spark.stream import processor
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import batchings


@given(st.data())
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
def test_in_shards_the_history_is_the_oracles(data: st.DataObject) -> None:
    feed, shown, packets = data.draw(feeds()), StreamModel(), []
    rehearsal = Rehearsal([feed.query.plan], data.draw(st.integers(1, 3), label="shards"))
    schema = feed.query.plan.inputs[0].schema
    workers: list[dict[processor.EngineKey, processor.ParkedEngine]] = [{}, {}]
    batches: list[list[Element]] = [*data.draw(batchings(feed.arriving)), [Cti(FOREVER)]]
    for batch in batches:
        worker = workers[data.draw(st.integers(0, 1))]
        processor._parked.clear()
        processor._parked.update(worker)
        given_rows = {"s": [from_elements(batch, schema)]}
        if data.draw(st.booleans()):
            rehearsal.turn(given_rows, fails=True)
        packets = rehearsal.turn(given_rows)
        worker.clear()
        worker.update(processor._parked)
        for element in rehearsal.output(packets).to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    assert_equivalent(shown.events(), feed.history(len(feed.arriving)))
    assert rehearsal.state_rows(packets) == 0


def test_rows_go_to_shards_by_their_keys_and_groups_by_the_key_stay_there() -> None:
    orders = rc.changes("orders", {"id": "int64", "state": "string"}, "id", version="lsn")
    query = orders.group_by("id").agg(n=rc.count())
    assert "fragment 1, in every shard\n   reads orders by id\n" in describe_fragments(cut([query.plan]))
    assert len(cut([query.plan])) == 1
