"""Windows whose modules see ends are not closed before these ends are final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.modules.family import Spans

import recension as rc

P = {"k": "a", "v": 1}
LONG, LONGER, SHORT = "(0, 5, 1)", "(0, 9, 1)", "(1, 3, 1)"


@pytest.mark.parametrize(
    ("windows", "end", "cti"),
    [(lambda s: s.tumbling(5), 5, 20), (lambda s: s.count_window(2), 2, 1)],
    ids=["tumbling", "count"],
)
def test_an_event_that_ends_at_the_cti_may_still_grow(
    windows: Callable[[rc.Stream], Any], end: int, cti: int
) -> None:
    source = rc.source("s", {"k": "string", "v": "int64"})
    live = rc.session(windows(source).clip_input("none").agg(a=Spans()))
    live.push("s", [rc.Insert(P, 0, 5), rc.Insert(P, 1, 3)])
    live.push("s", [rc.Cti(5)])
    was, now = ({"a": f"[{one}, {SHORT}]"} for one in (LONG, LONGER))
    assert live.read().elements() == [rc.Insert(was, 0, end), rc.Cti(0)]
    live.push("s", [rc.Retract(P, 0, 5, 9)])
    live.push("s", [rc.Cti(20)])
    told = live.read().elements()
    assert told[:2] == [rc.Retract(was, 0, end, 0), rc.Insert(now, 0, end)]
    assert told[-1] == rc.Cti(cti)
