"""Plain functions of arrays as aggregates: of NumPy, of pandas, of anyone."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.modules.family import Sum

import recension as rc
from recension import denote
from recension.core.errors import RecensionError
from recension.testing.assertions import assert_equivalent

S: Any = rc.source("s", {"k": "string", "v": "int64"})
EVENTS = [rc.Insert({"k": "ab"[i % 2], "v": i}, i, i + 1 + 3 * (i % 3)) for i in range(12)]
TOGETHER = [rc.Insert({"k": "a", "v": 5}, 1, 3), rc.Insert({"k": "a", "v": 2}, 1, 9)]


def _run(query: Any, events: Any = EVENTS) -> list[rc.Event]:
    return rc.run(query, {"s": events}, close=True).history().to_events()


def test_without_ceremony() -> None:
    assert _run(S.tumbling(100).agg(m=rc.aggregate(np.median, "v"))) == [rc.Event({"m": 5.5}, 0, 100)]


@pytest.mark.parametrize(
    ("fn", "name", "answer"),
    [
        (pd.Series.median, "median", 5.5),
        (partial(pd.Series.quantile, q=0.25), "quantile", 2.75),
        (pd.Series.skew, "skew", 0.0),
    ],
)
def test_functions_of_pandas_get_a_series(fn: Any, name: str, answer: float) -> None:
    query = S.tumbling(100).agg(m=rc.aggregate(fn, "v"))
    assert f"m = {name}(v)" in query.explain()
    for asked in (query, S.tumbling(100).agg(m=rc.aggregate(fn, "v"), x=Sum()).drop("x")):
        assert _run(asked) == [rc.Event({"m": answer}, 0, 100)]
    assert query.plan is S.tumbling(100).agg(m=rc.aggregate(fn, "v")).plan


def test_values_come_by_start_and_value_alone_or_beside_a_module() -> None:
    listed = rc.aggregate(lambda values: str(values.tolist()), "v", result="string")
    for windowed in (S.tumbling(20), S.count_window(1)):
        (alone,), (beside,) = (_run(windowed.agg(a=listed, **more), TOGETHER) for more in ({}, {"x": Sum()}))
        assert alone.payload["a"] == beside.payload["a"] == "[2, 5]"
    meant = denote.snapshot(
        [rc.Event(e.payload, e.vs, e.ve) for e in TOGETHER], denote.agg(a=denote.aggregate(str, "v"))
    )
    assert_equivalent(_run(S.agg(a=listed), TOGETHER), meant)


def test_ends_that_may_move_hold_nothing_up() -> None:
    live = rc.session(S.tumbling(5).agg(m=rc.aggregate(np.median, "v")))
    live.push("s", [*TOGETHER, rc.Cti(8)])
    assert [str(e) for e in live.read().elements()] == ["insert [0, 5) {'m': 3.5}", "cti 5"]


def _angry(values: Any) -> float:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("windowed", "where"),
    [
        (S.tumbling(100), r"\[0, 100\): ValueError: no; it was given 0, 1, 2, 3, 4 and 7 more"),
        (S.hopping(4, 2), r"\[-2, 2\): ValueError: no; it was given 0, 1$"),
        (S.snapshot(), r"\[0, 1\): ValueError: no; it was given 0$"),
        (S.group_by("k").count_window(2), r"\[0, 3\): ValueError: no; it was given 0, 2$"),
    ],
)
def test_errors_name_function_window_and_values(windowed: Any, where: str) -> None:
    with pytest.raises(RecensionError, match=r"^module _angry in the window " + where):
        _run(windowed.agg(m=rc.aggregate(_angry, "v")))


class Sorts(rc.Aggregate):
    """Changes what it was lent."""

    inputs = {"k": "string"}
    result = "string"

    def compute(self, payloads: Any) -> str:
        payloads["k"].sort()
        return "".join(payloads["k"])


class Ends(rc.TimeSensitiveAggregate):
    result = "int64"

    def compute(self, events: Any, window: rc.Window) -> int:
        events.ve[:] = 0
        return 0


def test_what_windows_share_cannot_be_changed() -> None:
    for module in (Sorts(), Ends()):
        with pytest.raises(RecensionError, match=f"module {module.name} .*read-only"):
            _run(S.hopping(6, 3).clip_input("none").agg(a=module))


class Frame(rc.Operator):
    inputs = {"v": "int64"}
    result = {"v": "int64", "rank": "int64"}

    def compute(self, payloads: Any) -> Any:
        frame = payloads.to_arrow().to_pandas().nlargest(2, "v")
        return frame.assign(rank=range(1, len(frame) + 1))


def test_rows_may_come_as_a_frame() -> None:
    assert _run(S.tumbling(100).apply(Frame)) == [
        rc.Event({"v": 11, "rank": 1}, 0, 100),
        rc.Event({"v": 10, "rank": 2}, 0, 100),
    ]
