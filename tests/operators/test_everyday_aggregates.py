"""The aggregates people expect, over all windows and in all variants, against the oracle after every batch.

``n_unique any all median arg_max`` and their like, conditions on the events that count, and decimals.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension import denote
from recension.core.events import Insert
from recension.core.ticks import BEGINNING
from recension.denote.order import History
from recension.lowering import operator_of
from recension.plan.aggregates import Interpolation
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import batchings, events, physical_streams

SCHEMA = pa.schema(
    [
        *(("k", pa.string()), ("b", pa.bool_()), ("i", pa.int64()), ("f", pa.float64())),
        *(("d", pa.decimal128(7, 2)), ("w", pa.decimal128(38, 3))),
    ]
)
S = rc.source("s", SCHEMA)
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", None],
    "b": [True, False, None],
    "i": [0, 1, -1, None],
    "f": [0.0, -0.0, 1.5, float("nan"), -2.25, None],
    "d": [Decimal("0.01"), Decimal("-99999.99"), Decimal("12.50"), None],
    "w": [Decimal("9" * 34 + ".999"), Decimal("-" + "9" * 34 + ".998"), Decimal("0.001"), None],
}
BETWEEN: tuple[Interpolation, ...] = ("linear", "lower", "higher", "nearest", "midpoint")


def _holds(payload: Any) -> Any:
    return payload["b"]


ANSWERS: dict[str, dict[str, tuple[Any, Any]]] = {
    "sums": {
        "n": (rc.count(), denote.count()),
        "u": (rc.n_unique("i"), denote.n_unique("i")),
        "uf": (rc.n_unique("f", where="b"), denote.filtered(denote.n_unique("f"), _holds)),
        "any": (rc.any("b"), denote.any("b")),
        "all": (rc.all("b"), denote.all("b")),
        "has": (rc.any("b", where=rc.col("i") > 0), denote.filtered(denote.any("b"), lambda p: p["i"] == 1)),
    },
    "weighted": {
        "m": (rc.time_weighted_mean("i"), denote.time_weighted_mean("i")),
        "f": (rc.time_weighted_mean("f"), denote.time_weighted_mean("f")),
        "n": (rc.count(), denote.count()),
        "u": (rc.n_unique("i"), denote.n_unique("i")),
    },
    "unique": {"u": (rc.n_unique("k"), denote.n_unique("k"))},
    "decimals": {
        "s": (rc.sum("d"), denote.sum("d")),
        "m": (rc.mean("d"), denote.mean("d")),
        "ws": (rc.sum("w", where=rc.col("i") == 1), denote.filtered(denote.sum("w"), lambda p: p["i"] == 1)),
        "least": (rc.min("d"), denote.min("d")),
        "most": (rc.max("w"), denote.max("w")),
    },
    "ranks": {
        "median": (rc.median("i"), denote.median("i")),
        **{f"q_{by}": (rc.quantile("f", 0.375, by), denote.quantile("f", 0.375, by)) for by in BETWEEN},
        "where": (rc.median("i", where="b"), denote.filtered(denote.median("i"), _holds)),
    },
    "choices": {
        "most": (rc.arg_max("i", by="f"), denote.arg_max("i", "f")),
        "least": (rc.arg_min("k", by="d"), denote.arg_min("k", "d")),
        "where": (rc.arg_max("i", by="k", where="b"), denote.filtered(denote.arg_max("i", "k"), _holds)),
        "u": (rc.n_unique("i"), denote.n_unique("i")),
    },
    "conditions": {
        "n": (rc.count(where="b"), denote.filtered(denote.count(), _holds)),
        "s": (rc.sum("i", where="b"), denote.filtered(denote.sum("i"), _holds)),
        "most": (rc.max("f", where="b"), denote.filtered(denote.max("f"), _holds)),
        "first": (rc.first("i", where="b"), denote.filtered(denote.first("i"), _holds)),
        "last": (rc.last("f", where="b"), denote.filtered(denote.last("f"), _holds)),
        "all": (rc.collect("i", where="b"), denote.filtered(denote.collect("i"), _holds)),
        "fn": (
            rc.aggregate(len, "i", result="int64", where="b"),
            denote.filtered(denote.aggregate(len, "i"), _holds),
        ),
    },
}  # fmt: skip
UNTIL = 30
Meaning = Callable[[History, Any], History]


def _over(windows: denote.Windows) -> Meaning:
    return lambda history, named: denote.window_measure(history, windows, named)


WINDOWS: dict[str, tuple[Callable[[Any], Any], Meaning]] = {
    "snapshots": (lambda s: s, _over(denote.snapshot_windows())),
    "tumbling": (lambda s: s.tumbling(3, until=UNTIL), _over(denote.tumbling(3, until=UNTIL))),
    "hopping": (lambda s: s.hopping(7, 2, offset=1, until=UNTIL), _over(denote.hopping(7, 2, 1, UNTIL))),
    "gaps": (lambda s: s.hopping(2, 5, until=UNTIL), _over(denote.hopping(2, 5, until=UNTIL))),
    "count by start": (lambda s: s.count_window(2), _over(denote.count_window(2))),
    "count by end": (lambda s: s.count_window(3, by="end"), _over(denote.count_window(3, "end"))),
}


def streams(draw: Any) -> Any:
    """Batches of a random stream, with events that come twice."""
    payloads = st.tuples(*(st.sampled_from(VALUES[name]) for name in SCHEMA.names))
    payload = payloads.map(lambda row: dict(zip(SCHEMA.names, row, strict=True)))
    history = draw(st.lists(events(payload), max_size=8).map(lambda events: events + events[:1]))
    return draw(batchings(draw(physical_streams(history))))


def means(over: Meaning, rows: Any, history: History, *, grouped: bool) -> History:
    return denote.grouped(history, "k", lambda g: over(g, rows)) if grouped else over(history, rows)


@pytest.mark.pairs
@pytest.mark.parametrize("grouped", [False, True], ids=["ungrouped", "grouped"])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("what", ANSWERS)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_eager_shows_the_answers_at_once(what: str, windows: str, grouped: bool, data: st.DataObject) -> None:
    build, over = WINDOWS[windows]
    named = {name: of for name, (of, _) in ANSWERS[what].items()}
    plan = build(S.group_by("k") if grouped else S).agg(speculate="eager", **named).plan
    driver = Driver(lambda: operator_of(plan), SCHEMA)
    rows = {name: meant for name, (_, meant) in ANSWERS[what].items()}
    for batch in streams(data.draw):
        if data.draw(st.booleans()):
            driver.restore_twin()
        driver.feed(batch)
        assert_equivalent(driver.history(), means(over, rows, driver.input_history(), grouped=grouped))
    assert driver.operator.state_rows() == 0


@pytest.mark.pairs
@pytest.mark.parametrize("variant", ["perfect", "ordered"])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("what", ANSWERS)
@given(data=st.data())
@settings(max_examples=examples(5))
def test_the_other_variants_show_what_has_ended(
    what: str, windows: str, variant: str, data: st.DataObject
) -> None:
    build, over = WINDOWS[windows]
    grouped = data.draw(st.booleans(), label="grouped")
    named = {name: of for name, (of, _) in ANSWERS[what].items()}
    plan = build(S.group_by("k") if grouped else S).agg(speculate=variant, **named).plan
    driver, watermark = Driver(lambda: operator_of(plan), SCHEMA), BEGINNING
    rows = {name: meant for name, (_, meant) in ANSWERS[what].items()}
    for batch in streams(data.draw):
        if data.draw(st.booleans()):
            driver.restore_twin()
        driver.feed(batch)
        starts = [element.vs for element in batch if isinstance(element, Insert)]
        watermark = max(watermark, driver.input_cti(), *starts)
        found, meant = driver.history(), means(over, rows, driver.input_history(), grouped=grouped)
        assert_equivalent(
            [event for event in found if event.ve <= watermark],
            [event for event in meant if event.ve <= watermark],
        )
    assert_equivalent(driver.history(), means(over, rows, driver.input_history(), grouped=grouped))


@given(data=st.data())
@settings(max_examples=max(5, settings().max_examples // 5))
def test_the_first_rows_of_those_that_count(data: st.DataObject) -> None:
    plan = S.agg(rc.top_k(2, by="i", where="b"), speculate="eager").plan
    driver, rows = Driver(lambda: operator_of(plan), SCHEMA), denote.filtered(denote.top_k(2, by="i"), _holds)
    for batch in streams(data.draw):
        driver.feed(batch)
        assert_equivalent(driver.history(), denote.snapshot(driver.input_history(), rows))


def test_a_decimal_that_does_not_fit_is_an_error() -> None:
    most = {**dict.fromkeys(SCHEMA.names), "w": Decimal("9" * 35 + ".999")}
    with pytest.raises(rc.RecensionError, match=r"the decimal s does not fit in decimal128\(38, 3\)"):
        rc.run(S.agg(s=rc.sum("w"), speculate="eager"), {"s": [Insert(most, 1, 5), Insert(most, 2, 4)]})
    with pytest.raises(
        rc.RecensionError, match=r"the decimal m of \{'k': None\} does not fit in decimal128\(38, 7\)"
    ):
        rc.run(S.group_by("k").agg(m=rc.mean("w"), speculate="eager"), {"s": [Insert(most, 1, 5)]})


def test_n_unique_keeps_no_more_than_the_live_values() -> None:
    session = rc.session(S.group_by("k").tumbling(10).agg(u=rc.n_unique("i"), speculate="eager"))
    row = dict.fromkeys(SCHEMA.names)
    for t in range(0, 400, 10):
        session.push("s", [Insert({**row, "k": "a", "i": t + i % 3}, t + i, t + i + 5) for i in range(10)])
        session.advance("s", t + 10)
        assert sum(metrics.state_rows for metrics in session.metrics()) < 40
    assert [event.payload["u"] for event in session.history().to_events()][-2:] == [6, 3]


@pytest.mark.parametrize(
    ("values", "middle"),
    [([1.7e308, -1.7e308], 0.0), ([math.inf, math.inf], math.inf), ([-math.inf, 1.0], -math.inf)],
)
def test_a_median_of_numbers_that_are_far_apart(values: list[float], middle: float) -> None:
    query = rc.source("s", {"x": "float64"}).agg(m=rc.median("x"))
    rows = [rc.Insert({"x": x}, 0, 9) for x in values]
    (event,) = rc.run(query, {"s": rows}, close=True).history().to_events()
    assert event.payload["m"] == middle


def test_having_reads_the_times_of_answers() -> None:
    counted = rc.source("s", {"x": "int64"}).agg(n=rc.count())
    rows = [rc.Insert({"x": 1}, 0, 9), rc.Insert({"x": 1}, 4, 6)]
    late = rc.run(counted.having(rc.start() > 3), {"s": rows}, close=True).history()
    assert [event.vs for event in late.to_events()] == [4, 6]
    with pytest.raises(rc.SchemaError, match=r"reads times, so it must be a column first"):
        counted.having(rc.max(rc.lifetime()) > 4)


def test_weights_in_windows_of_unequal_length() -> None:
    """An event that began in January fills all 31 days of May, although it filled 29 of February."""

    def day(month: int, number: int) -> dt.datetime:
        return dt.datetime(2024, month, number, tzinfo=dt.UTC)

    months = rc.source("v", {"v": "int64"}).tumbling("1mo", tz="UTC", until=day(7, 1))
    feed = [rc.Insert({"v": 10}, day(1, 10)), rc.Insert({"v": 1}, day(5, 1), day(5, 20))]
    answer = rc.run(months.agg(mean=rc.time_weighted_mean("v")), {"v": feed}, close=True).history()
    means = [event.payload["mean"] for event in answer.to_events()]
    assert means == pytest.approx([10, 10, 10, 10, (31 * 10 + 19) / 50, 10])


def test_a_sum_may_reach_the_bounds_of_its_type() -> None:
    """And no further: one more is an error, not a sum that wraps around."""
    source = rc.source("s", {"x": "int64"})

    def total(*values: int) -> int:
        rows = [rc.Insert({"x": x}, 0, 5) for x in values]
        (event,) = rc.run(source.agg(t=rc.sum("x")), {"s": rows}, close=True).history().to_events()
        return int(str(event.payload["t"]))

    assert total(-(2**62), -(2**62)) == -(2**63)
    assert total(2**62, 2**62 - 1) == 2**63 - 1
    for beyond in ((-(2**62), -(2**62), -1), (2**62, 2**62)):
        with pytest.raises(rc.RecensionError, match="does not fit in int64"):
            total(*beyond)
