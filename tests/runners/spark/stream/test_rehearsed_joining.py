"""Streams that join and leave a merge in a pipeline, with workers that forget and attempts that fail."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples, scripts
from tests.runners.spark.stream.rehearsal import Arrival, Rehearsal
from tests.runners.spark.stream.staged import KINDS, Staged

import recension as rc
from recension.core.batch import EventBatch, from_elements
from recension.core.errors import RecensionError
from recension.core.events import Element
from recension.plan.nodes import Merge, Source
from recension.runners.spark.stream import live
from recension.runners.spark.stream.joining import JOINS, LEAVES, word
from recension.runners.spark.stream.topology import Inlet
from recension.testing.strategies import SCHEMA


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_merge_of_streams_that_come_and_go(kind: str, data: st.DataObject) -> None:
    live._parked.clear()
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    staged = Staged(0, kind, data.draw(scripts(KINDS[kind][0])), sizes)
    rehearsal = Rehearsal([staged.query], data.draw(st.sampled_from([1, 3])), {staged.source: Staged.inlet})
    packets = []
    for number, arriving in enumerate(staged.turns()):
        if data.draw(st.booleans()):
            rehearsal.turn({staged.source: arriving}, fails=True)
        if data.draw(st.booleans()):
            live._parked.clear()
        packets = rehearsal.turn({staged.source: arriving})
        staged.judge(number, rehearsal.output(packets))
    staged.check()
    assert rehearsal.state_rows(packets) == 0
