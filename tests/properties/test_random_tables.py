"""Random plans in which the second input is a table without times, against the oracle.

To the oracle it is a history of rows that never begin or end. On the local engine, and as pipelines of
fragments rehearsed without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.properties.plans import STEPS, Plan, plans
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Event
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.tables import TableContent, to_bytes
from recension.runners.spark.stream.topology import Inlet
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, payloads, physical_streams

s, t = rc.source("s", SCHEMA), rc.table("t", SCHEMA)
# Steps over the second input, each alone and under any other.
READING = [step for step in STEPS if "join" in step.name or step.name in ("clip", "union")]


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()


def _build(plan: Plan) -> rc.Stream | None:
    """The query; none where windows meet rows that are true for ever."""
    try:
        built: rc.Stream = plan.build(s, t)
    except rc.SchemaError as why:
        if "true at all times" not in str(why):
            raise
        return None
    return built


@given(data=st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_plans_over_a_table(data: st.DataObject) -> None:
    reading = data.draw(st.sampled_from(READING))
    plan = Plan((*data.draw(plans(1)).steps, reading, *data.draw(plans(1)).steps))
    query = _build(plan)
    assume(query is not None)
    assert query is not None
    rows = data.draw(st.lists(payloads(SCHEMA), max_size=3))
    table = pa.Table.from_pylist(rows, SCHEMA)
    history = data.draw(histories(min_size=1, max_size=4))
    parts = data.draw(batchings(data.draw(physical_streams(history))))
    meaning = plan.meaning(history, [Event(row, rc.BEGINNING, rc.FOREVER) for row in rows])
    live, at = rc.session(out=query, s=s, t=t), data.draw(st.integers(0, len(parts)))
    for number, part in enumerate([*parts, []]):
        if number == at:
            live.push("t", table)
        live.push("s", part)
    assert_equivalent(live.history("out"), meaning)
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], SCHEMA)]
    inlet = Inlet(table=TableContent("", to_bytes(batches[0])))
    shards = data.draw(st.integers(1, 3))
    rehearsal, shown = Rehearsal([query.plan, s.plan, t.plan], shards, {"t": inlet}), StreamModel()
    for part in parts or [[]]:
        packets = rehearsal.turn({"s": [from_elements(part, SCHEMA)]})
        for element in rehearsal.output(packets).to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    assert_equivalent(shown.events(), meaning)
