"""Inputs that pause: a micro-batch has new files for some sources and not for others, at any level."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel

SCHEMA = {"k": "int64"}


def _play(query: Stream, turns: list[tuple[str, list[Element]]], shards: int) -> None:
    """Each turn has new elements at one source only; the output is a valid stream, and the right one."""
    rehearsal, local, shown = Rehearsal([query.plan], shards), rc.session(query), StreamModel()
    expected = StreamModel()
    for source, elements in turns:
        batch = from_elements(elements, rc.source(source, SCHEMA).schema)
        local.push(source, elements)
        for element in local.read().elements():
            expected.take(element)
        for element in rehearsal.output(rehearsal.turn({source: [batch]})).to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    assert_equivalent(shown.events(), expected.events())


def _summed_beside_counted() -> Stream:
    """By key in every shard, and all of another source in one; both meet in one shard at the next level."""
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    by_key = s.group_by("k").agg(n=rc.count())
    return by_key.agg(n=rc.sum("n"), speculate="eager").union(t.agg(n=rc.count(), speculate="eager"))


@pytest.mark.parametrize("keys", list(permutations([1, 2, 3, 4], 2)))
def test_no_promise_without_the_shards_that_were_not_called(keys: tuple[int, int]) -> None:
    """One key's answer is open and holds its shard's promise back; the other shard's is far ahead."""
    held, free = ({"k": key} for key in keys)
    turns: list[tuple[str, list[Element]]] = [
        ("s", [rc.Insert(held, 1, 100), rc.Insert(free, 2, 3), rc.Cti(50)]),
        ("t", [rc.Insert({"k": 9}, 5, 6), rc.Cti(60)]),
        ("s", [rc.Insert(held, 60, 70), rc.Cti(80)]),
        ("t", [rc.Cti(200)]),
        ("s", [rc.Cti(200)]),
    ]
    _play(_summed_beside_counted(), turns, 2)


def _at_two_levels() -> Stream:
    """One source is read at the first level and the other at the second only."""
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    totals = s.group_by("k").agg(n=rc.count(), speculate="eager").group_by("n").agg(keys=rc.count())
    return totals.join(t.rename({"k": "n"}), on="n")


@pytest.mark.parametrize("first", ["s", "t"])
def test_sources_at_several_levels_that_pause(first: str) -> None:
    second = "t" if first == "s" else "s"
    turns: list[tuple[str, list[Element]]] = []
    for start in range(0, 40, 10):
        for source in (first, second):
            rows: list[Element] = [rc.Insert({"k": k % 3}, start + k % 4, start + 8 + k) for k in range(6)]
            turns.append((source, [*rows, rc.Cti(start + 9)]))
    _play(_at_two_levels(), [*turns, (first, [rc.Cti(500)]), (second, [rc.Cti(500)])], 3)


def test_what_is_in_order_in_every_shard_is_in_order_in_one() -> None:
    """A merge that relies on order may read steps that wait in every shard."""
    s, t = (rc.source(name, SCHEMA, properties=rc.Properties(is_insert_only=True)) for name in "st")
    aligned = s.group_by("k").agg(n=rc.count()).select(k=rc.col("k")).align()
    query = rc.merge(aligned, t.align(), case="R1")
    inserts: list[Element] = [rc.Insert({"k": k}, 20 - k, 40 + k) for k in range(20)]
    turns: list[tuple[str, list[Element]]] = [
        ("s", [*inserts, rc.Cti(10)]),
        ("s", [rc.Cti(100)]),
        ("t", [rc.Cti(100)]),
    ]
    _play(query, turns, 3)
