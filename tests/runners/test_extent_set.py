"""Queries that share extents, as users meet them: sessions, explain, groups, errors."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core.events import Element, Event
from recension.operators.extents.calibration import readings
from recension.operators.schemes.constants import Constants, save_constants
from recension.testing import assert_equivalent
from recension.testing.model import StreamModel

SCHEMA = {"room": "int64", "heat": "int64", "damp": "int64"}
WINDOW = rc.range(400, slide=100)
ASKED: dict[str, Any] = {
    "heat": rc.coalescing("heat", "room"),
    "rising": rc.coalescing("heat", "room", "increasing"),
    "damp": rc.coalescing("damp", "room"),
    "both": rc.coalescing(["heat", "damp"], ["room"], expected=(0.1, 0.1)),
}


@pytest.fixture(autouse=True)
def constants(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices as the paper's."""
    monkeypatch.setenv("RECENSION_CONSTANTS", f"{tmp_path}/constants.json")
    save_constants(Constants(1, 1, 0.035, 0.072, 0.1, 2, 1, 0.068, 0.005))


def told(start: int, size: int, cp: float, oop: float = 0.2) -> pa.Table:
    times, rooms, heat = readings(size, cp, oop, groups=2, seed=start)
    columns = {"_kind": ["insert"] * size, "_vs": times + start, "_ve": times + start + 1}
    return pa.table({**columns, "room": rooms, "heat": heat, "damp": heat // 4})


@pytest.mark.slow
def test_queries_answer_as_they_would_alone_while_schemes_change() -> None:
    source = rc.source("s", SCHEMA)
    shared: Any = rc.ExtentSet(source, WINDOW, weights=(1, 1, 2), **ASKED)
    alone: Any = {
        name: source.coalesce(query.on, query.group_by, query.equivalence, WINDOW, "lazy")
        for name, query in ASKED.items()
    }
    live, others = rc.session(**shared), rc.session(**alone)
    answers: dict[str, list[Element]] = {name: [] for name in ASKED}
    schemes = []
    for part in range(8):
        for each in (live, others):
            each.push("s", told(part * 600, 600, 0.9 if part < 1 else 0.0))
            each.advance("s", part * 600 + 540)
        for name in ASKED:
            answers[name] += live.read(name).elements()
        words = live.explain("heat")
        schemes.append(["heat by room: eager" in words, "heat by room, increasing: eager" in words])
        if part in (1, 4):
            resumed = rc.session(**shared)
            resumed.restore(live.snapshot())
            # Since when it waits for an input, nobody knows after a restore.
            said = re.sub(", since [^;]*;", ";", live.explain("damp"))
            assert resumed.explain("damp") == said
            live = resumed
    # A lone lazy query would not be worth the shared extent.
    assert schemes[0] == [True, True]
    assert schemes[-1] == [False, False]
    for name in ASKED:
        assert_equivalent(history_of(answers[name]), others.read(name).history().to_events())


def history_of(elements: list[Element]) -> list[Event]:
    walk = StreamModel()
    for element in elements:
        assert walk.fault(element) is None
        walk.take(element)
    return walk.events()


def test_the_choice_is_explained() -> None:
    source = rc.source("s", SCHEMA)
    names = ("heat", "damp")
    unknown = rc.ExtentSet(source, WINDOW, **{name: ASKED[name] for name in names})
    assert (
        unknown.explain()
        .splitlines()[3]
        .startswith(
            "│  chosen: auto, as if half of the readings coalesced, until it is learned; weights ⟨1, 1, 1⟩"
        )
    )
    expected = rc.ExtentSet(
        source,
        rc.rows(1_000, slide=10),
        weights=(1, 1, 2),
        heat=rc.coalescing("heat", "room", expected=(0.9, 0.1)),
        damp=rc.coalescing("damp", "room", expected=(0.05, 0.1)),
        both=rc.coalescing(["heat", "damp"], "room", expected=(0.05, 0.1)),
    )
    first, heat, damp, both, shared = expected.explain().splitlines()[3:8]
    assert first.endswith("this choice costs 4.69, all eager 5.43, all lazy 5.05; 2 extents")
    assert "heat by room: eager; cp 0.90, oop 0.10; eager 1.54 (memory 0.54, update 0.90" in heat
    assert "damp by room: lazy; cp 0.05" in damp
    assert "heat, damp by room: lazy; cp 0.05" in both
    assert "the extent that lazy queries share: 1.05" in shared


def test_queries_that_ask_the_same_are_one() -> None:
    shared = rc.ExtentSet(
        rc.source("s", SCHEMA), WINDOW, one=ASKED["heat"], other=rc.coalescing(["heat"], "room")
    )
    assert shared["one"].plan is shared["other"].plan
    assert list(shared) == ["one", "other"]


def test_a_column_may_be_called_query() -> None:
    source = rc.source("s", {"query": "string", "query_": "int64"})
    shared = rc.ExtentSet(
        source, rc.range(5, slide=5), q=rc.coalescing("query_", "query"), p=rc.coalescing("query")
    )
    found = rc.run(shared["q"], {"s": [rc.Insert({"query": "x", "query_": 1}, 2)]}, close=True)
    assert found.history().to_events() == [
        Event({"query": "x", "query_": 1, "valid_start": 2, "valid_end": 2}, 5, 10)
    ]


def test_each_group_by_itself() -> None:
    """Inside a group's query the groups need not be named."""
    source, table = rc.source("s", SCHEMA), told(0, 300, 0.7)
    for window in (rc.range(40, slide=20), rc.rows(20, slide=7)):

        def asked(group: rc.Stream, window: Any = window) -> rc.Stream:
            shared = rc.ExtentSet(group, window, heat=rc.coalescing("heat"), damp=rc.coalescing("damp"))
            return shared["heat"]

        def alone(group: rc.Stream, window: Any = window) -> rc.Stream:
            return group.coalesce("heat", window=window)

        found, expected = (
            rc.run(source.group_by("room").apply(query), {"s": table}, close=True).history().to_events()
            for query in (asked, alone)
        )
        assert len(expected) > 10
        assert_equivalent(found, expected)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"window": "60m"}, "a window is rc.range"),
        ({"weights": (1, 2)}, "weights are three numbers"),
        ({"weights": (0, 0, 0)}, "weights are three numbers"),
        ({"weights": (1, -1, 1)}, "weights are three numbers"),
        ({"scheme": "quick"}, "scheme is 'auto', 'eager' or 'lazy'"),
        ({"q": "heat"}, "q is an rc.coalescing"),
        ({"q": rc.coalescing("hot")}, "there is no column 'hot'"),
    ],
)
def test_mistakes_are_told(given: dict[str, Any], reason: str) -> None:
    right: dict[str, Any] = {"window": WINDOW, "q": ASKED["heat"]}
    with pytest.raises(rc.SchemaError, match=reason):
        rc.ExtentSet(rc.source("s", SCHEMA), **(right | given))


