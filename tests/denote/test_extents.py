"""Coalescing over window extents: the data of coalescing.md §8 and the edges of rulings 1-5."""

from __future__ import annotations

import pytest

from recension.core.errors import RecensionError, StreamError
from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.denote import coalesce_range, coalesce_rows

Row = tuple[str, int, int]


def readings(text: str) -> list[Event]:
    """``a1 b9`` reads: value a at time 1, value b at time 9."""
    return [Event({"v": word[0]}, int(word[1:]), int(word[1:]) + 1) for word in text.split()]


def alive(history: list[Event], at: int) -> list[Row]:
    """The answer in force at an instant."""
    rows = [event.payload for event in history if event.vs <= at < event.ve]
    return sorted(((r["v"], r["valid_start"], r["valid_end"]) for r in rows), key=lambda row: row[1])


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("a1 a9 b5", [("a", 1, 5), ("b", 5, 9), ("a", 9, 9)]),
        ("a1 b9 c5", [("a", 1, 5), ("c", 5, 9), ("b", 9, 9)]),
        ("a1 b9 b7", [("a", 1, 7), ("b", 7, 9)]),
        ("a1 a3 b9 c2", [("a", 1, 2), ("c", 2, 3), ("a", 3, 9), ("b", 9, 9)]),
    ],
)
def test_small_cases_of_nine_tuples(arrivals: str, expected: list[Row]) -> None:
    assert alive(coalesce_rows(readings(arrivals), size=9, slide=1, on="v"), at=9) == expected
    assert alive(coalesce_range(readings(arrivals), span=9, slide=1, on="v"), at=9) == expected


@pytest.mark.parametrize(
    ("arrivals", "at", "expected"),
    [
        ("a1 a3 a5 b10", 10, [("a", 5, 10), ("b", 10, 10)]),
        ("a1 a6 b9", 9, [("a", 6, 9), ("b", 9, 9)]),
        ("a1 b20 c3", 20, [("b", 20, 20)]),
    ],
)
def test_small_cases_of_five_ticks(arrivals: str, at: int, expected: list[Row]) -> None:
    assert alive(coalesce_range(readings(arrivals), span=5, slide=1, on="v"), at) == expected


def test_the_three_latest_tuples_whatever_the_arrival() -> None:
    # w=3: 5, 6, 7 then 1, then 5.5; times doubled.
    for arrivals, starts in [("a10 b12 c14 d2", [10, 12, 14]), ("a10 b12 c14 d2 e11", [11, 12, 14])]:
        answer = alive(coalesce_rows(readings(arrivals), size=3, slide=1, on="v"), at=14)
        assert [start for _, start, _ in answer] == starts


FIG_2 = [
    (1, 1, 81),
    (1, 2, 81),
    (1, 3, 81),
    (2, 1, 81),
    (2, 2, 79),
    (2, 3, 81),
    (3, 1, 81),
    (3, 2, 81),
    (3, 3, 81),
]
FIG_2_RESULT = {(1, 81, 1, 3), (2, 81, 1, 2), (2, 79, 2, 3), (2, 81, 3, 3), (3, 81, 1, 3)}


def test_figure_2() -> None:
    history = [Event({"temp": temp, "region": region}, ts, ts + 1) for ts, region, temp in FIG_2]
    by_rows = coalesce_rows(history, size=9, slide=9, on="temp", group_by="region")
    by_range = coalesce_range(history, span=2, slide=3, on="temp", group_by="region")
    assert {tuple(event.payload.values()) for event in by_rows} == FIG_2_RESULT
    assert {tuple(event.payload.values()) for event in by_range if event.vs == 3} == FIG_2_RESULT
    assert {(event.vs, event.ve) for event in by_rows} == {(3, FOREVER)}
    assert len(by_rows) == 5


def row(value: str, start: int, end: int) -> Payload:
    return {"v": value, "valid_start": start, "valid_end": end}


def test_range_answers_at_every_slide_while_the_window_holds_readings() -> None:
    assert coalesce_range(readings("a1 b4"), span=5, slide=3, on="v") == [
        Event(row("a", 1, 1), 3, 6),
        Event(row("a", 1, 4), 6, 9),
        Event(row("b", 4, 4), 6, 9),
        Event(row("b", 4, 4), 9, 12),
    ]


def test_range_holds_both_its_ends_and_goes_below_zero() -> None:
    assert coalesce_range(readings("a-4"), span=2, slide=2, on="v") == [
        Event(row("a", -4, -4), -4, -2),
        Event(row("a", -4, -4), -2, 0),
    ]


def test_range_shorter_than_its_slide_may_miss_readings() -> None:
    assert coalesce_range(readings("a1 a9"), span=1, slide=5, on="v") == [Event(row("a", 9, 9), 10, 15)]


def test_rows_answer_after_every_slide_and_the_last_for_ever() -> None:
    assert coalesce_rows(readings("a1 a2 b4 b7 a9"), size=3, slide=2, on="v") == [
        Event(row("a", 1, 2), 2, 7),
        Event(row("a", 2, 4), 7, FOREVER),
        Event(row("b", 4, 7), 7, FOREVER),
    ]


def test_rows_at_one_time_leave_only_the_last_slide() -> None:
    history = [Event({"k": k, "v": "a"}, 5, 6) for k in (2, 1, 3)]
    result = coalesce_rows(history, size=2, slide=1, on="v", group_by="k")
    assert [(event.payload["k"], event.vs, event.ve) for event in result] == [
        (2, 5, FOREVER),
        (3, 5, FOREVER),
    ]


def test_an_expired_prefix_moves_the_start() -> None:
    assert alive(coalesce_rows(readings("a1 a2 a3"), size=2, slide=1, on="v"), at=3) == [("a", 2, 3)]


def test_general_equivalence_shows_the_first_value() -> None:
    def increasing(before: Payload, after: Payload) -> bool:
        return bool(after["v"] > before["v"])

    history = readings("a1 b2 c4")
    result = coalesce_rows(history, size=9, slide=3, on="v", equivalence=increasing)
    assert result == [Event(row("a", 1, 4), 4, FOREVER)]
    result = coalesce_range(readings("b1 c2 a3 d4"), span=9, slide=10, on="v", equivalence=increasing)
    assert result == [Event(row("b", 1, 3), 10, 20), Event(row("a", 3, 4), 10, 20)]


def test_refusals() -> None:
    with pytest.raises(StreamError, match="two readings"):
        coalesce_rows(readings("a1 b1"), size=9, slide=1, on="v")
    with pytest.raises(StreamError, match="two readings"):
        coalesce_range(readings("a1 b1"), span=9, slide=1, on="v")
    with pytest.raises(RecensionError, match="positive"):
        coalesce_rows([], size=0, slide=1, on="v")
    with pytest.raises(RecensionError, match="finite"):
        coalesce_range([], span=FOREVER, slide=1, on="v")


def test_empty() -> None:
    assert coalesce_rows([], size=1, slide=1, on="v") == coalesce_range([], span=1, slide=1, on="v") == []
