"""A coalescing query by itself: eager or lazy by cost, as expected, guessed or learned."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.operators.extents.calibration import readings
from recension.operators.schemes.constants import Constants, save_constants
from recension.testing import assert_equivalent

SOURCE = rc.source("s", {"room": "int64", "heat": "int64"})
WINDOWS = (rc.range(400, slide=100), rc.rows(300, slide=50))


@pytest.fixture(autouse=True)
def constants(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights ⟨0, 1, 2⟩ an extent of its own pays from a coalescing probability of 0.4 on."""
    monkeypatch.setenv("RECENSION_CONSTANTS", f"{tmp_path}/constants.json")
    save_constants(Constants(1, 1, 1, 1, 1, 1, lazy_insert=0.2, lazy_delete=0.2))


def told(start: int, cp: float, oop: float = 0.1, size: int = 600) -> pa.Table:
    times, rooms, heat = readings(size, cp, oop, groups=2, seed=start)
    columns = {"_kind": ["insert"] * size, "_vs": times + start, "_ve": times + start + 1}
    return pa.table({**columns, "room": rooms, "heat": heat})


def asked(window: Any = WINDOWS[0], **choice: Any) -> rc.Stream:
    return SOURCE.coalesce("heat", "room", window=window, **choice)


def chosen(words: str) -> str:
    return words.split("heat by room: ")[1].split(";")[0]


def test_costs_and_choice_are_explained_before_it_runs() -> None:
    guessed = asked(weights=(0, 1, 2)).explain().splitlines()
    assert guessed[3].endswith(
        "auto, as if half of the readings coalesced, until it is learned; weights ⟨0, 1, 2⟩: "
        "this choice costs 1.50, all eager 1.50, all lazy 1.70; 1 extent"
    )
    assert "heat by room: eager; cp 0.50, oop 0.00; eager 1.50 (memory 0.81, update 1.00" in guessed[4]
    known = asked(weights=(0, 1, 2), expected=(0.2, 0.0)).explain()
    assert "auto, as expected; weights ⟨0, 1, 2⟩: this choice costs 1.40, all eager 1.80" in known
    assert chosen(known) == "lazy"


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_what_is_learned_changes_the_scheme_and_no_answer(window: Any) -> None:
    auto, lazy = asked(window, weights=(0, 1, 2)), asked(window, scheme="lazy")
    live, schemes = rc.session(auto=auto, lazy=lazy), []
    for part in range(8):
        live.push("s", told(part * 600, 0.9 if part < 2 else 0.0))
        live.advance("s", part * 600 + 540)
        if part in (0, 4):
            resumed = rc.session(auto=auto, lazy=lazy)
            resumed.restore(live.snapshot())
            # Since when it waits for an input, nobody knows after a restore.
            said = re.sub(", since [^;]*;", ";", live.explain("auto"))
            assert resumed.explain("auto") == said
        schemes.append(chosen(live.explain("auto")))
    assert schemes[0] == "eager"
    assert schemes[-1] == "lazy"
    assert "(a lazy extent is being filled)" not in live.explain("auto")
    found, expected = (live.read(name).history().to_events() for name in ("auto", "lazy"))
    assert len(expected) > 100
    assert_equivalent(found, expected)


@pytest.mark.parametrize("scheme", ["auto", "eager", "lazy"])
def test_what_a_step_refuses_leaves_no_trace_in_a_snapshot(scheme: Any) -> None:
    """Slides that a refused batch would have passed are shown when another passes them."""

    def at(*times: int) -> list[rc.Insert]:
        return [rc.Insert({"room": 1, "heat": 20}, t, t + 1) for t in times]

    query = asked(rc.range(3, slide=1), scheme=scheme)
    live, other = rc.session(query), rc.session(query)
    for each in (live, other):
        each.push("s", at(1))
    before = live.snapshot()
    with pytest.raises(rc.StreamError, match="two readings of one group at 1"):
        live.push("s", at(4, 1))
    live.restore(before)
    for each in (live, other):
        each.push("s", at(5))
    assert_equivalent(live.history(), other.history())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"weights": (1, 2)}, "coalesce: weights are three numbers"),
        ({"expected": (0.5, 2)}, r"probabilities \(cp, oop\) lie between 0 and 1"),
        ({"expected": (0.5, 0.1), "scheme": "lazy"}, "expected=.* is for scheme='auto'"),
        ({"window": None, "weights": (1, 1, 2)}, "weights=.* needs a window"),
    ],
)
def test_mistakes_are_told(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(rc.SchemaError, match=reason):
        asked(**given)