def test_more_mistakes() -> None:
    with pytest.raises(rc.SchemaError, match="one query or more"):
        rc.ExtentSet(rc.source("s", SCHEMA), WINDOW)
    with pytest.raises(rc.SchemaError, match=r"probabilities \(cp, oop\) lie between 0 and 1"):
        rc.coalescing("heat", expected=(1.5, 0))


@pytest.mark.parametrize("window", [WINDOW, rc.rows(300, slide=50)], ids=str)
def test_what_is_known_of_answers_holds(window: Any) -> None:
    """Readings in order: answers of time windows are never taken back, those of rows only end."""
    source = rc.source("s", SCHEMA, properties=rc.Properties(is_ordered=True, is_insert_only=True))
    shared: Any = rc.ExtentSet(source, window, weights=(1, 1, 2), **ASKED)
    live, found = rc.session(**shared), dict[str, list[Element]]()
    for part in range(4):
        live.push("s", told(part * 1_000, 1_000, 0.9 if part < 2 else 0.0, oop=0.0))
        live.advance("s", part * 1_000 + 900)
        for name in shared:
            found.setdefault(name, []).extend(live.read(name).elements())
    for name, elements in found.items():
        known = shared[name].properties
        retractions = [e for e in elements if isinstance(e, rc.Retract)]
        assert known.is_insert_only is isinstance(window, type(WINDOW))
        assert known.is_shrink_only
        assert all(e.new_ve < e.ve for e in retractions)
        assert not (known.is_insert_only and retractions)
        if known.constant_duration is not None:
            assert {e.ve - e.vs for e in elements if isinstance(e, rc.Insert)} == {known.constant_duration}
