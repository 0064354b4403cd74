"""`on_violation`: what corrects an event that came too late follows it, wherever the stream comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recension as rc
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.core.validity import ADJUSTED, LATE, UNKNOWN, Policy
from recension.gate.files import open_stream
from recension.runners.local import Session
from recension.testing import assert_equivalent

A = {"k": "a"}
# The event is shown from 5 on, since it came after the cti.
MOVED: list[Element] = [Cti(5), Insert(A, 3)]


def source(policy: Policy = "adjust") -> rc.Stream:
    return rc.source("s", {"k": "string"}, on_violation=policy)


@pytest.mark.parametrize(
    ("corrections", "history"),
    [
        ([Retract(A, 3, FOREVER, 9)], [Event(A, 5, 9)]),
        ([Retract(A, 3, FOREVER, 9), Retract(A, 3, 9, 7), Retract(A, 3, 7, 30)], [Event(A, 5, 30)]),
        ([Retract(A, 3, FOREVER, 3)], []),
        ([Retract(A, 3, FOREVER, 4), Retract(A, 3, 4, 8)], [Event(A, 5, 8)]),
        ([Insert(A, 3), Retract(A, 3, FOREVER, 9)], [Event(A, 5, 9), Event(A, 5)]),
        ([Insert(A, 5), Retract(A, 3, FOREVER, 9)], [Event(A, 5, 9), Event(A, 5)]),
        ([Retract(A, 5, FOREVER, 9)], [Event(A, 5)]),
    ],
    ids=["shorter", "several", "removed", "to before the cti", "equal", "equal where shown", "no such event"],
)
@pytest.mark.parametrize("pushes", ["one", "each", "restored"])
def test_a_retraction_follows_the_event(
    corrections: list[Element], history: list[Event], pushes: str
) -> None:
    session = rc.session(source())
    stream = [*MOVED, *corrections, Cti(20)]
    given: list[Element] = []
    for batch in [stream] if pushes == "one" else [[element] for element in stream]:
        session.push("s", batch)
        given += session.read().elements()
        session = restored(session) if pushes == "restored" else session
    assert_equivalent(given, history)


def restored(session: Session) -> Session:
    again = rc.session(source())
    again.restore(session.snapshot())
    return again


def test_what_was_moved_is_forgotten_as_ctis_pass() -> None:
    session = rc.session(source())
    session.push("s", [*MOVED, Insert({"k": "b"}, 4, 10)])
    assert session.snapshot()["sources/s/altered"].num_rows == 2
    session.advance("s", 11)
    assert session.snapshot()["sources/s/altered"].num_rows == 1


def test_a_retraction_follows_from_file_to_file(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"_kind": "cti", "_vs": 5},
        {"_kind": "insert", "_vs": 3, "_ve": None, "k": "a"},
        {"_kind": "retract", "_vs": 3, "_ve": None, "_new_ve": 9, "k": "a"},
    ]
    for number, row in enumerate(rows):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    reader = open_stream(tmp_path, on_violation="adjust")
    found = [element for batch in reader for element in batch.to_elements()]
    assert found == [Cti(5), Insert(A, 5), Retract(A, 5, FOREVER, 9)]
    assert reader.counts == {ADJUSTED: 2}


def test_dropped_with_its_event_a_retraction_is_counted_and_kept_aside() -> None:
    session = rc.session(source("drop"))
    session.push("s", [*MOVED, Retract(A, 3, FOREVER, 9), Cti(20)])
    assert session.counts()["s"] == {LATE: 1, UNKNOWN: 1}
    result = session.read()
    dropped = [(reason, batch.to_elements()) for reason, batch in result.dropped["s"]]
    assert dropped == [(LATE, [Insert(A, 3)]), (UNKNOWN, [Retract(A, 3, FOREVER, 9)])]
    assert len(result.history()) == 0


@pytest.mark.parametrize("size", [1, 9])
def test_the_input_knows_an_event_by_a_retraction_that_came_too_late_to_show(size: int) -> None:
    """Its output does not change by it; a later retraction that does not know of it finds nothing."""
    came = [Insert(A, 0), Cti(5), Retract(A, 0, FOREVER, 5), Retract(A, 0, 5, 1), Retract(A, 0, 5, FOREVER)]
    session = rc.session(source())
    for start in range(0, len(came), size):
        session.push("s", came[start : start + size])
    assert session.history().to_events() == [Event(A, 0, 5)]
    assert session.counts()["s"] == {LATE: 1, UNKNOWN: 1}
