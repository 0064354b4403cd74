"""Queries that once went astray on the local engine, each with what it must give."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import recension as rc
from recension.runners.snapshot import open_snapshot, seal_snapshot
from recension.testing import assert_equivalent, assert_valid

floats = rc.source("s", {"k": "string", "x": "float64"})
ints = rc.source("s", {"k": "string", "x": "int64"})


def _row(k: str, x: float | int | None) -> dict[str, object]:
    return {"k": k, "x": x}


@pytest.mark.parametrize("batch_size", [1, 100])
def test_one_group_does_not_spoil_the_sums_of_another(batch_size: int) -> None:
    """Prefix sums over a whole batch carry the rounding errors of one group into the next."""
    large = [rc.Insert(_row("a", 3.3e20 * i), i, 10 + i) for i in range(1, 8)]
    small = [rc.Insert(_row("b", x), 0, 10) for x in (0.1, 0.4)]
    huge = [rc.Insert(_row("c", 9.7e288), 0, 9), rc.Insert(_row("c", 9.7e288), 2, 5)]
    query = floats.group_by("k").agg(s=rc.sum("x"), d=rc.stddev("x"), speculate="eager")
    out = rc.run(query, {"s": [*large, *huge, *small]}, batch_size=batch_size).history().to_events()
    answers = [e.payload for e in out if e.payload["k"] == "b"]
    assert [a["s"] for a in answers] == pytest.approx([0.5], rel=1e-12)
    assert [a["d"] for a in answers] == pytest.approx([0.21213203435596426], rel=1e-12)


def test_a_null_in_one_group_does_not_change_the_values_of_another() -> None:
    """A function of the user's got 1 or 1.0, depending on what else was in the batch."""
    query = ints.group_by("k").agg(
        a=rc.aggregate(lambda v: str(v[0]), "x", result="string"), speculate="eager"
    )
    session = rc.session(query)
    session.push("s", [rc.Insert(_row("b", None), 0, 10)])
    session.push("s", [rc.Insert(_row("a", 1), 0, 10)])
    gone = [rc.Retract(_row("b", None), 0, 10, 4), rc.Retract(_row("a", 1), 0, 10, 0)]
    session.push("s", gone)
    out = session.read()
    assert_valid(out.elements())
    assert [e.payload["k"] for e in out.history().to_events()] == ["b"]


def test_a_snapshot_of_a_query_that_looks_alike_is_refused() -> None:
    summed, counted = (ints.group_by("k").agg(n=a) for a in (rc.sum("x"), rc.count("x")))
    with pytest.raises(rc.RecensionError, match=r"another query, which has 'aggregate n = sum\(x\)"):
        rc.session(counted).restore(rc.session(summed).snapshot())


def test_a_snapshot_of_another_format_is_refused() -> None:
    chunks = open_snapshot(rc.session(ints).snapshot())
    plan = chunks["operators/plan"]
    place = plan.column_names.index("format")
    chunks["operators/plan"] = plan.set_column(place, "format", [[99] * plan.num_rows])
    with pytest.raises(rc.RecensionError, match="the snapshot has format 99, this version reads 3"):
        rc.session(ints).restore(seal_snapshot(chunks))


def test_errors_in_data_and_functions_name_the_step() -> None:
    parsed = ints.with_columns(y=rc.col("k").cast(nw.Int64))
    with pytest.raises(rc.RecensionError, match=r"k\.cast\(.int64.\): "):
        rc.run(parsed, {"s": [rc.Insert(_row("no number", 1), 0, 1)]})
    failing = ints.agg(a=rc.aggregate(lambda v: 1 // 0, "x", result="int64"), speculate="eager")
    with pytest.raises(rc.RecensionError, match=r"module <lambda> in the window \[0, 1\): ZeroDivisionError"):
        rc.run(failing, {"s": [rc.Insert(_row("a", 1), 0, 1)]})


@pytest.mark.parametrize(
    "written", [rc.col("x") + 1, rc.col("x") * 2, rc.col("x") - -1, rc.col("x") + rc.col("x")]
)
def test_whole_numbers_do_not_wrap(written: rc.Expr) -> None:
    last = [rc.Insert(_row("a", 2**63 - 1), 0, 1)]
    for query in (ints.select(y=written), ints.where(written > 0), ints.agg(y=rc.max(written))):
        with pytest.raises(rc.RecensionError, match="does not fit in int64"):
            rc.run(query, {"s": last}, close=True)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batches_of_nothing_are_refused(batch_size: int) -> None:
    with pytest.raises(rc.RecensionError, match="batch_size"):
        rc.run(ints, {"s": []}, batch_size=batch_size)


def test_encoded_columns_can_be_aggregated() -> None:
    coded = rc.source("s", {"c": pa.dictionary(pa.int32(), pa.string())})
    feed = [rc.Insert({"c": c}, 0, 9) for c in ("b", "a")]
    out = rc.run(coded.agg(m=rc.min("c"), speculate="eager"), {"s": feed})
    assert_equivalent(out, [rc.Event({"m": "a"}, 0, 9)])


def test_the_first_of_two_that_begin_together_waits_for_their_ends() -> None:
    """Which one is first is settled by the ends: the output's CTI must not run ahead of that."""
    session = rc.session(ints.agg(f=rc.first("x"), speculate="eager"))
    session.push("s", [rc.Insert(_row("a", 1), 0, 9), rc.Insert(_row("a", 2), 0, 12), rc.Cti(5)])
    session.push("s", [rc.Retract(_row("a", 1), 0, 9, 20), rc.Cti(30)])
    out = session.read()
    assert_valid(out.elements())
    assert_equivalent(out, [rc.Event({"f": 2}, 0, 12), rc.Event({"f": 1}, 12, 20)])
