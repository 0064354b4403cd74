"""Patterns against the oracle, for any streams, batching and interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

import recension as rc
from recension import denote
from recension.core.batch import inserts
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Payload, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.order import History, canonical
from recension.lowering import operator_of
from recension.operators import choices, starts
from recension.operators.base import Operator
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

STREAMS = {name: rc.source(name, SCHEMA) for name in ("a", "b", "c")}


def columns(on: Any) -> dict[str, list[str]]:
    return dict.fromkeys(STREAMS, ["k", "v"] if on else ["v"])


def rises(row: Payload) -> bool:
    return None not in (row["a_v"], row["b_v"]) and bool(row["a_v"] <= row["b_v"])


Case = tuple[Callable[..., Any], Callable[..., History]]
RISES = rc.col("a_v") <= rc.col("b_v")
FORMS: dict[str, Case] = {
    "sequence of two": (
        lambda s, **how: rc.sequence({"a": s["a"], "b": s["b"]}, **how),
        lambda h, *how: denote.sequence({"a": h["a"], "b": h["b"]}, *how),
    ),
    "sequence": (lambda s, **how: rc.sequence(s, **how), lambda h, *how: denote.sequence(h, *how)),
    "sequence without": (
        lambda s, **how: rc.sequence({"a": s["a"], "b": s["b"]}, absent=s["c"], **how),
        lambda h, within, on: denote.sequence({"a": h["a"], "b": h["b"]}, within, on, h["c"]),
    ),
    "sequence without what it has": (
        lambda s, **how: rc.sequence(s, absent=s["b"], **how),
        lambda h, within, on: denote.sequence(h, within, on, h["b"]),
    ),
    "sequence where": (
        lambda s, **how: rc.sequence({"a": s["a"], "b": s["b"]}, absent=s["c"], where=RISES, **how),
        lambda h, within, on: denote.sequence({"a": h["a"], "b": h["b"]}, within, on, h["c"], rises),
    ),
    "all_of": (lambda s, **how: rc.all_of(s, **how), lambda h, *how: denote.all_of(h, *how)),
    "at_least 1": (
        lambda s, **how: rc.at_least(1, s, **how),
        lambda h, within, on: denote.at_least(1, h, within, on, None, columns(on)),
    ),
    "at_least 2": (
        lambda s, **how: rc.at_least(2, s, where=RISES, **how),
        lambda h, within, on: denote.at_least(2, h, within, on, rises, columns(on)),
    ),
}


def steps(data: DataObject, ports: int) -> list[tuple[int, list[Element]]]:
    """Batches of some streams, in any interleaving."""
    streams = [data.draw(physical_streams(data.draw(histories()), schema=SCHEMA)) for _ in range(ports)]
    batches = [data.draw(batchings(stream)) for stream in streams]
    order = data.draw(st.permutations([port for port in range(ports) for _ in batches[port]]))
    return [(port, batches[port].pop(0)) for port in order]


@pytest.mark.parametrize("form", FORMS)
@given(st.data(), st.integers(1, 7), st.booleans(), st.booleans())
def test_it_is_the_oracle_after_every_step(
    form: str, data: DataObject, within: int, keyed: bool, in_pieces: bool
) -> None:
    build, meaning = FORMS[form]
    on = ["k"] if keyed else []
    schema = SCHEMA if keyed else pa.schema([SCHEMA.field("v")])
    streams = STREAMS if keyed else {name: rc.source(name, schema) for name in STREAMS}
    node = build(streams, within=within, on=on).plan
    names = [name for name, stream in streams.items() if stream.plan in node.inputs]
    ports = [names.index(name) for child in node.inputs for name in names if streams[name].plan is child]
    driver = Driver(lambda: operator_of(node), *(child.schema for child in node.inputs))
    inputs = {name: StreamModel() for name in streams}
    most = starts._MOST_CANDIDATES
    starts._MOST_CANDIDATES = 1 if in_pieces else most  # type: ignore[misc]
    try:
        for at, elements in steps(data, len(names)):
            given_elements = [e if keyed else without_key(e) for e in elements]
            for port in [port for port, own in enumerate(ports) if own == at]:
                driver.feed(given_elements, port)
            for element in given_elements:
                inputs[names[at]].take(element)
            histories = {name: model.events() for name, model in inputs.items()}
            assert canonical(driver.history()) == canonical(meaning(histories, within, on))
            assert driver.cti == min(inputs[name].cti for name in names)
            if data.draw(st.booleans()):
                driver.restore_twin()
    finally:
        starts._MOST_CANDIDATES = most  # type: ignore[misc]
    assert driver.operator.state_rows() == 0


def without_key(element: Element) -> Element:
    match element:
        case Insert():
            return Insert({"v": element.payload["v"]}, element.vs, element.ve)
        case Retract():
            return Retract({"v": element.payload["v"]}, element.vs, element.ve, element.new_ve)
    return element


A = {"k": "a", "v": 1}


def driver_of(query: Any) -> Driver:
    return Driver(lambda: operator_of(query.plan), *(child.schema for child in query.plan.inputs))


def test_state_is_what_may_still_be_in_an_answer() -> None:
    driver = driver_of(rc.sequence(STREAMS, within=10, on="k"))
    for port in range(3):
        driver.feed([Insert(A, at, at + 1) for at in range(0, 100, 5)], port)
    for port in range(3):
        driver.feed([Cti(80)], port)
    # First parts until no second can come within 10; last ones until none can come before them.
    assert driver.operator.state_rows() == len([75, 80, 85, 90, 95]) + 2 * len([85, 90, 95]) + len([75, 80])


def test_at_the_ends_of_time() -> None:
    at = [BEGINNING, BEGINNING + 2, FOREVER - 3, FOREVER - 1]
    events = [Event(A, vs, FOREVER) for vs in at]
    for name, (build, meaning) in FORMS.items():
        driver = driver_of(build(STREAMS, within=5, on="k"))
        ports = len(driver.operator._sides)  # type: ignore[attr-defined]
        for port in range(ports):
            driver.feed([Insert(event.payload, event.vs, event.ve) for event in events], port)
        assert canonical(driver.history()) == canonical(meaning(dict.fromkeys(STREAMS, events), 5, "k")), name


def hot(rows: int, gap: int = 1) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
    vs = np.arange(rows) * gap
    return vs, pa.record_batch({"k": ["hot"] * rows, "v": vs}, schema=SCHEMA)


def feed(operator: Operator, port: int, vs: Any, payload: pa.RecordBatch) -> int:
    return len(operator.on_batch(port, inserts(vs, vs + 1, payload)))


def test_too_many_answers_of_one_event_are_an_error_that_names_the_key() -> None:
    vs, payload = hot(100)
    operator = operator_of(
        rc.sequence({"a": STREAMS["a"], "b": STREAMS["b"]}, within=1000, on="k", most=99).plan
    )
    feed(operator, 0, vs, payload)
    assert feed(operator, 1, vs[:99], payload.slice(0, 99)) == sum(range(99))
    with pytest.raises(
        StreamError, match=r"^sequence: one event of k = 'hot' adds 100 answers, more than most=99; "
    ):
        feed(operator, 1, vs[99:] + 1, payload.slice(99))


def test_events_with_too_many_answers_are_left_out_and_so_are_their_removals() -> None:
    query = rc.sequence({"a": STREAMS["a"], "b": STREAMS["b"]}, within=100, on="k", most=2, on_limit="drop")
    driver = driver_of(query)
    driver.feed([Insert({"k": "hot", "v": n}, n, n + 1) for n in range(3)])
    found = driver.feed(
        [Insert(A, 1, 2), Insert({"k": "hot", "v": 7}, 2, 3), Insert({"k": "hot", "v": 9}, 5, 6)], 1
    )
    assert [element.payload["b_v"] for element in found if isinstance(element, Insert)] == [7, 7]
    reason = "an event of k = 'hot' adds more than 2 answers"
    assert driver.operator.counts() == {reason: 1}
    ((why, rows),) = driver.operator.take_dropped()
    assert (why, rows.payload.to_pylist()) == (reason, [{"k": "hot", "v": 9}])
    driver.restore_twin()
    assert driver.feed([Retract({"k": "hot", "v": 9}, 5, 6, 5)], 1) == []
    # Another of the same payload is an event like any other once the first ones have gone.
    driver.feed([Retract({"k": "hot", "v": 0}, 0, 1, 0)])
    assert len(driver.feed([Insert({"k": "hot", "v": 9}, 5, 6)], 1)) == 2
    for port in range(2):
        driver.feed([Cti(FOREVER)], port)
    assert driver.operator.state_rows() == 0


def test_a_hot_key_is_refused_before_its_answers_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """25,000,000 answers of 5,000 events: no more are looked at than a piece may have."""
    vs, payload = hot(5_000)
    operator = operator_of(
        rc.all_of({"a": STREAMS["a"], "b": STREAMS["b"]}, within=10_000, on="k", most=1_000).plan
    )
    feed(operator, 0, vs, payload)
    looked: list[int] = []
    take = choices.Choices.take

    def note(self: choices.Choices, rows: Any) -> choices.Choices:
        looked.append(len(rows))
        return take(self, rows)

    monkeypatch.setattr(choices.Choices, "take", note)
    with pytest.raises(StreamError, match="adds 4,999 answers"):
        feed(operator, 1, vs, payload)
    assert sum(looked) < 4 * starts._MOST_CANDIDATES
