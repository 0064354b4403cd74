"""Replicas of one history: physically different, logically equal, each a valid stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, concat
from recension.core.classes import classify
from recension.core.difference import equivalent
from recension.core.events import Cti, Insert, Retract
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.core.validity import Checker
from recension.testing import assert_equivalent, assert_valid
from recension.testing.generator import CASES, Case, SettingsError, StreamSettings, generate, replicas

FRACTIONS = st.sampled_from([0.0, 0.2, 1.0])


def whole(batches: Iterable[EventBatch]) -> EventBatch:
    return concat(list(batches))


def of_case(case: Case, **knobs: Any) -> StreamSettings:
    revised: dict[str, Any] = {"revisions": 0.4, "duration_spread": 0.3} if case in ("R3", "R4") else {}
    return StreamSettings.of(case, **revised | knobs)


@st.composite
def revised_settings(draw: st.DrawFn) -> StreamSettings:
    """Small revised streams, the extreme positions of the knobs included."""
    case: Case = draw(st.sampled_from(("R3", "R4")))
    return StreamSettings.of(
        case,
        size=draw(st.integers(1, 120)),
        stable_freq=draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])),
        event_duration=draw(st.sampled_from([1, 2, 30, 10_000])),
        duration_spread=draw(st.sampled_from([0.0, 1.0])),
        max_gap=draw(st.sampled_from([0, 1, 3, 100])),
        disorder=draw(FRACTIONS),
        ties=draw(FRACTIONS),
        duplicates=draw(FRACTIONS) if case == "R4" else 0.0,
        revisions=draw(FRACTIONS),
        reach=draw(st.sampled_from([1, 20, 500])),
        string_size=draw(st.sampled_from([2, 16])),
        seed=draw(st.integers(0, 9)),
        start=draw(st.sampled_from([0, -1000])),
    )


@given(revised_settings())
@settings(deadline=None)
def test_replicas_are_valid_and_equivalent(knobs: StreamSettings) -> None:
    first, *others = (whole(stream) for stream in replicas(knobs, 3))
    for stream in (first, *others):
        assert_valid(stream)
        assert knobs.case in classify([stream]).classes
        assert (stream.kind[-1], stream.vs[-1]) == (CTI, FOREVER)
    for other in others:
        assert_equivalent(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_replicas_of_each_case_over_many_batches(case: Case) -> None:
    streams = [list(stream) for stream in replicas(of_case(case, size=70_000), 3)]
    for batches in streams:
        assert len(batches) > 2
        checker = Checker()
        assert sum(len(checker.check(batch)) for batch in batches) == sum(map(len, batches))
        assert classify(batches).classes[0] == case
    first, *others = (reconstitute(batches, batches[0].schema) for batches in streams)
    for other in others:
        assert equivalent(first, other)


@pytest.mark.slow
def test_the_history_is_that_of_the_plain_stream() -> None:
    knobs: dict[str, Any] = {"size": 3_000, "disorder": 0.0}
    plain = whole(generate(StreamSettings.of("R4", **knobs)))
    for revised in replicas(StreamSettings.of("R4", revisions=0.7, **knobs), 2):
        assert_equivalent(plain, whole(revised))


@pytest.mark.slow
def test_fully_revised_replicas_share_no_row_but_the_closing_cti() -> None:
    streams = [
        {str(e) for e in whole(stream).to_elements()}
        for stream in replicas(StreamSettings.of(size=5_000, revisions=1.0), 4)
    ]
    for one, other in itertools.combinations(streams, 2):
        assert one & other == {str(Cti(FOREVER))}


def test_a_row_of_one_replica_is_hardly_ever_found_at_the_same_place_in_another() -> None:
    one, other = (whole(s).to_elements() for s in replicas(StreamSettings.of(size=5_000, revisions=0.2), 2))
    assert sum(a == b for a, b in zip(one, other, strict=False)) < 200


def test_in_order_replicas_differ_in_their_ctis_only() -> None:
    one, other = (whole(stream) for stream in replicas(StreamSettings.of("R1", size=5_000), 2))
    same = one.filter(one.kind == INSERT), other.filter(other.kind == INSERT)
    assert np.array_equal(same[0].vs, same[1].vs)
    assert same[0].payload.equals(same[1].payload)
    assert not np.array_equal(np.flatnonzero(one.kind == CTI), np.flatnonzero(other.kind == CTI))


def test_ties_of_r2_replicas_come_in_different_orders() -> None:
    one, other = (whole(s) for s in replicas(StreamSettings.of("R2", size=5_000, stable_freq=0.0), 2))
    assert np.array_equal(one.vs, other.vs)
    assert not one.payload.equals(other.payload)


def test_revisions_take_every_form() -> None:
    elements = whole(generate(StreamSettings.of(size=20_000, revisions=0.5))).to_elements()
    retractions = [e for e in elements if isinstance(e, Retract)]
    assert any(e.new_ve == e.vs for e in retractions)
    assert any(e.vs < e.new_ve < e.ve < FOREVER for e in retractions)
    assert any(e.ve < e.new_ve for e in retractions)
    assert any(e.ve == FOREVER for e in retractions)
    assert sum(isinstance(e, Insert) for e in elements) > 20_000


@pytest.mark.parametrize("revisions", [0.1, 0.6])
def test_revisions_is_the_fraction_of_events_that_are_revised(revisions: float) -> None:
    stream = whole(generate(StreamSettings.of(size=50_000, revisions=revisions)))
    retracted = stream.filter((stream.kind == RETRACT) & (stream.new_ve != stream.vs))
    texts = retracted.payload["text"].unique()
    assert np.isclose(len(texts) / 49_500, revisions, rtol=0.05)


@pytest.mark.parametrize("frequency", [0.01, 0.1])
def test_replicas_keep_the_frequency_of_ctis(frequency: float) -> None:
    for stream in replicas(of_case("R3", size=50_000, stable_freq=frequency), 2):
        assert np.isclose((whole(stream).kind == CTI).mean(), frequency, rtol=0.2)


def test_a_replica_can_be_left_open() -> None:
    stream = whole(generate(of_case("R3", size=1_000, close=False)))
    assert stream.vs.max() < FOREVER


def test_replicas_are_reproducible() -> None:
    for one, other in zip(*(replicas(of_case("R4", size=40_000), 2) for _ in range(2)), strict=True):
        first, second = whole(one), whole(other)
        assert np.array_equal(first.new_ve, second.new_ve)
        assert first.payload.equals(second.payload)


def test_there_is_at_least_one_replica() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        replicas(of_case("R3"), 0)
