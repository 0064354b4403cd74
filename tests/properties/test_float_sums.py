"""Sums of floats whose sizes span all that floats have: exact, in any batches, whatever has come and gone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension import denote
from recension.core.events import Element, Event, Insert, Retract
from recension.core.history import History
from recension.operators.windowed import double_double as dd
from recension.plan.node import walk
from recension.plan.parts import PartialSums
from recension.plan.rewrites.optimize import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.testing.assertions import assert_equivalent

S = rc.source("s", {"k": "string", "x": "float64"})


def summed(windows: Any) -> rc.Stream:
    found: rc.Stream = windows.agg(t=rc.sum("x"), m=rc.mean("x"), speculate="eager")
    return found


QUERIES: dict[str, Callable[[], rc.Stream]] = {
    "snapshots": lambda: summed(S),
    "by key": lambda: summed(S.group_by("k")),
    "hopping": lambda: summed(S.hopping(6, 2)),
    "moving": lambda: summed(S.to_points().set_duration(7)),
    "sessions": lambda: summed(S.group_by("k").sessions(3)),
    "counts": lambda: summed(S.count_window(3)),
    "some": lambda: S.agg(t=rc.sum("x", where=rc.col("k") == "a"), m=rc.mean("x"), speculate="eager"),
    "of sums": lambda: summed(summed(S.group_by("k")).select("k", x=rc.col("t"))),
}


@st.composite
def floats(draw: st.DrawFn) -> float:
    digits = draw(st.sampled_from([1.0, -1.0, 0.1, -0.1, 3.0, 0.7234567891234567]))
    return digits * 10.0 ** draw(st.sampled_from([287, 200, 16, 0, -1, -16, -222, -300]))


@st.composite
def revised(draw: Any) -> tuple[list[Element], list[Event]]:
    """A stream in which large and small numbers come and go, and what is left of it."""
    stream, live = list[Element](), list[Event]()
    for _ in range(draw(st.integers(2, 14))):
        if live and draw(st.sampled_from([False, True])):
            event = live.pop(draw(st.integers(0, len(live) - 1)))
            end = draw(st.sampled_from([event.vs, event.vs, event.ve + 3]))
            stream.append(Retract(event.payload, event.vs, event.ve, end))
            live += [Event(event.payload, event.vs, end)] if end > event.vs else []
        else:
            start = draw(st.integers(0, 12))
            payload = {"k": draw(st.sampled_from("ab")), "x": draw(floats())}
            live.append(Event(payload, start, start + draw(st.integers(1, 8))))
            stream.append(Insert(payload, start, live[-1].ve))
    return stream, live


def played(query: rc.Stream, stream: Sequence[Element], cuts: Sequence[int], revive_at: int = -1) -> History:
    session = rc.session(query)
    for number, (low, high) in enumerate(pairwise([0, *cuts, len(stream)])):
        if number == revive_at:
            chunks, session = session.snapshot(), rc.session(query)
            session.restore(chunks)
        session.push("s", list(stream[low:high]))
    return session.history()


@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
@settings(max_examples=examples(80))
def test_sums_do_not_depend_on_what_came_and_went(name: str, data: st.DataObject) -> None:
    query, (stream, live) = QUERIES[name](), data.draw(revised())
    left = played(query, [Insert(event.payload, event.vs, event.ve) for event in live], [])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    assert_equivalent(played(query, stream, []), left)
    assert_equivalent(played(query, stream, range(1, len(stream)), data.draw(st.integers(0, 8))), left)
    assert_equivalent(played(query, stream, cuts, data.draw(st.integers(0, 4))), left)
    if name == "snapshots":
        rows = denote.agg(t=denote.sum("x"), m=denote.mean("x"))
        assert_equivalent(left, denote.snapshot(live, rows))


PARTED = ("snapshots", "by key", "hopping", "moving")


@pytest.mark.parametrize("name", PARTED)
@given(st.data())
@settings(max_examples=examples(80))
def test_sums_that_are_made_in_parts_do_not_either(name: str, data: st.DataObject) -> None:
    """As on Spark, where each shard tells what its events change and one adds that up."""
    query, (stream, live) = QUERIES[name](), data.draw(revised())
    (parted,) = preaggregate(optimize([query.plan]), ["k"] if "key" in name else [])
    assert any(isinstance(node, PartialSums) for node in walk(parted))
    left = played(query, [Insert(event.payload, event.vs, event.ve) for event in live], [])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    assert_equivalent(played(rc.Stream(parted), stream, []), left)
    assert_equivalent(played(rc.Stream(parted), stream, cuts, data.draw(st.integers(0, 4))), left)


def test_three_sizes_at_one_point() -> None:
    """A pair of floats holds two of them."""
    sizes = [1e200, 1e100, 0.1]
    stream: list[Element] = [Insert({"k": "a", "x": x}, at, 9) for at, x in enumerate(sizes)]
    stream += [Retract({"k": "a", "x": x}, at, 9, 5) for at, x in enumerate(sizes[:2])]
    (parted,) = preaggregate(optimize([QUERIES["snapshots"]().plan]))
    for cuts in ([], range(1, 5), [3]):
        last = played(rc.Stream(parted), stream, cuts).to_events()[-1]
        assert (last.vs, last.ve, last.payload["t"]) == (5, 9, 0.1)


@given(st.lists(floats(), min_size=1, max_size=12))
@settings(max_examples=examples(300))
def test_prefixes_are_exact(numbers: list[float]) -> None:
    column = np.array(numbers)
    pair = dd.running_sum(column, np.zeros(len(column)), np.array([len(column)]))
    for size in range(1, len(numbers) + 1):
        found = pair[0][size - 1] + pair[1][size - 1]
        assert math.isclose(found, math.fsum(numbers[:size]), rel_tol=3e-16)  # the last digit of ties
