"""Due in shards: in every micro-batch the history and the CTI of the local engine, whatever fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.runners.spark.stream.disorder import Feed, count_dropped
from tests.runners.spark.stream.rehearsal import Rehearsal, output_of
from tests.runners.spark.stream.test_rehearsed_clocks import SCHEMA, _cut

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import from_elements
from recension.core.events import Cti, Element
from recension.operators.due import AHEAD
from recension.plan.fragments import describe_fragments
from recension.runners.spark.stream import processor
from recension.testing import assert_equivalent
from recension.testing.model import StreamModel

S, T = (rc.source(name, SCHEMA) for name in "st")
NARROW = T.select("k", w=rc.col("v"))
COUNTED = S.group_by("k").agg(n=rc.count(), speculate="eager")
QUERIES: dict[str, Stream] = {
    "own": S.shift(4).due(),
    "own, above state": COUNTED.due(),
    "by another": S.shift(3).due(by=T),
    "by another, ahead": S.shift(3).due(by=T, ahead=2),
    "by itself": S.shift(5).due(by=S),
    "by a filter": S.shift(3).due(by=T.where(rc.col("v") > 1), ahead=3),
    "above a join": S.set_duration(4).shift(4).join(NARROW, on="k", how="anti").due(by=S),
    "below a key": S.shift(3).due(by=T).group_by("k").agg(n=rc.count(), speculate="eager"),
    "above one shard": S.agg(n=rc.count(), speculate="eager").due(by=T),
    "by one shard": S.shift(3).due(by=T.agg(n=rc.count(), speculate="eager")),
    "above a key and state": COUNTED.due(by=T).group_by("k").agg(m=rc.sum("n"), speculate="eager"),
    "group by group": S.group_by("k").apply(lambda g: g.shift(3).due(by=g)),
    "for all groups": S.group_by("k").apply(lambda g: g.shift(3).due()),
}


@st.composite
def feeds(draw: st.DrawFn) -> list[dict[str, list[Element]]]:
    """Micro-batches of both sources, some without one of them."""
    parts = {}
    for name in "st":
        feed = Feed()
        for step in range(draw(st.integers(0, 15))):
            feed.grow(draw, draw(st.sampled_from("iiiirrc")), step, 6)
        parts[name] = _cut(draw, feed.elements, 3)
    turns = max(map(len, parts.values()))
    given = [{n: cut[i] for n, cut in parts.items() if i < len(cut)} for i in range(turns)]
    return [*given, {"t": [Cti(1000)]}, {"s": [Cti(rc.FOREVER)]}]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(st.data(), feeds(), st.integers(1, 3))
@settings(max_examples=examples(12), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_every_micro_batch_shows_what_the_local_engine_shows(
    name: str, data: st.DataObject, turns: list[dict[str, list[Element]]], shards: int
) -> None:
    query = QUERIES[name]
    play, local, shown = Rehearsal([query.plan], shards), rc.session(query), StreamModel()
    expected = StreamModel()
    note(describe_fragments(play.plan.fragments))
    read = set(play.plan.sources())
    for turn in turns:
        given = {n: [from_elements(rows, SCHEMA)] for n, rows in turn.items() if n in read}
        if data.draw(st.booleans()):
            play.turn(given, fails=True)
        if data.draw(st.booleans()):
            processor._parked.clear()
        for element in play.output(play.turn(given)).to_elements():
            assert shown.fault(element) is None, element
            shown.take(element)
        for source, rows in turn.items():
            if source in read:
                local.push(source, rows)
        assert_equivalent(shown.events(), local.history().to_events())
        for element in local.read().elements():
            expected.take(element)
        assert shown.cti == expected.cti


def test_time_is_sent_to_every_shard_and_nothing_goes_to_one() -> None:
    text = describe_fragments(Rehearsal([QUERIES["above a join"].plan], 4).plan.fragments)
    assert "to every shard" in text
    assert "in one shard" not in text


def test_with_one_shard_time_takes_no_stage_of_its_own() -> None:
    assert Rehearsal([QUERIES["above a join"].plan], 1).plan.levels == 1


def test_a_start_far_ahead_is_counted_once() -> None:
    play = Rehearsal([QUERIES["by another, ahead"].plan], 3)
    row: dict[str, Any] = {"k": 1, "v": 1}
    packets = []
    for start in (0, 1, 900):
        packets += play.turn({"t": [from_elements([rc.Insert(row, start, start + 1)], SCHEMA)]})
    assert count_dropped(packets)[AHEAD] == 1
    assert len(output_of(play.plan, packets, 0)) == 0


def test_by_the_clock_the_time_of_the_micro_batch_counts() -> None:
    schema = pa.schema([("k", pa.int64())])
    query = rc.source("s", schema).due(by="clock")
    play = Rehearsal([query.plan], 2)

    def run(now: int, *starts: int) -> list[int]:
        rows = [rc.Insert({"k": start}, start, start + 5) for start in starts]
        packets = play.turn({"s": [from_elements(rows, schema)]} if rows else {}, now=now)
        return sorted(e.vs for e in play.output(packets).to_elements() if isinstance(e, rc.Insert))

    assert run(10, 5, 12, 15, 30) == [5]
    assert run(12) == [12]
    assert run(11) == []
    assert run(20, 14) == [14, 15]
    processor._parked.clear()
    assert run(40) == [30]
