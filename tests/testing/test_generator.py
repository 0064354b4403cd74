"""The test-stream generator: its knobs, its classes, and that every stream it makes is valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recension.core.batch import CTI, INSERT, EventBatch, concat
from recension.core.classes import classify
from recension.core.events import Insert
from recension.core.ticks import FOREVER
from recension.testing import assert_valid
from recension.testing.generator import CASES, Case, SettingsError, StreamSettings, generate


def whole(batches: Iterable[EventBatch]) -> EventBatch:
    return concat(list(batches))


FRACTIONS = st.sampled_from([0.0, 0.1, 0.5, 1.0])


@st.composite
def any_settings(draw: st.DrawFn) -> StreamSettings:
    """Small streams with every knob turned, the extreme positions included."""
    chosen = draw(st.sampled_from(CASES))
    knobs: dict[str, Any] = {}
    if chosen in ("R3", "R4"):
        knobs |= {"disorder": draw(FRACTIONS), "ties": draw(FRACTIONS)}
    if chosen == "R4":
        knobs |= {"duplicates": draw(FRACTIONS)}
    return StreamSettings.of(
        chosen,
        size=draw(st.integers(1, 150)),
        stable_freq=draw(st.sampled_from([0.0, 0.02, 0.3, 0.7, 1.0])),
        event_duration=draw(st.sampled_from([1, 2, 30, 10_000])),
        duration_spread=draw(st.sampled_from([0.0, 0.5, 1.0])),
        max_gap=draw(st.sampled_from([1, 3, 100])),
        reach=draw(st.sampled_from([1, 20, 500])),
        string_size=draw(st.sampled_from([3, 8, 11, 16, 19])),
        seed=draw(st.integers(0, 9)),
        start=draw(st.sampled_from([0, -1000])),
        close=draw(st.booleans()),
        **knobs,
    )


@given(any_settings())
@settings(deadline=None)
def test_every_stream_is_valid_and_in_its_class(knobs: StreamSettings) -> None:
    stream = whole(generate(knobs))
    assert len(stream) == knobs.size
    assert_valid(stream)
    assert knobs.case in classify([stream]).classes
    assert ((stream.kind[-1], stream.vs[-1]) == (CTI, FOREVER)) == knobs.close


@pytest.mark.parametrize("case", CASES)
def test_the_class_asked_for_is_the_most_restricted_one_that_holds(case: Case) -> None:
    report = classify(generate(StreamSettings.of(case, size=5_000)))
    assert report.classes[0] == case
    assert report.is_closed
    assert report.is_ordered == (case in ("R0", "R1", "R2"))


@pytest.mark.parametrize("frequency", [0.001, 0.01, 0.2, 0.5])
def test_stable_freq_is_the_fraction_of_ctis(frequency: float) -> None:
    kind = whole(generate(StreamSettings.of(size=100_000, stable_freq=frequency))).kind
    assert np.isclose((kind == CTI).mean(), frequency, rtol=0.2)


def test_an_insert_stands_between_any_two_ctis() -> None:
    kind = whole(generate(StreamSettings.of(size=50_001, stable_freq=1.0))).kind
    assert not ((kind[1:] == CTI) & (kind[:-1] == CTI)).any()
    assert (kind == CTI).mean() > 0.49


def test_gaps_spread_evenly_up_to_max_gap() -> None:
    stream = whole(generate(StreamSettings.of(size=100_000, max_gap=1_000, disorder=0.0, close=False)))
    gaps = np.diff(stream.vs)
    assert (gaps.min(), gaps.max()) == (0, 1_000)
    assert np.isclose(gaps.mean(), 500, rtol=0.02)
    assert np.isclose((gaps < 250).mean(), 0.25, atol=0.01)


@pytest.mark.parametrize("disorder", [0.0, 0.2, 0.6])
def test_disorder_is_the_fraction_of_inserts_behind_an_earlier_one(disorder: float) -> None:
    stream = whole(generate(StreamSettings.of(size=100_000, disorder=disorder, stable_freq=0.001)))
    starts = stream.vs[stream.kind == INSERT]
    behind = starts[1:] < np.maximum.accumulate(starts)[:-1]
    assert np.isclose(behind.mean(), disorder, atol=0.02)


def test_disorder_gives_way_to_ctis() -> None:
    stream = whole(generate(StreamSettings.of(size=10_001, disorder=1.0, stable_freq=1.0)))
    starts = stream.vs[stream.kind == INSERT]
    assert (np.diff(starts) >= 0).all()


def test_disordered_inserts_lie_within_reach() -> None:
    stream = whole(
        generate(StreamSettings.of(size=20_000, disorder=0.5, stable_freq=0.0, reach=700, max_gap=9))
    )
    starts = stream.vs[stream.kind == INSERT]
    assert 0 < (np.maximum.accumulate(starts) - starts).max() <= 700


def test_lifetimes() -> None:
    stream = whole(generate(StreamSettings.of(size=10_000, event_duration=77)))
    assert set((stream.ve - stream.vs)[stream.kind == INSERT].tolist()) == {77}
    stream = whole(generate(StreamSettings.of(size=10_000, event_duration=100, duration_spread=0.5)))
    lifetimes = (stream.ve - stream.vs)[stream.kind == INSERT]
    assert (lifetimes.min(), lifetimes.max()) == (50, 150)


def test_by_default_some_ten_thousand_events_live_at_a_time() -> None:
    stream = whole(generate(StreamSettings.of(size=40_000)))
    middle = int(np.median(stream.vs))
    assert 9_000 < ((stream.vs <= middle) & (stream.ve > middle)).sum() < 11_000


def test_payloads_are_numbers_to_400_and_texts_of_the_given_size() -> None:
    stream = whole(generate(StreamSettings.of(size=50_000, string_size=19)))
    data = stream.filter(stream.kind == INSERT)
    values, texts = data.payload["value"], data.payload["text"]
    assert set(values.to_pylist()) == set(range(401))
    assert {len(text) for text in texts.to_pylist()} == {19}
    assert len(texts.unique()) == len(texts)
    data.payload.validate(full=True)
    ctis = stream.filter(stream.kind == CTI).payload
    assert [column.null_count for column in ctis.columns] == [ctis.num_rows] * 2


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17, 1000])
def test_texts_of_any_size(size: int) -> None:
    stream = whole(generate(StreamSettings.of("R4", size=300, string_size=size)))
    stream.payload.validate(full=True)
    assert {len(text) for text in stream.payload["text"].drop_null().to_pylist()} == {size}


def test_short_texts_do_not_repeat_before_they_must() -> None:
    stream = whole(generate(StreamSettings.of(size=4_096, string_size=3, stable_freq=0.0, close=False)))
    assert len(stream.payload["text"].unique()) == 4_096


def test_the_same_seed_gives_the_same_stream() -> None:
    first, second, other = (
        whole(generate(StreamSettings.of("R4", size=70_000, seed=seed, revisions=0.2))) for seed in (3, 3, 4)
    )
    for name in ("kind", "vs", "ve", "new_ve"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert first.payload.equals(second.payload)
    assert not np.array_equal(first.vs, other.vs)


@pytest.mark.slow
def test_duplicates_share_start_and_payload_and_half_of_them_the_end() -> None:
    stream = whole(generate(StreamSettings.of("R4", size=100_000, duplicates=0.3, stable_freq=0.001)))
    events = [e for e in stream.to_elements() if isinstance(e, Insert)]
    keys = Counter((e.vs, tuple(e.payload.values())) for e in events)
    full = Counter((e.vs, e.ve, tuple(e.payload.values())) for e in events)
    repeated = sum(n - 1 for n in keys.values()) / len(events)
    exact = sum(n - 1 for n in full.values()) / len(events)
    assert 0.15 < repeated <= 0.3
    assert 0.3 < exact / repeated < 0.7


def test_batches_are_bounded_whatever_the_text_size() -> None:
    sizes = [len(batch) for batch in generate(StreamSettings.of(size=60_000, string_size=2_000))]
    assert max(sizes) * 2_000 <= 2**24


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"case": "R5"}, "case is one of"),
        ({"case": "R0", "disorder": 0.1}, "case R0 has no disorder"),
        ({"case": "R2", "revisions": 0.1}, "case R2 has no revisions"),
        ({"case": "R3", "duplicates": 0.1}, "case R3 has no duplicates"),
        ({"case": "R0", "max_gap": 0}, "needs a max_gap of at least 1"),
        ({"size": 0}, "size must be at least 1"),
        ({"stable_freq": 1.5}, "stable_freq is a fraction"),
        ({"string_size": 2}, "need longer strings"),
        ({"max_gap": 2**60}, "past the end of time"),
    ],
)
def test_knobs_that_contradict_each_other_are_refused(knobs: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        StreamSettings.of(**knobs)
