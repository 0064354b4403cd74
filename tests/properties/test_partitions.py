"""A source with partitions means the union of its partitions, however their elements come together."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Cti, Element
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.ticks import BEGINNING
from recension.denote.partitions import PlacedElement, least_cti, unite
from recension.runners.local import Session
from recension.testing import assert_equivalent, assert_valid
from recension.testing.strategies import SCHEMA, histories, physical_streams

COLUMNS = {field.name: field.type for field in SCHEMA}
# All three must have spoken: what a new one has before the CTI of the others would be late.
FEED = rc.source(
    "feed", COLUMNS, partition="part", order="at", partitions=3, run="run", sequence=["batch", "seq"]
)
COUNTED = FEED.agg(n=rc.count(), speculate="eager")


@st.composite
def partitions(draw: st.DrawFn) -> list[list[PlacedElement]]:
    """Valid streams of three partitions, with numbers of their producers, who send some elements again."""
    streams = []
    for name in range(3):
        rows = list(draw(physical_streams(draw(histories(SCHEMA, max_size=3)), schema=SCHEMA)))
        numbered = [(f"run {n // 4}", n % 4, element) for n, element in enumerate(rows)]
        for _ in range(draw(st.integers(0, 2))):
            # A repeat stands anywhere behind the element, with the number it has.
            if numbered:
                which = draw(st.integers(0, len(numbered) - 1))
                numbered.insert(draw(st.integers(which + 1, len(numbered))), numbered[which])
        placed = [PlacedElement(name, at, e, run, seq) for at, (run, seq, e) in enumerate(numbered)]
        streams.append(placed)
    return streams


def table(rows: list[PlacedElement]) -> pa.Table:
    elements: list[Element] = [row.element for row in rows]
    written = stream_rows(from_elements(elements, SCHEMA), stream_schema(SCHEMA, pa.int64()))
    extra = {
        "part": pa.array([row.partition for row in rows], pa.int32()),
        "at": pa.array([row.order for row in rows], pa.int64()),
        "run": pa.array([row.run for row in rows], pa.string()),
        "batch": pa.array([0] * len(rows), pa.int64()),
        "seq": pa.array([row.sequence for row in rows], pa.int64()),
    }
    found = pa.Table.from_batches([written])
    for name, column in extra.items():
        found = found.append_column(name, column)
    return found


def sessions() -> Session:
    return rc.session(raw=FEED, counted=COUNTED)


@given(partitions(), st.integers(0, 1 << 32))
def test_the_history_is_the_union_of_the_partitions(streams: list[list[PlacedElement]], seed: int) -> None:
    """Any interleaving, cut into any pushes, restored after any."""
    luck = Random(seed)
    everything = [row for stream in streams for row in stream]
    live, came = sessions(), list[Element]()
    while any(streams):
        push: list[PlacedElement] = []
        for stream in streams:
            taken = luck.randint(0, len(stream))
            push += stream[:taken]
            del stream[:taken]
        live.push("feed", table(luck.sample(push, len(push))))
        came += live.read("raw").elements()
        live.read("counted")
        if luck.random() < 0.5:
            snapshot, live = live.snapshot(), sessions()
            live.restore(snapshot)
    assert_valid(came)
    reached = [element.t for element in came if isinstance(element, Cti)]
    spoken = len({row.partition for row in everything})
    expected = least_cti(everything) if spoken == 3 else BEGINNING
    assert (reached[-1] if reached else BEGINNING) == expected
    united = rc.History.from_events(unite(everything), SCHEMA)
    assert_equivalent(live.history("raw"), united)
    plain = rc.source("feed", COLUMNS).agg(n=rc.count(), speculate="eager")
    assert_equivalent(live.history("counted"), rc.run(plain, {"feed": united}).history())


@given(partitions(), st.integers(1, 9))
def test_a_run_over_all_of_it(streams: list[list[PlacedElement]], size: int) -> None:
    everything = [row for stream in streams for row in stream]
    result = rc.run(FEED, {"feed": table(everything)}, batch_size=size)
    assert_valid(result.elements())
    assert_equivalent(result.history(), rc.History.from_events(unite(everything), SCHEMA))
