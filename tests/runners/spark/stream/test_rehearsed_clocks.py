"""Steps that go by the rows of all shards: in every micro-batch the same as the local engine gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.runners.spark.stream.disorder import Feed, count_dropped, without_ctis, write
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, from_elements
from recension.core.events import Cti, Element
from recension.core.formats.encode import stream_rows, stream_schema
from recension.plan.fragments import describe_fragments
from recension.runners.exchange.packets import ORDER, Packet
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Topology

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
S = rc.source("s", SCHEMA)
INSERTS = rc.source("s", SCHEMA, properties=rc.Properties(is_insert_only=True))

PASSING = rc.col("v") != 2
QUERIES: dict[str, Stream] = {
    "advance": S.advance_time(3),
    "advance, adjust": S.advance_time(3, late="adjust"),
    "advance, none behind": S.advance_time(0),
    "advance every": S.advance_time(2, every=4),
    "advance above a filter": S.where(PASSING).select("k", w=rc.col("v") + 1).advance_time(1),
    "advance below a key": S.where(PASSING)
    .advance_time(2)
    .group_by("k")
    .agg(n=rc.count(), speculate="eager"),
    "advance, adjust, below a key": S.advance_time(2, late="adjust")
    .group_by("k")
    .agg(n=rc.sum("v"), speculate="eager"),
    "advance for two": S.advance_time(1).join(S.advance_time(1).rename({"v": "w"}), on="k"),
    "advance beside": S.advance_time(2).union(S.where(PASSING)),
    "advance in parts": S.advance_time(2).agg(n=rc.count(), speculate="eager"),
    "counted": INSERTS.advance_time(1, events=3),
    "counted above a filter": INSERTS.where(PASSING).advance_time(0, events=2, late="adjust"),
    "align": S.align(),
    "align for a while": S.align(3),
    "align above a filter": S.where(PASSING).align(2),
    "align below a key": S.align(4).group_by("k").agg(n=rc.count(), speculate="eager"),
    "finalize": S.finalize(),
    "finalize below a key": S.finalize().group_by("k").agg(n=rc.count(), speculate="eager"),
    "finalize and align": S.finalize().align(),
}
COUNTED = S.group_by("k").agg(n=rc.count(), speculate="eager").select("n")
ABOVE_STATE: dict[str, Callable[[Stream], Stream]] = {
    "advance": lambda counted: counted.advance_time(2),
    "advance, adjust": lambda counted: counted.advance_time(1, late="adjust"),
    "advance counted": lambda counted: counted.advance_time(1, events=3),
    "align": lambda counted: counted.align(2),
}


LONGEST = 40 if settings().max_examples > 20 else 20


@st.composite
def streams(
    draw: st.DrawFn, *, inserts_only: bool, has_ctis: bool, is_mendable: bool = False
) -> list[Element]:
    """A valid stream in some disorder; one to be mended has retractions before what they retract."""
    feed = Feed()
    kinds = [kind for kind in "iiiirrc" if (kind != "c" or has_ctis) and (kind != "r" or not inserts_only)]
    for step in range(draw(st.integers(0, LONGEST))):
        feed.grow(draw, draw(st.sampled_from(kinds)), step, 6)
    given = feed.elements
    for i in draw(st.lists(st.integers(1, len(given) - 1))) if is_mendable and len(given) > 1 else []:
        if not isinstance(given[i], Cti) and not isinstance(given[i - 1], Cti):
            given[i - 1], given[i] = given[i], given[i - 1]
    return given


def _cut(draw: Callable[[Any], Any], elements: list[Element], most: int) -> list[list[Element]]:
    """A list in parts, some of them empty."""
    at = sorted(draw(st.lists(st.integers(0, len(elements)), max_size=most)))
    return [elements[i:j] for i, j in zip([0, *at], [*at, len(elements)], strict=True)]


def _pack(plan: Topology, level: int, parts: list[EventBatch], order: list[list[int]] | None) -> list[Packet]:
    """What a task for each part sends; rows of several parts may mix by a column of order."""
    packets: list[Packet] = []
    for task, part in enumerate(parts):
        rows = stream_rows(part, stream_schema(part.schema, pa.int64()))
        if order is not None:
            rows = rows.append_column(f"{ORDER}0", pa.array(order[task], pa.int64()))
        packing = Packing(plan, "s", level, task)
        packets += [packet.seal() for packet in packing.packets(rows)]
        packets += packing.end_of_task_packets()
    return packets


class Spread(Rehearsal):
    """A rehearsal in which several tasks send."""

    def play(self, parts: list[EventBatch], order: list[list[int]] | None = None) -> list[Packet]:
        flowing: list[Packet] = []
        for level in range(1, self.plan.levels + 1):
            if any(e.level == level and e.origin in self.plan.sources().values() for e in self.plan.edges):
                flowing += _pack(self.plan, level, parts, order)
            flowing = [packet.seal() for packet in self._level(level, flowing)]
        return flowing


def _check(query: Stream, data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, 3), label="shards")
    play, local = Spread([query.plan], shards), rc.session(query)
    note(describe_fragments(play.plan.fragments))
    assert shards == 1 or not play.plan.fragments[0].is_single
    elements = data.draw(
        streams(
            inserts_only=query.plan.properties.is_insert_only,
            has_ctis=data.draw(st.booleans()),
            is_mendable="finalize" in query.explain(),
        )
    )
    is_mixed, dropped = data.draw(st.booleans(), label="mixed"), Counter[str]()
    workers: list[dict[Any, Any]] = [{}, {}]
    last: list[Element] = [Cti(1000)]
    for turn in [*_cut(data.draw, elements, 4), last]:
        worker = workers[data.draw(st.integers(0, 1))]
        processor._parked.clear()
        processor._parked.update(worker)
        shown, now = _turn(play, turn, data, is_mixed=is_mixed)
        worker.clear()
        worker.update(processor._parked)
        dropped += now
        local.push("s", turn)
        expected = local.read()
        note(f"{turn}\n  shown {shown}\n  local {expected.elements()}")
        assert write(shown) == write(expected.elements())
    assert dropped == without_ctis(sum(local.counts().values(), Counter()))


def _turn(
    play: Spread, turn: list[Element], data: st.DataObject, *, is_mixed: bool
) -> tuple[list[Element], Counter[str]]:
    """A micro-batch of several tasks, perhaps after one that failed."""
    if is_mixed:
        owner = data.draw(st.lists(st.integers(0, 2), min_size=len(turn), max_size=len(turn)))
        order = [[i for i, task in enumerate(owner) if task == number] for number in range(3)]
        parts = [[turn[i] for i in rows] for rows in order]
    else:
        order, parts = None, _cut(data.draw, turn, 2)
    batches = [from_elements(part, SCHEMA) for part in parts]
    if data.draw(st.booleans()):
        before = {key: type(store)(store) for key, store in play.stores.items()}
        play.play(batches, order)
        play.stores.clear()
        play.stores.update(before)
    packets = play.play(batches, order)
    return play.output(packets).to_elements(), count_dropped(packets)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
@settings(max_examples=examples(36), suppress_health_check=list(HealthCheck))
def test_every_micro_batch_is_that_of_the_local_engine(name: str, data: st.DataObject) -> None:
    _check(QUERIES[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ABOVE_STATE)
@given(st.data())
@settings(max_examples=examples(36), suppress_health_check=list(HealthCheck))
def test_above_state_it_goes_by_what_the_shards_gave(name: str, data: st.DataObject) -> None:
    """One shard after the other: a local step on that stream gives the same."""
    shards, step = data.draw(st.integers(2, 3)), ABOVE_STATE[name]
    below, whole = Spread([COUNTED.plan], shards), Spread([step(COUNTED).plan], shards)
    assert not any(fragment.is_single for fragment in whole.plan.fragments)
    local = rc.session(step(rc.source("c", COUNTED.schema)))
    elements = data.draw(streams(inserts_only=False, has_ctis=True))
    last: list[Element] = [Cti(1000)]
    for turn in [*_cut(data.draw, elements, 4), last]:
        batches = [from_elements(turn, SCHEMA)]
        local.push("c", below.output(below.play(batches)).to_elements())
        assert write(whole.output(whole.play(batches)).to_elements()) == write(local.read().elements())
