"""What a module declares of itself, what rewrites make of it, and what explain says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.modules.family import MergedSum

import recension as rc
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
