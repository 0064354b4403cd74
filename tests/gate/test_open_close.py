"""Open and close rows become inserts and retractions (LMerge technical report, Example 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import CTI, INSERT, EventBatch, from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.formats.decode import CLOSE, OPEN
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.rows import Origin
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import ADJUSTED, LATE, UNKNOWN, Checker
from recension.gate.open_close import BEFORE_START, NOT_OPEN, OpenClose

SCHEMA = pa.schema([("p", pa.string())])
CODES = {"open": OPEN, "close": CLOSE, "cti": CTI, "insert": INSERT}
Row = tuple[str, str | None, int]


def rows(text: str) -> list[Row]:
    """``"open A 1, close A 4, cti 9"``."""
    parts = [item.split() for item in text.split(",")]
    return [(part[0], part[1] if len(part) == 3 else None, int(part[-1])) for part in parts]


def batch(items: Sequence[Row]) -> EventBatch:
    kind = np.array([CODES[item[0]] for item in items], np.uint8)
    times = np.array([item[2] for item in items], np.int64)
    size = len(items)
    return EventBatch(
        kind,
        np.where(kind == CLOSE, FOREVER, times),
        np.where(kind == CLOSE, times, FOREVER),
        np.full(size, FOREVER),
        np.zeros(size, np.int64),
        pa.record_batch([pa.array([item[1] for item in items], pa.string())], schema=SCHEMA),
    )


def translated(items: Sequence[Row], size: int = 100, feed: OpenClose | None = None) -> list[Element]:
    feed = OpenClose() if feed is None else feed
    parts = [feed.translate(batch(items[i : i + size])) for i in range(0, len(items), size)]
    return [element for part in parts for element in part.to_elements()]


def event(p: str, vs: int, ve: int = FOREVER) -> Event:
    return Event({"p": p}, vs, ve)


@pytest.mark.parametrize(
    "feed",
    [
        "open A 1, open B 2, open C 3, close A 4, close B 5",
        "open A 1, close A 4, open B 2, close B 5, open C 3",
        "open B 2, close B 6, open A 1, open C 3, close A 4, close B 5",
    ],
    ids=["S", "U", "W"],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_example_3(feed: str, size: int) -> None:
    items, reader = rows(feed), OpenClose()
    parts = [reader.translate(batch(items[i : i + size])) for i in range(0, len(items), size)]
    expected = History.from_events([event("A", 1, 4), event("B", 2, 5), event("C", 3)], SCHEMA)
    assert reconstitute(parts, SCHEMA).to_events() == expected.to_events()


def test_element_by_element() -> None:
    assert translated(rows("open A 1, close A 6, cti 2, close A 4")) == [
        Insert({"p": "A"}, 1),
        Retract({"p": "A"}, 1, FOREVER, 6),
        Cti(2),
        Retract({"p": "A"}, 1, 6, 4),
    ]


def test_a_close_is_for_the_most_recent_open() -> None:
    assert translated(rows("open A 1, open A 3, close A 5, close A 6"))[2:] == [
        Retract({"p": "A"}, 3, FOREVER, 5),
        Retract({"p": "A"}, 3, 5, 6),
    ]


@pytest.mark.parametrize("size", [1, 100])
def test_closed_at_its_start_and_opened_again(size: int) -> None:
    assert translated(rows("open A 1, close A 1, close A 4"), size) == [
        Insert({"p": "A"}, 1),
        Retract({"p": "A"}, 1, FOREVER, 1),
        Insert({"p": "A"}, 1, 4),
    ]


def test_other_kinds_pass() -> None:
    items = rows("insert A 1, cti 2, open B 3, insert A 4")
    assert translated(items) == [
        Insert({"p": "A"}, 1),
        Cti(2),
        Insert({"p": "B"}, 3),
        Insert({"p": "A"}, 4),
    ]


@pytest.mark.parametrize(
    ("feed", "row", "reason"),
    [
        ("close A 1", 1, NOT_OPEN),
        ("open A 1, close B 2", 2, NOT_OPEN),
        ("insert A 1, close A 2", 2, NOT_OPEN),
        ("open A 3, close A 2", 2, BEFORE_START),
        ("open A 1, close A 4, cti 5, close A 6", 4, NOT_OPEN),
        ("open A 1, close B 4, close A 0", 2, NOT_OPEN),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_faults(feed: str, row: int, reason: str, size: int) -> None:
    items, reader = rows(feed), OpenClose()

    def read() -> None:
        for start in range(0, len(items), size):
            origin = Origin(("f",), start + 1)
            reader.translate(batch(items[start : start + size]), origin=origin)

    with pytest.raises(StreamError, match=rf"^f: row {row}: {reason}: {{'p': '[AB]'}} at \d"):
        read()


def test_an_end_at_the_cti_can_still_be_revised() -> None:
    assert translated(rows("open A 1, close A 5, cti 5, close A 7"), 1)[-1] == Retract({"p": "A"}, 1, 5, 7)


def test_drop_keeps_the_end_that_stands() -> None:
    feed = OpenClose("drop")
    found = translated(rows("open A 1, cti 5, close A 3, close A 8, open B 2, close B 9"), feed=feed)
    assert found == [Insert({"p": "A"}, 1), Cti(5), Retract({"p": "A"}, 1, FOREVER, 8)]
    assert feed.counts == {LATE: 2, NOT_OPEN: 1}
    assert sum(len(part) for _, part in feed.dropped) == 3


def test_what_adjust_moves_is_closed_where_it_is_shown() -> None:
    feed, checker = OpenClose("adjust"), Checker("adjust")
    items = rows("open A 1, cti 5, close A 3, close A 8, open B 2, close B 9, open C 2, close C 4, close C 7")
    assert checker.check(feed.translate(batch(items))).to_elements() == [
        Insert({"p": "A"}, 1),
        Cti(5),
        Retract({"p": "A"}, 1, FOREVER, 5),
        Retract({"p": "A"}, 1, 5, 8),
        Insert({"p": "B"}, 5),
        Retract({"p": "B"}, 5, FOREVER, 9),
        Insert({"p": "C"}, 5),
        Retract({"p": "C"}, 5, FOREVER, 5),
        Insert({"p": "C"}, 5, 7),
    ]
    assert feed.counts + checker.counts == {ADJUSTED: 7}


def test_an_open_that_was_moved_can_be_retracted() -> None:
    feed, checker = OpenClose("adjust"), Checker("adjust")
    checker.check(feed.translate(batch(rows("cti 5, open A 3"))))
    late = from_elements([Retract({"p": "A"}, 3, FOREVER, 9)], SCHEMA)
    assert checker.check(feed.translate(late)).to_elements() == [Retract({"p": "A"}, 5, FOREVER, 9)]


def test_state_is_freed_as_ctis_pass() -> None:
    feed = OpenClose()
    for i in range(200):
        names = [f"{i}-{j}" for j in range(50)]
        opens: list[Row] = [("open", name, i) for name in names]
        closes: list[Row] = [("close", name, i + 1) for name in names]
        feed.translate(batch([*opens, *closes, ("cti", None, i)]))
    assert len(feed) < 1000
    feed.translate(batch([("cti", None, FOREVER)]))
    assert len(feed) == 0


feeds = st.lists(
    st.tuples(st.sampled_from(["open", "close", "close", "cti"]), st.sampled_from("AB"), st.integers(0, 9)),
    max_size=15,
).map(lambda items: [(kind, None if kind == "cti" else p, t) for kind, p, t in items])


@pytest.mark.parametrize("policy", ["drop", "adjust"])
@given(items=feeds, size=st.integers(1, 6))
def test_policies_agree_with_a_walk_element_by_element(
    policy: Literal["drop", "adjust"], items: list[Row], size: int
) -> None:
    assert translated(items, size, OpenClose(policy)) == walked(items, policy)
    one_by_one, whole = OpenClose(policy), OpenClose(policy)
    translated(items, 1, one_by_one), translated(items, 100, whole)
    assert one_by_one.counts == whole.counts
    # What comes out retracts nothing that is not there, and breaks no CTI unless it is to be moved.
    checker = Checker(policy)
    checker.check(OpenClose(policy).translate(batch(items)))
    assert not checker.counts[UNKNOWN]
    assert policy == "adjust" or not checker.counts[LATE]


@pytest.mark.parametrize("policy", ["drop", "adjust"])
@pytest.mark.parametrize("size", [1, 100])
def test_a_reason_is_the_same_in_any_batches(policy: Literal["drop", "adjust"], size: int) -> None:
    """The event is over; in a later batch nobody knows when it began."""
    feed = OpenClose(policy)
    translated(rows("open A 5, close A 6, cti 9, close A 3, close A 7, open B 20, close B 19"), size, feed)
    assert feed.counts == {NOT_OPEN: 2, BEFORE_START: 1}


def walked(items: Sequence[Row], policy: str) -> list[Element]:
    """The same translation in plain Python."""
    last: dict[str, tuple[int, int, int]] = {}
    frontier, out = BEGINNING, list[Element]()
    for kind, p, t in items:
        if p is None:
            frontier = max(frontier, t)
            out.append(Cti(t))
        elif policy == "drop" and t < frontier:
            continue
        elif kind == "open":
            last[p] = (t, FOREVER, FOREVER)
            out.append(Insert({"p": p}, t))
        elif p in last and last[p][2] >= frontier and t >= last[p][0]:
            start, end, _ = last[p]
            last[p] = (start, t, max(t, frontier))
            out.append(Insert({"p": p}, start, t) if end == start else Retract({"p": p}, start, end, t))
    return out
