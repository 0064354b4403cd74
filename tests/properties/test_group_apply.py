"""A query applied to groups against the same query run on each group by hand, with all CTIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

Build = Callable[[Any], Any]

LATE: dict[str, Build] = {
    "finalize 1": lambda g: g.finalize(1),
    "WEAK sum": lambda g: g.agg(v=rc.sum("v")).consistency(rc.WEAK),
    "block 2, remember 3": lambda g: g.distinct().consistency(block=2, remember=3),
    "advance_time 1, drop": lambda g: g.advance_time(1),
    "advance_time after every other": lambda g: g.advance_time(0, events=2),
    "advance_time each 3, adjust": lambda g: g.advance_time(0, every=3, late="adjust"),
    "sum of advanced": lambda g: g.advance_time(1).agg(v=rc.sum("v")),
    "windows of advanced, cleansed": lambda g: (
        g.advance_time(2).tumbling(4, until=15).agg(n=rc.count()).cleanse()
    ),
    "advanced twice": lambda g: g.advance_time(3).where(rc.col("v") >= 0).advance_time(1),
    "beside the group itself": lambda g: g.advance_time(1).join(g, on="v", how="semi"),
    "merge of advanced": lambda g: rc.merge(g.advance_time(3), g.advance_time(3).align(1)),
    "align 2": lambda g: g.align(2),
    "cleanse": lambda g: g.cleanse(),
}


class Played:
    """A query fed step by step."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._session = self._fresh()
        self._shown = StreamModel()

    def _fresh(self) -> Any:
        return rc.session(self._build(rc.source("s", SCHEMA)))

    def feed(self, elements: list[Element]) -> None:
        self._session.push("s", elements)
        for element in self._session.read().elements():
            assert (fault := self._shown.fault(element)) is None, f"{element} {fault}"
            self._shown.take(element)

    def restore_twin(self) -> None:
        chunks = self._session.snapshot()
        self._session = self._fresh()
        self._session.restore(chunks)

    @property
    def cti(self) -> int:
        return self._shown.cti

    def events(self) -> list[Event]:
        return self._shown.events()

    def dropped(self) -> int:
        return sum(m.dropped for m in self._session.metrics())


class ByHand:
    """A session for every group, and one that sees CTIs only."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._unseen = Played(build)
        self._groups: dict[Any, Played] = {}
        self._ctis: list[Element] = []

    def feed(self, elements: list[Element]) -> None:
        own: dict[Any, list[Element]] = {}
        for element in elements:
            if isinstance(element, Insert | Retract):
                own.setdefault(element.payload["k"], []).append(element)
        for key, share in own.items():
            if key not in self._groups:
                self._groups[key] = Played(self._build)
                for cti in self._ctis:
                    self._groups[key].feed([cti])
            self._groups[key].feed(share)
        for cti in [element for element in elements if isinstance(element, Cti)]:
            self._ctis.append(cti)
            for played in [self._unseen, *self._groups.values()]:
                played.feed([cti])

    @property
    def cti(self) -> int:
        return min(played.cti for played in [self._unseen, *self._groups.values()])

    def events(self) -> list[Event]:
        return [
            Event({"k": key} | {n: v for n, v in event.payload.items() if n != "k"}, event.vs, event.ve)
            for key, played in self._groups.items()
            for event in played.events()
        ]

    def dropped(self) -> int:
        return sum(played.dropped() for played in self._groups.values())


def steps_of(batch: list[Element]) -> list[list[Element]]:
    """Changes and CTIs of a batch as steps of their own."""
    steps: list[list[Element]] = []
    for element in batch:
        if not steps or isinstance(element, Cti) or isinstance(steps[-1][-1], Cti):
            steps.append([])
        steps[-1].append(element)
    return steps


@pytest.mark.parametrize("name", LATE)
@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_group_is_as_if_there_were_no_other(name: str, data: st.DataObject) -> None:
    build = LATE[name]
    applied = Played(lambda s: s.group_by("k").apply(build))
    by_hand = ByHand(build)
    stream = data.draw(physical_streams(data.draw(histories(min_size=1))))
    for batch in data.draw(batchings(stream)):
        for step in steps_of(batch):
            applied.feed(step)
            by_hand.feed(step)
            assert_equivalent(applied.events(), by_hand.events())
            assert applied.cti == by_hand.cti
        if data.draw(st.booleans()):
            applied.restore_twin()
    assert applied.dropped() == by_hand.dropped()


@pytest.mark.parametrize("name", LATE)
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_comes_out_is_valid_however_it_is_cut(name: str, data: st.DataObject) -> None:
    applied = Played(lambda s: s.group_by("k").apply(LATE[name]))
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(min_size=1)))))):
        applied.feed(batch)
    assert applied.cti > BEGINNING
