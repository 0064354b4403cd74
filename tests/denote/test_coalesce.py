from __future__ import annotations

from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.denote import canonical, coalesce, edges, select

#   Table 1 of the coalescing paper; NOW is for ever.
ANDY = [
    Event({"name": "Andy", "dept": "Development", "salary": 100}, 2000, 2004),
    Event({"name": "Andy", "dept": "Development", "salary": 120}, 2004, 2008),
    Event({"name": "Andy", "dept": "R&D", "salary": 120}, 2008, FOREVER),
]


def test_table_2_projection_alone_leaves_three_rows() -> None:
    assert [(e.payload["salary"], e.vs, e.ve) for e in select(ANDY, "name", "salary")] == [
        (100, 2000, 2004),
        (120, 2004, 2008),
        (120, 2008, FOREVER),
    ]


def test_table_3_coalesced() -> None:
    expected = [
        Event({"name": "Andy", "salary": 100}, 2000, 2004),
        Event({"name": "Andy", "salary": 120}, 2004, FOREVER),
    ]
    assert coalesce(ANDY, on=["name", "salary"]) == expected
    assert coalesce(ANDY, on="salary", group_by="name") == expected


def test_is_a_set() -> None:
    history = [Event({"x": 1}, 0, 5)] * 3 + [Event({"x": 2}, 0, 5)]
    assert coalesce(history, on="x") == [Event({"x": 1}, 0, 5), Event({"x": 2}, 0, 5)]


def test_gaps_stay() -> None:
    history = [Event({"x": 1}, -9, -5), Event({"x": 1}, -4, 0), Event({"x": 1}, 0, 1)]
    assert coalesce(history, on="x") == [Event({"x": 1}, -9, -5), Event({"x": 1}, -4, 1)]


def test_other_values_between_do_not_part_what_overlaps() -> None:
    history = [Event({"x": "a"}, 0, 10), Event({"x": "b"}, 2, 3), Event({"x": "a"}, 5, 12)]
    assert coalesce(history, on="x") == [Event({"x": "a"}, 0, 12), Event({"x": "b"}, 2, 3)]


def test_groups_are_apart_and_come_first() -> None:
    history = [Event({"x": 1, "k": "a"}, 0, 5), Event({"x": 1, "k": "b"}, 5, 9)]
    result = coalesce(history, on="x", group_by="k")
    assert [list(event.payload.items()) for event in result] == [
        [("k", "a"), ("x", 1)],
        [("k", "b"), ("x", 1)],
    ]


def test_null_equals_null() -> None:
    history = [Event({"x": None}, 0, 5), Event({"x": None}, 5, 9)]
    assert coalesce(history, on="x") == [Event({"x": None}, 0, 9)]


def test_empty() -> None:
    assert coalesce([], on="x") == coalesce([], on="x", equivalence=increasing) == []


def increasing(before: Payload, after: Payload) -> bool:
    return bool(after["x"] > before["x"])


def readings(*pairs: tuple[int, int]) -> list[Event]:
    return [Event({"x": x}, ts, ts + 1) for ts, x in pairs]


def coalesced(history: list[Event]) -> list[tuple[int, int, int]]:
    result = canonical(coalesce(history, on="x", equivalence=increasing))
    return [(event.vs, event.ve, event.payload["x"]) for event in result]


def test_increasing_compares_with_the_previous_reading() -> None:
    # Ruling 23: run 1, 2, 3 "increasing"; 0 arrives after the 2: 1, 2 | 0, 3.
    assert coalesced(edges(readings((1, 1), (2, 2), (4, 3)))) == [(1, FOREVER, 1)]
    assert coalesced(edges(readings((1, 1), (2, 2), (3, 0), (4, 3)))) == [(1, 3, 1), (3, FOREVER, 0)]


def test_a_gap_ends_a_run() -> None:
    assert coalesced([Event({"x": 1}, 0, 2), Event({"x": 2}, 2, 4), Event({"x": 3}, 5, 6)]) == [
        (0, 4, 1),
        (5, 6, 3),
    ]


def test_a_run_lasts_until_its_last_end() -> None:
    assert coalesced([Event({"x": 1}, 0, 9), Event({"x": 2}, 1, 3), Event({"x": 3}, 8, 8 + 4)]) == [
        (0, 12, 1)
    ]


def test_equivalence_sees_the_on_columns_of_its_group() -> None:
    history = edges(
        [Event({"x": x, "k": k}, t, t + 1) for x, k, t in [(1, "a", 0), (9, "b", 1), (2, "a", 2)]], "k"
    )
    seen: list[tuple[Payload, Payload]] = []

    def look(before: Payload, after: Payload) -> bool:
        seen.append((before, after))
        return True

    assert canonical(coalesce(history, on="x", group_by="k", equivalence=look)) == [
        Event({"k": "a", "x": 1}, 0, FOREVER),
        Event({"k": "b", "x": 9}, 1, FOREVER),
    ]
    assert seen == [({"x": 1}, {"x": 2})]
