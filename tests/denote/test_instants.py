"""View-update operators agree, instant by instant, with the relational ones ([TR] Definition 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote import (
    History,
    agg,
    canonical,
    clip,
    coalesce,
    count,
    distinct,
    hopping,
    join,
    snapshot,
    snapshot_windows,
    sum,
    union,
    window_aggregate,
)

LIMIT = 12
unhurried = settings(deadline=None)  # a slow machine is not a failure
Rows = list[dict[str, Any]]


def histories(column: str) -> st.SearchStrategy[History]:
    """Few values and few times, so that ties and touching ends are frequent."""
    payload = st.builds(lambda k, v: {"k": k, column: v}, st.sampled_from([1, 2, None]), st.integers(0, 1))
    end = st.one_of(st.integers(-LIMIT, LIMIT), st.just(FOREVER))
    event = st.builds(Event, payload, st.integers(-LIMIT, LIMIT), end).filter(lambda e: e.vs < e.ve)
    return st.lists(event, max_size=6)


LEFT, RIGHT = histories("x"), histories("y")


def at(history: History, instant: int) -> Counter[str]:
    """What is true at an instant, as a bag."""
    return Counter(str(sorted(e.payload.items())) for e in history if e.vs <= instant < e.ve)


def bag(rows: Rows) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


def alive(history: History, instant: int) -> Rows:
    return [dict(event.payload) for event in history if event.vs <= instant < event.ve]


def check(result: History, relational: Callable[[int], Rows]) -> None:
    assert all(event.vs < event.ve for event in result)
    for instant in [*range(-LIMIT - 1, LIMIT + 2), FOREVER - 1]:
        assert at(result, instant) == bag(relational(instant)), instant


def match(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return row["k"] is not None and row["k"] == other["k"]


@unhurried
@given(LEFT, RIGHT)
def test_inner_join(left: History, right: History) -> None:
    check(
        join(left, right, on="k"),
        lambda t: [row | other for row in alive(left, t) for other in alive(right, t) if match(row, other)],
    )


@unhurried
@given(LEFT, RIGHT)
def test_semi_anti_and_left_join(left: History, right: History) -> None:
    def has_match(row: dict[str, Any], t: int) -> bool:
        return any(match(row, other) for other in alive(right, t))

    inner = join(left, right, on="k")
    check(join(left, right, on="k", how="semi"), lambda t: [r for r in alive(left, t) if has_match(r, t)])
    check(join(left, right, on="k", how="anti"), lambda t: [r for r in alive(left, t) if not has_match(r, t)])
    check(
        join(left, right, on="k", how="left", right_columns=["k", "y"]),
        lambda t: alive(inner, t) + [r | {"y": None} for r in alive(left, t) if not has_match(r, t)],
    )


@unhurried
@given(LEFT, LEFT)
def test_union(one: History, other: History) -> None:
    check(union(one, other), lambda t: alive(one, t) + alive(other, t))


@unhurried
@given(LEFT)
def test_snapshot_aggregate(history: History) -> None:
    def totals(t: int) -> Rows:
        rows = alive(history, t)
        return [{"n": len(rows), "total": len([row for row in rows if row["x"]])}] if rows else []

    check(snapshot(history, agg(n=count(), total=sum("x"))), totals)


@unhurried
@given(LEFT)
def test_snapshot_windows_are_snapshots(history: History) -> None:
    rows = agg(n=count(), total=sum("x"))
    assert window_aggregate(history, snapshot_windows(), rows) == snapshot(history, rows)


@unhurried
@given(LEFT)
def test_distinct_is_a_set_with_maximal_lifetimes(history: History) -> None:
    result = distinct(history)
    check(result, lambda t: [dict(row) for row in {tuple(row.items()) for row in alive(history, t)}])
    for one in result:
        assert not any(one.payload == other.payload and one.ve == other.vs for other in result)


@unhurried
@given(LEFT)
def test_coalesce_is_distinct_of_its_columns(history: History) -> None:
    check(
        coalesce(history, on="x", group_by="k"),
        lambda t: [dict(row) for row in {tuple(row.items()) for row in alive(history, t)}],
    )


@unhurried
@given(LEFT, st.integers(1, 5), st.integers(1, 5), st.integers(-3, 3))
def test_hopping_windows_count_what_overlaps(history: History, size: int, hop: int, offset: int) -> None:
    result = window_aggregate(history, hopping(size, hop, offset, until=LIMIT), agg(n=count()))
    expected = []
    for start in range(-LIMIT * 3, LIMIT):
        n = len([e for e in history if e.vs < start + size and start < e.ve])
        if n and (start - offset) % hop == 0:
            expected.append(Event({"n": n}, start, start + size))
    assert canonical(result) == canonical(expected)


@unhurried
@given(LEFT, RIGHT)
def test_clip_shortens_only_to_a_start(history: History, by: History) -> None:
    for event, cut in zip(history, clip(history, by, on="k"), strict=True):
        assert (event.payload, event.vs) == (cut.payload, cut.vs)
        starts = [o.vs for o in by if match(dict(event.payload), dict(o.payload)) and o.vs > event.vs]
        assert cut.ve == min([*starts, event.ve])
