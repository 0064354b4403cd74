"""Aggregates made in parts, rehearsed without Spark: after every micro-batch they show what one engine shows.

Against the local engine, which the operators' own tests hold against the oracle after every batch, and at the
end against the oracle itself. Floats swallow each other's digits; engines are restored at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension import denote
from recension.core.batch import from_elements
from recension.core.events import Element, Insert
from recension.core.ticks import FOREVER
from recension.denote.order import History
from recension.plan.fragments import describe_fragments
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.packing import Packing
from recension.testing import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import batchings, events, physical_streams

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.decimal128(20, 2)),
    ]
)
S = rc.source("s", SCHEMA)
SUMS = {
    "n": (rc.count(), denote.count()),
    "c": (rc.count("i"), denote.count("i")),
    "s": (rc.sum("i"), denote.sum("i")),
    "m": (rc.mean("i"), denote.mean("i")),
    "fs": (rc.sum("f"), denote.sum("f")),
    "fm": (rc.mean("f"), denote.mean("f")),
    "any": (rc.any("b"), denote.any("b")),
    "all": (rc.all("b"), denote.all("b")),
    "ds": (rc.sum("d"), denote.sum("d")),
    "dm": (rc.mean("d"), denote.mean("d")),
    "where": (rc.count(where="b"), denote.filtered(denote.count(), lambda p: p["b"])),
}
EXTREMES = {
    "n": SUMS["n"],
    "any": SUMS["any"],
    "ds": SUMS["ds"],
    "least": (rc.min("f"), denote.min("f")),
    "most": (rc.max("i"), denote.max("i")),
}
UNTIL = 30
WINDOWS: dict[str, tuple[Callable[..., rc.Stream], Callable[[History, denote.RowFunction], History]]] = {
    "snapshots": (lambda of, **how: of.agg(**how), denote.snapshot),
    "tumbling": (
        lambda of, **how: of.tumbling(3, until=UNTIL).agg(**how),
        lambda history, rows: denote.window_aggregate(history, denote.tumbling(3, until=UNTIL), rows),
    ),
    "hopping": (
        lambda of, **how: of.hopping(7, 2, offset=1, until=UNTIL).agg(**how),
        lambda history, rows: denote.window_aggregate(history, denote.hopping(7, 2, 1, UNTIL), rows),
    ),
    "gaps": (
        lambda of, **how: of.hopping(2, 5, until=UNTIL).agg(**how),
        lambda history, rows: denote.window_aggregate(history, denote.hopping(2, 5, until=UNTIL), rows),
    ),
}
VARIANTS = ("perfect", "ordered", "eager")


@dataclass(frozen=True)
class Query:
    """An aggregate and what it means."""

    windows: str
    variant: str
    answers: Mapping[str, tuple[rc.Expr, denote.Aggregate]]
    grouped: bool = False

    def build(self) -> rc.Stream:
        over = S.group_by("k") if self.grouped else S
        named = {name: aggregate for name, (aggregate, _) in self.answers.items()}
        return WINDOWS[self.windows][0](over, speculate=self.variant, **named)

    def meaning(self, history: History) -> History:
        rows = denote.agg(**{name: meant for name, (_, meant) in self.answers.items()})
        over = WINDOWS[self.windows][1]
        if self.grouped:
            return denote.grouped(history, "k", lambda group: over(group, rows))
        return over(history, rows)


class Shown:
    """What a pipeline puts out, in plain Python: a retraction must name what was shown, to the bit."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal, self.model = rehearsal, StreamModel()

    def feed(self, elements: list[Element]) -> None:
        packets = self.rehearsal.turn({"s": [from_elements(elements, SCHEMA)]})
        for element in self.rehearsal.output(packets).to_elements():
            assert (fault := self.model.fault(element)) is None, f"{element} {fault}"
            self.model.take(element)
        self.state_rows = self.rehearsal.state_rows(packets)


def streams() -> st.SearchStrategy[History]:
    """Few distinct values, among them all that is not a number, and some that swallow the others' digits."""
    columns = {
        "k": st.sampled_from(["a", "b", "c", None]),
        "i": st.sampled_from([1, 0, -5, 2**56, None]),
        "f": st.sampled_from([1.5, 0.1, 1e16, -1e16, 3e-5, float("nan"), float("inf"), -float("inf"), None]),
        "b": st.sampled_from([True, False, None]),
        "d": st.sampled_from([Decimal("0.01"), Decimal("-7.35"), Decimal("123456789012345678.90"), None]),
    }
    payloads = st.tuples(*columns.values()).map(lambda row: dict(zip(columns, row, strict=True)))
    found = st.lists(events(payloads), max_size=8)
    return found.map(lambda events: events + events[:1])


