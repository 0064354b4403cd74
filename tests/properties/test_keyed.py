"""Keyed sources against their oracle: rows in any order, cut into any batches, restored at any step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Cti, Insert
from recension.core.ticks import FOREVER
from recension.denote import keyed
from recension.operators.state import block_table, group_counts, leaf_table
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import batchings

COLUMNS = {"k": "int64", "v": "string"}


@dataclass
class Feed:
    """A keyed source, what it means, and rows and CTIs that arrive."""

    query: rc.Stream
    meaning: keyed.RowMeaning
    arriving: list[Insert | Cti]
    kind: str
    forget: int | None = None

    def history(self, size: int) -> list[Any]:
        """By the oracle, of the first elements."""
        came = self.arriving[:size]
        if self.kind == "records":
            return keyed.restate(came, self.meaning, self.forget)
        return keyed.changes(came, self.meaning, "version" if self.kind == "log" else "start")


@st.composite
def feeds(draw: st.DrawFn, policies: tuple[str, ...] = ("drop", "adjust")) -> Feed:
    kind: Any = draw(st.sampled_from(["records", "changes", "log"]))
    policy: Any = draw(st.sampled_from(policies))
    version = "ver" if kind == "log" or draw(st.booleans()) else None
    deleted = draw(st.sampled_from(["gone", None]))
    forget = draw(st.sampled_from([None, 0, 3])) if kind == "records" else None
    arriving: list[Insert | Cti] = []
    t = 0
    for is_cti in draw(st.lists(st.sampled_from([False, False, False, True]), max_size=25)):
        if is_cti:
            t += draw(st.integers(0, 4))
            arriving.append(Cti(t))
            continue
        payload = {"k": draw(st.integers(0, 2)), "v": draw(st.sampled_from("ab"))}
        if version:
            payload["ver"] = draw(st.none() | st.integers(0, 6))
        if deleted:
            payload["gone"] = draw(st.sampled_from([None, False, True]))
        start = t + draw(st.integers(-3, 6))
        arriving.append(Insert(payload, start, draw(st.just(FOREVER) | st.integers(start - 1, start + 8))))
    if kind == "records":
        query = rc.source(
            "s", COLUMNS, None, None, None, policy, key="k", version=version, deleted=deleted, forget=forget
        )
    else:
        order: Any = "version" if kind == "log" else "start"
        query = rc.changes("s", COLUMNS, "k", None, version, deleted, policy, order=order)
    meaning = keyed.RowMeaning(["k", "v"], ["k"], version, deleted, policy)
    return Feed(query, meaning, arriving, kind, forget)


def check(data: st.DataObject) -> None:
    feed = data.draw(feeds())
    session, shown, size = rc.session(feed.query), StreamModel(), 0
    for batch in data.draw(batchings(feed.arriving)):
        session.push("s", batch)
        size += len(batch)
        for element in session.read().elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
        assert_equivalent(shown.events(), feed.history(size))
        if data.draw(st.booleans()):
            state, session = session.snapshot(), rc.session(feed.query)
            session.restore(state)


@given(st.data())
def test_after_every_batch_the_history_is_the_oracles(data: st.DataObject) -> None:
    check(data)


@given(st.data())
def test_blocks_and_numbers_of_keys_do_not_matter(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 2)
        patch.setattr(leaf_table, "_LONG", 2)
        patch.setattr(leaf_table, "_SHORT", 1)
        patch.setattr(group_counts, "_REUSE_AT", 0)
        check(data)


@given(st.data())
def test_what_the_oracle_refuses_is_refused(data: st.DataObject) -> None:
    feed = data.draw(feeds(("raise",)))
    size = data.draw(st.integers(1, 9))
    try:
        expected = feed.history(len(feed.arriving))
    except StreamError:
        with pytest.raises(StreamError):
            rc.run(feed.query, {"s": feed.arriving}, batch_size=size)
        return
    assert_equivalent(rc.run(feed.query, {"s": feed.arriving}, batch_size=size), expected)


@given(st.data())
def test_with_versions_the_order_of_arrival_does_not_matter(data: st.DataObject) -> None:
    """Without CTIs, and if no version is there twice."""
    size = data.draw(st.integers(1, 12))
    rows = [
        Insert({"k": data.draw(st.integers(0, 2)), "v": data.draw(st.sampled_from("ab")), "ver": i}, t, t + 3)
        for i, t in enumerate(data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)))
    ]
    for query in (
        rc.source("s", COLUMNS, key="k", version="ver"),
        rc.changes("s", COLUMNS, "k", version="ver"),
        rc.changes("s", COLUMNS, "k", version="ver", order="version"),
    ):
        shuffled = data.draw(st.permutations(rows))
        assert_equivalent(
            rc.run(query, {"s": shuffled}, batch_size=data.draw(st.integers(1, 9))).history(),
            rc.run(query, {"s": rows}).history(),
        )
