"""Steps that go by the rows of all shards: in every micro-batch the same as the local engine gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, from_elements
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.validity import STALE_CTI
from recension.plan.fragments import describe_fragments
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.packets import METRICS, ORDER, Packet
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


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()


@st.composite
def streams(
    draw: st.DrawFn, *, inserts_only: bool, has_ctis: bool, is_mendable: bool = False
) -> list[Element]:
    """A valid stream in some disorder; one to be mended has retractions before what they retract."""
    alive: list[Insert] = []
    given: list[Element] = []
    frontier = 0
    for step in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from("iiiirrc"))
        if kind == "c" and has_ctis:
            frontier = max(frontier, draw(st.integers(0, step)))
            given.append(Cti(frontier))
        elif kind == "r" and alive and not inserts_only:
            event = alive.pop(draw(st.integers(0, len(alive) - 1)))
            end = draw(st.integers(event.vs, event.ve + 5))
            if end != event.ve and min(end, event.ve) >= frontier:
                given.append(Retract(event.payload, event.vs, event.ve, end))
                if end > event.vs:
                    alive.append(Insert(event.payload, event.vs, end))
            else:
                alive.append(event)
        else:
            start = max(frontier, step + draw(st.integers(-6, 6)))
            payload = {"k": draw(st.integers(0, 3)), "v": draw(st.integers(0, 3))}
            event = Insert(payload, start, start + draw(st.integers(1, 9)))
            alive.append(event)
            given.append(event)
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


def _dropped(packets: list[Packet]) -> Counter[str]:
    """What was dropped or moved, by reason. Every shard counts the CTIs that do not advance."""
    found: Counter[str] = Counter()
    for packet in packets:
        if packet.edge == METRICS:
            for counts in json.loads(packet.info)["counts"].values():
                found.update(counts)
    return _without_ctis(found)


def _without_ctis(counts: Counter[str]) -> Counter[str]:
    return Counter({reason: count for reason, count in counts.items() if reason != STALE_CTI})


def _write(elements: Iterator[Element] | list[Element]) -> Counter[str]:
    return Counter(map(str, elements))


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
        assert _write(shown) == _write(expected.elements())
    assert dropped == _without_ctis(sum(local.counts().values(), Counter()))


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
    return play.output(packets).to_elements(), _dropped(packets)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
def test_every_micro_batch_is_that_of_the_local_engine(name: str, data: st.DataObject) -> None:
    _check(QUERIES[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ABOVE_STATE)
@given(st.data())
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
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
        assert _write(whole.output(whole.play(batches)).to_elements()) == _write(local.read().elements())
