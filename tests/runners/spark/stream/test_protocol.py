"""Whatever is killed between whichever two writes: no checkpoint is stuck, and no answer is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.runners.spark.stream.protocol import Protocol, Run
from tests.runners.spark.stream.rehearsal import Memory, Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.runners.spark.stream import chunks, pieces, processor
from recension.runners.spark.stream.codec import Store

S = rc.source("s", {"k": "int64", "x": "int64"})
QUERY = S.group_by("k").tumbling(10).agg(n=rc.count(), most=rc.max("x"), speculate="eager")
LAST = 3


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are cleaned and put together in every micro-batch: they are removed, too."""
    monkeypatch.setattr(pieces, "_FEW", 1)
    monkeypatch.setattr(pieces, "_MANY", 1)
    monkeypatch.setattr(pieces, "LINEAGE", 1)


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()


def _micro_batch(number: int) -> list[Element]:
    """Something new, something taken back, and time moves on."""
    fresh = [rc.Insert({"k": k, "x": number}, 10 * number + k, 10 * number + 15) for k in range(3)]
    before = 10 * (number - 1)
    taken = [rc.Retract({"k": 1, "x": number - 1}, before + 1, before + 15, before + 8)] if number else []
    return [*fresh, *taken, rc.Cti(before)]


def _run_of_query() -> Run:
    """Each micro-batch by the engine of one shard, loaded from the state that there is."""

    def run(store: Store, number: int, attempt: int) -> str:
        assert isinstance(store, Memory)
        processor._parked.clear()
        played = Rehearsal([QUERY.plan], 1)
        played.stores[1, 0] = store
        played._batch = number
        packets = played.turn({"s": [from_elements(_micro_batch(number), S.plan.schema)]})
        return json.dumps(sorted(map(str, played.output(packets).to_elements())))

    return run


def _write_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `TwoVersions`: a name is removed at once, and written by one version only."""

    class Once:
        def __init__(self, store: Store, *_: Any) -> None:
            self.get, self.put, self.remove = store.get, store.put, store.remove

        def settle(self) -> tuple[list[str], list[str]]:
            return [], []

    monkeypatch.setattr(chunks, "TwoVersions", Once)


def _name_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "digest", lambda _: uuid4().hex)


MANAGERS = pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "first one stays"])


@pytest.mark.slow
@MANAGERS
def test_no_world_that_can_be_reached_is_stuck_or_wrong(replaces: bool) -> None:
    model = Protocol(_run_of_query(), LAST, replaces=replaces)
    assert model.explore() is None
    assert model.visited > 10_000
    # All attempts at a micro-batch have written the same.
    assert model.states == LAST + 1


@pytest.mark.slow
def test_names_that_follow_from_the_content_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    _write_once(monkeypatch)
    assert Protocol(_run_of_query(), LAST).explore() is None


@pytest.mark.slow
def test_what_is_written_twice_is_found_even_if_attempts_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    _name_at_random(monkeypatch)
    model = Protocol(_run_of_query(), LAST)
    assert model.explore() is None
    assert model.states > LAST + 1


@MANAGERS
def test_with_random_names_that_are_written_once_the_model_finds_a_stuck_world(
    replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was. So the model sees what it is there to see."""
    _name_at_random(monkeypatch)
    _write_once(monkeypatch)
    found = Protocol(_run_of_query(), LAST, replaces=replaces).explore()
    assert found is not None
    assert "lacks its part" in found.reason
    assert sum(step == "start" for step in found.steps) == 3
