"""The checker agrees with the plain walk: on any stream, for every policy, under any batching."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.late_by_element import LateByElement

from recension.core.batch import from_elements
from recension.core.change_log import tables_of
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, ExternalCti
from recension.core.rows import Origin
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import LATE, Checker, Policy
from recension.testing import assert_valid
from recension.testing.model import StreamModel, payload_key, reconstitute
from recension.testing.physical import HORIZON
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams, unruly_streams


def uniform(elements: list[Element]) -> list[Element]:
    """With every column in every payload, as a batch gives elements back."""
    return from_elements(elements, SCHEMA).to_elements()


def checked(checker: Checker, batches: list[list[Element]]) -> Iterator[Element]:
    first_row = 1
    for batch in batches:
        yield from checker.check(
            from_elements(batch, SCHEMA), origin=Origin(first_row=first_row)
        ).to_elements()
        first_row += len(batch)


def first_fault(elements: list[Element], orphans: bool) -> int | None:
    walk = StreamModel(orphans=orphans)
    for row, element in enumerate(elements, start=1):
        if walk.fault(element):
            return row
        walk.take(element)
    return None


def sifted(elements: list[Element], policy: Policy, orphans: bool) -> tuple[list[Element], list[Element]]:
    """What a policy keeps (perhaps altered) and what it rejects."""
    if policy == "adjust":
        return moved(elements, orphans)
    walk, kept, dropped = StreamModel(orphans=orphans), list[Element](), list[Element]()
    for element in elements:
        if walk.fault(element):
            dropped.append(element)
            continue
        if not isinstance(element, Cti) or element.t > walk.cti:
            kept.append(element)
        walk.take(element)
    return kept, dropped


def moved(elements: list[Element], orphans: bool) -> tuple[list[Element], list[Element]]:
    """What the stream tells, CTIs apart, is judged as it stands; then what came too late is moved.

    Of an event that ended before the CTI nobody asks whether it was there: its changes are late.
    """
    told, late, cti, dropped = (
        StreamModel(orphans=orphans),
        LateByElement(adjusts=True),
        BEGINNING,
        list[Element](),
    )
    for element in elements:
        if isinstance(element, Cti):
            if element.t > cti:
                cti = element.t
                late.output.append(element)
        elif (fault := told.fault(element)) and not ("not there" in fault and element.ve < cti):
            dropped.append(element)
        elif isinstance(element, ExternalCti):
            late.output.append(element)
        else:
            told.take(element)
            late.take(element, cti)
    return late.output, dropped + late.lost


@st.composite
def streams_with_ctis_too_early(draw: st.DrawFn) -> list[Element]:
    """Valid but for its CTIs, which break whatever comes after them: events and chains of their revisions."""
    rows = [Event({"v": n % 2}, e.vs, e.ve) for n, e in enumerate(draw(histories(SCHEMA, max_size=4)))]
    valid = draw(physical_streams(rows, schema=SCHEMA))
    stream: list[Element] = [e for e in valid if not isinstance(e, Cti)]
    for _ in range(draw(st.integers(0, 4))):
        stream.insert(draw(st.integers(0, len(stream))), Cti(draw(st.integers(0, HORIZON))))
    return stream


def lived(history: list[Event], t: int) -> list[str]:
    """What is true from ``t`` on."""
    return sorted(f"{max(e.vs, t)} {e.ve} {payload_key(e.payload)}" for e in history if e.ve > t)


@given(st.data())
def test_valid_streams_pass_unchanged(data: st.DataObject) -> None:
    stream = uniform(data.draw(physical_streams(data.draw(histories()), schema=SCHEMA)))
    assert list(checked(Checker(), data.draw(batchings(stream)))) == stream


@given(st.data(), st.booleans())
def test_raise_names_the_first_fault(data: st.DataObject, orphans: bool) -> None:
    stream = data.draw(unruly_streams())
    checker, batches = Checker("raise", orphans=orphans), data.draw(batchings(stream))
    row = first_fault(stream, orphans)
    if row is None:
        assert list(checked(checker, batches)) == sifted(uniform(stream), "raise", orphans)[0]
        return
    with pytest.raises(StreamError) as caught:
        list(checked(checker, batches))
    assert caught.value.row == row


@pytest.mark.parametrize("policy", ["drop", "adjust"])
def test_policies_keep_what_the_plain_walk_keeps(policy: Policy) -> None:
    @given(st.data(), st.booleans())
    def holds(data: st.DataObject, orphans: bool) -> None:
        stream = uniform(data.draw(unruly_streams() | streams_with_ctis_too_early()))
        checker = Checker(policy, orphans=orphans)
        kept, dropped = sifted(stream, policy, orphans)
        assert list(checked(checker, data.draw(batchings(stream)))) == kept
        found = [e for _, batch in checker.dropped for e in batch.to_elements()]
        assert sorted(map(str, found)) == sorted(map(str, dropped))
        assert_valid(kept, orphans=orphans)

    holds()


@given(st.data(), st.booleans())
def test_what_was_moved_is_followed_after_a_restore(data: st.DataObject, orphans: bool) -> None:
    stream = uniform(data.draw(streams_with_ctis_too_early()))
    checker, given_back = Checker("adjust", orphans=orphans), list[Element]()
    for batch in data.draw(batchings(stream)):
        given_back += checker.check(from_elements(batch, SCHEMA)).to_elements()
        if data.draw(st.booleans()):
            snapshot, checker = tables_of(checker.snapshot()), Checker("adjust", orphans=orphans)
            checker.restore(snapshot)
    assert given_back == moved(stream, orphans)[0]
    checker.check(from_elements([Cti(FOREVER)], SCHEMA))
    assert checker.state_rows() == 0


@given(st.data())
def test_adjusted_the_stream_is_true_from_the_last_cti_on(data: st.DataObject) -> None:
    """Unless something had ended before a CTI when it was told: nobody may say it any more."""
    stream = uniform(data.draw(streams_with_ctis_too_early()))
    checker = Checker("adjust")
    kept = list(checked(checker, data.draw(batchings(stream))))
    assert_valid(kept)
    if not checker.counts[LATE]:
        last = max([e.t for e in stream if isinstance(e, Cti)], default=BEGINNING)
        assert lived(reconstitute(kept), last) == lived(reconstitute(stream), last)


@pytest.mark.parametrize("policy", ["drop", "adjust"])
def test_every_element_is_accounted_for(policy: Policy) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        stream = data.draw(unruly_streams() | streams_with_ctis_too_early())
        checker = Checker(policy)
        kept = list(checked(checker, data.draw(batchings(stream))))
        stale = checker.counts["a cti that does not advance"]
        assert len(kept) + sum(len(batch) for _, batch in checker.dropped) + stale == len(stream)

    holds()