def check(data: st.DataObject, query: Query, skew: tuple[str, ...] = ()) -> None:
    plan = query.build().plan
    shards = data.draw(st.integers(2, 4), label="shards")
    # Of a key in parts: as the key in one. Without a key: as all in one shard.
    whole = Shown(Rehearsal([plan], shards if skew else 1))
    parts = Shown(Rehearsal([plan], shards, skew=skew))
    note(describe_fragments(parts.rehearsal.plan.fragments))
    assert "partial" in describe_fragments(parts.rehearsal.plan.fragments)
    came = StreamModel()
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(streams()))))):
        if data.draw(st.booleans()):
            processor._parked.clear()
        for element in batch:
            came.take(element)
        for shown in (whole, parts):
            shown.feed(batch)
        assert_equivalent(parts.model.events(), whole.model.events())
        assert parts.model.cti == whole.model.cti
    assert parts.model.cti == FOREVER
    assert_equivalent(parts.model.events(), query.meaning(came.events()))
    assert parts.state_rows == 0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("windows", WINDOWS)
@given(data=st.data())
@settings(max_examples=max(5, settings().max_examples // 8), suppress_health_check=list(HealthCheck))
def test_sums_without_a_key(windows: str, variant: str, data: st.DataObject) -> None:
    check(data, Query(windows, variant, SUMS))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("windows", WINDOWS)
@given(data=st.data())
@settings(max_examples=max(5, settings().max_examples // 8), suppress_health_check=list(HealthCheck))
def test_sums_of_a_key_in_parts(windows: str, variant: str, data: st.DataObject) -> None:
    check(data, Query(windows, variant, SUMS, grouped=True), skew=("k",))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("windows", ["snapshots", "tumbling"])
@given(data=st.data())
@settings(max_examples=max(5, settings().max_examples // 8), suppress_health_check=list(HealthCheck))
def test_eager_extremes(windows: str, grouped: bool, data: st.DataObject) -> None:
    check(data, Query(windows, "eager", EXTREMES, grouped), skew=("k",) if grouped else ())


def test_a_shard_shows_endless_windows_up_to_the_time_of_all() -> None:
    """One shard has the endless event, another the one that moves time on."""
    for answers in (SUMS, {"most": EXTREMES["most"]}):
        named: dict[str, Any] = {name: aggregate for name, (aggregate, _) in answers.items()}
        plan = S.tumbling(10).agg(speculate="eager", **named).plan
        shown = [Shown(Rehearsal([plan], shards)) for shards in (1, 3)]
        for number in range(6):
            row = {"k": "a", "i": number, "f": 0.5, "b": True, "d": Decimal("0.50")}
            for one in shown:
                one.feed([Insert(row, 10 * number + 1, FOREVER if number % 2 else 10 * number + 2)])
            assert_equivalent(shown[1].model.events(), shown[0].model.events())
        assert len(shown[1].model.events()) == 6


def test_what_does_not_fit_is_refused_in_parts_too() -> None:
    row, large = {"k": "a", "i": 0, "f": 0.0, "b": None, "d": None}, 2**62
    events = [Insert({**row, "i": large + part}, 1, 5) for part in range(4)]
    with pytest.raises(rc.RecensionError, match="the sum total does not fit in int64"):
        Shown(Rehearsal([S.agg(total=rc.sum("i")).plan], 2)).feed([*events, rc.Cti(9)])
    with pytest.raises(rc.RecensionError, match=r"total: the value .* is beyond 2.*960"):
        Shown(Rehearsal([S.agg(total=rc.sum("f")).plan], 2)).feed([Insert({**row, "f": 1e300}, 1, 5)])
    windows = S.tumbling(1, max_windows=100).agg(n=rc.count())
    with pytest.raises(rc.RecensionError, match=r"an event .* 1,000 windows"):
        Shown(Rehearsal([windows.plan], 2)).feed([Insert(row, 1, 1001), rc.Cti(2000)])


def test_equal_rows_of_a_table_go_to_all_shards() -> None:
    """One value of a key has most of the events, and they have nothing else that tells them apart."""
    source = rc.source("s", {"k": "string"}, start="at")
    plan = Rehearsal([source.group_by("k").agg(n=rc.count()).plan], 4, skew=["k"]).plan
    rows = pa.RecordBatch.from_pydict({"k": ["hot"] * 1000, "at": list(range(1000))})
    sizes = [len(packet.blob.events) for packet in Packing(plan, "s", 1).packets(rows)]  # type: ignore[union-attr]
    assert len(sizes) == 4
    assert max(sizes) < 300
