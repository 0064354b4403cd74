"""The checker agrees with the plain walk: on any stream, for every policy, under any batching."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.validity import Checker, Policy
from recension.testing import assert_valid
from recension.testing.disturbances import unruly_streams
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams
from recension.testing.walk import Walk


def uniform(elements: list[Element]) -> list[Element]:
    """With every column in every payload, as a batch gives elements back."""
    return from_elements(elements, SCHEMA).to_elements()


def checked(checker: Checker, batches: list[list[Element]]) -> Iterator[Element]:
    first_row = 1
    for batch in batches:
        yield from checker.check(from_elements(batch, SCHEMA), first_row=first_row).to_elements()
        first_row += len(batch)


def first_fault(elements: list[Element], orphans: bool) -> int | None:
    walk = Walk(orphans=orphans)
    for row, element in enumerate(elements, start=1):
        if walk.fault(element):
            return row
        walk.take(element)
    return None


def sifted(elements: list[Element], policy: Policy, orphans: bool) -> tuple[list[Element], list[Element]]:
    """What a policy keeps (perhaps altered) and what it rejects."""
    walk, kept, rejected = Walk(orphans=orphans), list[Element](), list[Element]()
    for element in elements:
        meant = _moved(element, walk) if policy == "adjust" else element
        if walk.fault(meant):
            rejected.append(element)
            continue
        if not isinstance(meant, Cti) or meant.t > walk.cti:
            kept.append(meant)
        walk.take(meant)
    return kept, rejected


def _moved(element: Element, walk: Walk) -> Element:
    """A late element with what lies before the CTI cut off, if anything is left after it."""
    if "earlier cti" not in (walk.fault(element) or ""):
        return element
    if isinstance(element, Insert) and element.ve > walk.cti:
        return replace(element, vs=walk.cti)
    if isinstance(element, Retract) and element.ve > walk.cti:
        return replace(element, new_ve=walk.cti)
    return element


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
        stream = uniform(data.draw(unruly_streams()))
        checker = Checker(policy, orphans=orphans)
        kept, rejected = sifted(stream, policy, orphans)
        assert list(checked(checker, data.draw(batchings(stream)))) == kept
        found = [e for _, batch in checker.rejected for e in batch.to_elements()]
        assert sorted(map(str, found)) == sorted(map(str, rejected))
        assert_valid(kept, orphans=orphans)

    holds()


@pytest.mark.parametrize("policy", ["drop", "adjust"])
def test_every_element_is_accounted_for(policy: Policy) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        stream = data.draw(unruly_streams())
        checker = Checker(policy)
        kept = list(checked(checker, data.draw(batchings(stream))))
        stale = checker.counts["a cti that does not advance"]
        assert len(kept) + sum(len(batch) for _, batch in checker.rejected) + stale == len(stream)

    holds()
