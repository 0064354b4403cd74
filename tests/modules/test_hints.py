"""What a module declares of itself, what rewrites make of it, and what explain says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.modules.family import MergedSum

import recension as rc
from recension.core.errors import SchemaError
from recension.testing.assertions import assert_equivalent

S: Any = rc.source("s", {"k": "string", "v": "int64", "note": "string"})
EVENTS = [rc.Insert({"k": "abc"[i % 3], "v": i % 4, "note": "x"}, i, i + 1 + i % 5) for i in range(20)]


class PerKind(rc.Operator):
    """How often each value occurs, with what it came with."""

    result = {"k": "string", "v": "int64", "n": "int64"}
    ignores = ("note",)
    partitioned_by = ("v",)

    def compute(self, payloads: Any) -> Iterable[dict[str, Any]]:
        rows = [(p["k"], p["v"]) for p in payloads]
        return [{"k": k, "v": v, "n": rows.count((k, v))} for k, v in dict.fromkeys(rows)]


def _alike(query: Any, apart: Any) -> None:
    """Both mean the same; the second is held together by a step that no filter passes."""
    found, expected = (rc.run(q, {"s": EVENTS}, close=True).history().to_events() for q in (query, apart))
    assert found
    assert_equivalent(found, expected)


def _unmoved(stream: Any, predicate: Any) -> Any:
    return stream.map(lambda batch: batch, stream.schema).where(predicate)


def test_a_filter_moves_below_what_is_partitioned() -> None:
    rows = S.hopping(6, 3).apply(PerKind)
    query = rows.where(rc.col("v") > 1)
    assert "└─ source s" in query.explain()
    assert query.explain().index("apply PerKind") < query.explain().index("where v > 1")
    _alike(query, _unmoved(rows, rc.col("v") > 1))


def test_a_filter_on_other_columns_stays() -> None:
    query = S.hopping(6, 3).apply(PerKind).where(rc.col("n") > 1)
    assert query.explain().index("where n > 1") < query.explain().index("apply PerKind")


def test_windows_that_events_make_stop_a_filter() -> None:
    for windowed in (S.snapshot(), S.count_window(3)):
        query = windowed.apply(PerKind).where(rc.col("v") > 1)
        assert query.explain().index("where v > 1") < query.explain().index("apply PerKind")


def test_a_filter_on_keys_moves_below_any_windows() -> None:
    for windowed in (
        S.group_by("k").snapshot(),
        S.group_by("k").count_window(2),
        S.group_by("k").tumbling(5),
    ):
        rows = windowed.agg(s=MergedSum(v="v"))
        query = rows.where(rc.col("k") != "a")
        assert query.explain().index("aggregate s = MergedSum") < query.explain().index("where k != 'a'")
        _alike(query, _unmoved(rows, rc.col("k") != "a"))


def test_columns_that_are_ignored_are_dropped() -> None:
    assert "select k, v" in S.tumbling(5).apply(PerKind).explain()


def test_explain_says_what_was_chosen() -> None:
    text = S.hopping(6, 3).agg(s=MergedSum()).explain()
    assert "MergedSum by states, panes shared by overlapping windows (members in any order)" in text
    assert "ctis wait for the first window that can still change; old output kept" in text
    hints = "PerKind from the events of each window (ignores note; filters on v move below)"
    assert hints in S.tumbling(5).apply(PerKind).explain()


class Tally(PerKind):
    """How often each of some values occurs, those too that do not."""

    result = {"v": "int64", "n": "int64"}
    is_empty_preserving = False

    def compute(self, payloads: Any) -> Iterable[dict[str, Any]]:
        values = [p["v"] for p in payloads]
        return [{"v": v, "n": values.count(v)} for v in (0, 1, 2, 3)]


def test_a_filter_stays_above_rows_for_what_is_not_there() -> None:
    rows = S.tumbling(2).apply(Tally)
    query = rows.where(rc.col("v") == 3)
    assert query.explain().index("where v == 3") < query.explain().index("apply Tally")
    assert "filters on v stay above, for it has rows for what is not there" in query.explain()
    _alike(query, _unmoved(rows, rc.col("v") == 3))
    assert 0 in {e.payload["n"] for e in rc.run(query, {"s": EVENTS}, close=True).history().to_events()}


def test_what_is_partitioned_by_is_in_the_rows() -> None:
    class Lost(PerKind):
        partitioned_by = ("note",)

    with pytest.raises(SchemaError, match="Lost: partitioned_by names 'note', which is not in its rows"):
        S.tumbling(5).apply(Lost)


class Pairs(rc.Operator):
    """Every two members of a window, the earlier first."""

    inputs = {"v": "int64"}
    result = {"a": "int64", "b": "int64"}
    is_monotone = True

    def compute(self, payloads: Any) -> Iterable[dict[str, Any]]:
        values = sorted(p["v"] for p in payloads)
        return [{"a": a, "b": b} for i, a in enumerate(values) for b in values[i + 1 :]]


def test_rows_of_a_monotone_module_are_never_taken_back() -> None:
    known = rc.Properties(is_insert_only=True)
    feed = rc.source("s", {"v": "int64"}, properties=known)
    query = feed.tumbling(5).apply(Pairs, speculate="eager")
    assert query.properties.is_insert_only
    assert not feed.snapshot().apply(Pairs, speculate="eager").properties.is_insert_only
    assert "rows are never taken back" in query.explain()
    live = rc.session(query)
    for at in (3, 1, 8, 2, 7):
        live.push("s", [rc.Insert({"v": at}, at, at + 1)])
    elements = live.read().elements()
    assert len(elements) == 4
    assert all(isinstance(element, rc.Insert) for element in elements)
