"""Finalize mends broken chains wherever it stands, as long as orphans can pass the steps below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.validity import UNKNOWN
from recension.gate.files import open_stream
from recension.testing import assert_equivalent
from recension.testing.strategies import histories, physical_streams

COLUMNS = {"k": "string"}
s, t = rc.source("s", COLUMNS), rc.source("t", COLUMNS)
BROKEN: list[Element] = [Retract({"k": "a"}, 0, 9, 4), Insert({"k": "a"}, 0, 9), Cti(20)]
A = {"k": "a"}

MENDED: dict[str, tuple[rc.Stream, list[Event]]] = {
    "where": (s.where(rc.col("k") == "a").finalize(), [Event(A, 0, 4)]),
    "select": (s.select(j=rc.col("k")).finalize(), [Event({"j": "a"}, 0, 4)]),
    "map": (s.map(lambda batch: batch, COLUMNS).finalize(), [Event(A, 0, 4)]),
    "union": (s.union(t).finalize(), [Event(A, 0, 4)]),
    "itself": (s.union(s).finalize(), [Event(A, 0, 4)] * 2),
    "shift": (s.shift(3).finalize(), [Event(A, 3, 7)]),
    "extend": (s.extend(3).finalize(), [Event(A, 0, 7)]),
    "points": (s.to_points().finalize(), [Event(A, 0, 1)]),
    "steps": (s.where(rc.col("k") == "a").shift(1).union(t).finalize(), [Event(A, 1, 5)]),
    "group": (s.group_by("k").apply(lambda g: g.finalize()), [Event(A, 0, 4)]),
    "steps of a group": (s.group_by("k").apply(lambda g: g.shift(3).finalize()), [Event(A, 3, 7)]),
    "step below": (s.shift(3).group_by("k").apply(lambda g: g.finalize()), [Event(A, 3, 7)]),
    "level": (
        s.where(rc.col("k") == "a").agg(n=rc.count()).consistency(remember=50),
        [Event({"n": 1}, 0, 4)],
    ),
    "level of a group": (
        s.group_by("k").apply(lambda g: g.agg(n=rc.count()).consistency(remember=50)),
        [Event({"k": "a", "n": 1}, 0, 4)],
    ),
}


def inputs(query: rc.Stream, feed: object) -> dict[str, object]:
    others: list[Element] = [Cti(20)]
    return {name: feed if name == "s" else others for name in rc.session(query).sources}


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("name", MENDED)
def test_a_retraction_may_come_before_its_insert(name: str, size: int) -> None:
    query, expected = MENDED[name]
    result = rc.run(query, inputs(query, BROKEN), batch_size=size)
    assert_equivalent(result.history(), expected)


def test_so_may_one_in_a_file(tmp_path: Path) -> None:
    retract = '{"_kind": "retract", "_vs": 0, "_ve": 9, "_new_ve": 4, "k": "a"}\n'
    (tmp_path / "s.jsonl").write_text(retract + '{"_kind": "insert", "_vs": 0, "_ve": 9, "k": "a"}\n')
    query = s.shift(3).finalize()
    unchecked_sources = "s" in rc.session(query).unchecked_sources
    result = rc.run(query, {"s": open_stream(tmp_path / "s.jsonl", check_orphans=not unchecked_sources)})
    assert_equivalent(result.history(), [Event(A, 3, 7)])


@pytest.mark.parametrize("size", [1, 100])
def test_a_merge_gets_them_through_steps_as_from_the_source_itself(size: int) -> None:
    feeds = {"s": [BROKEN[1], BROKEN[0], BROKEN[2]], "t": BROKEN}
    on_sources = rc.run(rc.merge(s, t), feeds, batch_size=size)
    above = rc.run(rc.merge(s.shift(0), t.where(rc.col("k") == "a")), feeds, batch_size=size)
    assert_equivalent(above.history(), on_sources.history())
    assert_equivalent(above.history(), [Event(A, 0, 4)])


REFUSED: dict[str, Callable[[rc.Stream], rc.Stream]] = {
    "shorter, which may make an insert of it": lambda s: s.extend(-3).finalize(),
    "deletes, which make an insert of it": lambda s: s.deletes().finalize(),
    "state below": lambda s: s.distinct().finalize(),
    "a reader beside": lambda s: s.shift(1).finalize().union(s.shift(1)),
    "a group without": lambda s: s.group_by("k").apply(lambda g: g.finalize().union(g.align())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mended_is_refused(name: str) -> None:
    with pytest.raises(StreamError, match=f"^s: row 1: {UNKNOWN}"):
        rc.run(REFUSED[name](s), {"s": BROKEN})


def test_the_error_says_what_to_do_where_a_finalize_stands_further_up() -> None:
    with pytest.raises(StreamError, match=r"'s' is read without one too: put \.finalize\(\) there as well"):
        rc.run(s.shift(1).finalize().union(s), {"s": BROKEN})


def test_with_drop_other_readers_get_a_valid_stream() -> None:
    lenient = rc.source("s", COLUMNS, on_violation="drop")
    session = rc.session(mended=lenient.shift(1).finalize(), raw=lenient)
    session.push("s", BROKEN)
    assert_equivalent(session.read("mended").history(), [Event(A, 1, 5)])
    assert_equivalent(session.read("raw").history(), [Event(A, 0, 9)])
    assert session.counts()["check s"] == {UNKNOWN: 1}


NUMBERS = {"x": "int64"}
PASSED: dict[str, Callable[[rc.Stream], rc.Stream]] = {
    "where": lambda s: s.where(rc.col("x") > 1),
    "select": lambda s: s.select(x=rc.col("x") % 2),
    "shift": lambda s: s.shift(-2),
    "extend": lambda s: s.extend(2),
    "duration": lambda s: s.set_duration(3),
    "inserts": lambda s: s.inserts(),
    "hop": lambda s: s.hop_lifetime(4, 2),
}


@pytest.mark.parametrize("name", PASSED)
@given(st.data())
def test_any_order_comes_to_the_same_as_a_finalize_on_the_source(name: str, data: st.DataObject) -> None:
    numbers = rc.source("s", NUMBERS)
    stream = data.draw(physical_streams(data.draw(histories(schema=numbers.schema)), schema=numbers.schema))
    feed = data.draw(st.permutations([e for e in stream if not isinstance(e, Cti)]))
    above = rc.run(PASSED[name](numbers).finalize(), {"s": feed})
    below = rc.run(PASSED[name](numbers.finalize()), {"s": feed})
    assert_equivalent(above.history(), below.history())
