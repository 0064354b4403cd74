"""Elements left out are counted for ever: a session that goes on from a snapshot knows the counts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import recension as rc
from recension.core.validity import ADJUSTED, LATE, STALE_CTI, UNKNOWN

P = {"x": 1}
s = rc.source("s", {"x": "int64"})
lenient = rc.source("s", {"x": "int64"}, on_violation="drop")
EARLY = [rc.Insert(P, 20, 22)]
LATER = [rc.Insert(P, 1, 30), rc.Insert(P, 1, 3)]


def resumed(session: rc.Session, query: rc.Stream) -> rc.Session:
    session.read()
    other = rc.session(query)
    other.push("s", EARLY)
    other.push("s", LATER)
    other.restore(session.snapshot())
    return other


@pytest.mark.parametrize(
    ("query", "dropped"),
    [
        (s.finalize(2), {LATE: 2}),
        (s.advance_time(2), {LATE: 2}),
        (s.advance_time(2, late="adjust"), {LATE: 1, ADJUSTED: 1}),
    ],
)
def test_operators_go_on_counting(query: rc.Stream, dropped: dict[str, int]) -> None:
    first = rc.session(query)
    first.push("s", EARLY)
    first.push("s", LATER)
    (counts,) = (counts for name, counts in first.counts().items() if name != "s")
    assert counts == dropped
    second = resumed(first, query)
    assert second.counts() == first.counts()
    assert [m.dropped for m in second.metrics()] == [m.dropped for m in first.metrics()]
    second.push("s", LATER)
    (counts,) = (counts for name, counts in second.counts().items() if name != "s")
    assert counts == {reason: 2 * n for reason, n in dropped.items()}


def test_sources_go_on_counting() -> None:
    wrong = [rc.Cti(5), rc.Cti(4), rc.Insert(P, 1, 9), rc.Retract(P, 7, 9, 8)]
    unreadable = pa.table({"_kind": ["inset"], "_vs": [6], "_ve": [7], "x": [1]})
    first = rc.session(lenient)
    first.push("s", wrong)
    first.push("s", unreadable)
    counts = first.counts()["s"]
    assert counts[LATE] == counts[UNKNOWN] == counts[STALE_CTI] == 1
    assert counts.total() == 4
    second = resumed(first, lenient)
    assert second.counts() == first.counts()
    second.push("s", wrong[2:])
    assert second.counts()["s"].total() == 6
    third = resumed(second, lenient)
    assert third.counts() == second.counts()
    assert third.metrics()[0].dropped == 5
