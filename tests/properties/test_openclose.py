"""Open and close: the columnar translation agrees with the plain one, under any batching."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.transcripts.reconstitution import written_batch

from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.rows import Origin
from recension.core.ticks import BEGINNING, FOREVER
from recension.gate import open_close
from recension.testing.model import Close, Open, OpenClose, Written, payload_key
from recension.testing.strategies import SCHEMA


def feeds() -> SearchStrategy[list[list[Written]]]:
    """Batches of opens, closes and a few CTIs over two payloads, both opened before all else."""
    time, payload = st.integers(0, 8), st.sampled_from([{"k": "a", "v": 1}, {"k": None, "v": 1}])
    close = st.builds(Close, payload, time)
    opening, cti = st.builds(Open, payload, time), st.builds(Cti, st.integers(0, 3))
    item: SearchStrategy[Written] = st.one_of(close, close, close, opening, cti)
    first: list[Written] = [Open({"k": "a", "v": 1}, 0), Open({"k": None, "v": 1}, 1)]
    return st.lists(st.lists(item, max_size=6), max_size=5).map(lambda batches: [first, *batches])


def plain(batches: list[list[Written]]) -> tuple[list[Element], int | None]:
    """The elements meant, and the row of the first fault."""
    feed, meant = OpenClose(), list[Element]()
    for row, item in enumerate((item for batch in batches for item in batch), start=1):
        try:
            meant.append(feed.translate(item))
        except StreamError:
            return meant, row
    return meant, None


def columnar(batches: list[list[Written]]) -> tuple[list[Element], int | None]:
    """The same by the core; the batch that holds a fault gives nothing."""
    feed, found, row = open_close.OpenClose(), list[Element](), 1
    for batch in batches:
        try:
            found += feed.translate(written_batch(batch, SCHEMA), origin=Origin(first_row=row)).to_elements()
        except StreamError as why:
            return found, why.row
        row += len(batch)
    return found, None


@given(feeds())
def test_translation_agrees_with_the_plain_one(batches: list[list[Written]]) -> None:
    meant, faulty = plain(batches)
    found, row = columnar(batches)
    assert row == faulty
    assert found == (meant if faulty is None else meant[: len(found)])


class EachItsOwn:
    """Each close ends another event: that opened last of those that are open. Faults are left out."""

    def __init__(self) -> None:
        self._open: dict[Any, list[int]] = {}
        self._cti = BEGINNING

    def translate(self, item: Written) -> Element | None:
        match item:
            case Cti(t):
                self._cti = max(self._cti, t)
                return item
            case Open(payload, vs) if vs >= self._cti:
                self._open.setdefault(payload_key(payload), []).append(vs)
                return Insert(payload, vs)
            case Close(payload, ve):
                starts = self._open.get(payload_key(payload))
                if starts and max(starts[-1], self._cti) <= ve:
                    return Retract(payload, starts.pop(), FOREVER, ve)
        return None


@given(feeds(), st.booleans())
def test_each_of_equal_events_has_its_own_close(batches: list[list[Written]], restores: bool) -> None:
    plain, feed = EachItsOwn(), open_close.OpenClose("drop", once=True)
    for batch in batches:
        meant = [element for item in batch if (element := plain.translate(item)) is not None]
        found = feed.translate(written_batch(batch, SCHEMA)).to_elements()
        assert found == meant
        if restores:
            state, feed = feed.snapshot(), open_close.OpenClose("drop", once=True)
            feed.restore(state)
