"""Finalize: the history of the input from any arrival, unless the memory is too short."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.finalize_by_element import FinalizeByElement

import recension as rc
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.finalize import Finalize
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import reconstitute
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

WIDE = 1000


def sync(e: Element) -> int:
    assert isinstance(e, Insert | Retract)
    return min(e.ve, e.new_ve) if isinstance(e, Retract) else e.vs


def driver(remember: int = FOREVER) -> Driver:
    return Driver(lambda: Finalize(SCHEMA, remember), SCHEMA)


@st.composite
def feeds(draw: st.DrawFn) -> tuple[list[Element], list[Element]]:
    """A stream of changes without CTIs, and the same in any order with external CTIs over its whole time."""
    stream = draw(physical_streams(draw(histories()), shrink_only=True))
    changes: list[Element] = [e for e in stream if not isinstance(e, Cti)]
    cuts = [0, *sorted(draw(st.sets(st.integers(1, 30), max_size=4))), WIDE]
    counts = [sum(a <= sync(e) < b for e in changes) for a, b in pairwise(cuts)]
    external = [ExternalCti(a, b, n) for (a, b), n in zip(pairwise(cuts), counts, strict=True)]
    return changes, draw(st.permutations([*changes, *external]))


@given(st.data())
def test_any_arrival_gives_the_history_and_a_valid_stream(data: st.DataObject) -> None:
    changes, feed = data.draw(feeds())
    drive = driver()
    for batch in data.draw(batchings(feed)):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert_equivalent(drive.history(), reconstitute(changes))
    assert drive.cti == WIDE
    assert not drive.operator.counts()
    drive.feed([Cti(FOREVER)])
    assert drive.operator.state_rows() == 0


@given(st.data())
def test_a_valid_stream_passes_unchanged(data: st.DataObject) -> None:
    """Lengthening too, and its own CTIs."""
    drive = driver()
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), drive.input_history())
        assert drive.cti == drive.input_cti()
    assert drive.operator.state_rows() == 0


@given(st.data(), st.integers(0, 6))
def test_exactly_what_comes_too_late_is_missing(data: st.DataObject, remember: int) -> None:
    inserts = [Insert(e.payload, e.vs, e.ve) for e in data.draw(histories())]
    latest, in_time = BEGINNING, list[Element]()
    for insert in inserts:
        if insert.vs >= latest - remember:
            in_time.append(insert)
        latest = max(latest, insert.vs)
    drive = driver(remember)
    for batch in data.draw(batchings(inserts)):
        drive.feed(batch)
    assert_equivalent(drive.history(), reconstitute(in_time))
    assert drive.operator.counts().total() == len(inserts) - len(in_time)


@given(st.data(), st.integers(0, 6))
def test_with_a_short_memory_all_elements_come_out_or_are_counted(data: st.DataObject, remember: int) -> None:
    """The output is the history of what was not left out."""
    changes, feed = data.draw(feeds())
    drive = driver(remember)
    for batch in data.draw(batchings(feed)):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    drive.feed([Cti(FOREVER)])
    operator = drive.operator
    dropped = Counter(str(e) for _, batch in operator.take_dropped() for e in batch.to_elements())
    assert dropped.total() == operator.counts().total()
    kept = [e for e in changes if not dropped[str(e)] or dropped.subtract([str(e)])]
    assert dropped.total() == 0
    assert_equivalent(drive.history(), net(kept))


def net(changes: list[Element]) -> list[Event]:
    """The history of changes in any order; which of several equal ones was left out does not matter."""
    left: Counter[tuple[str, int, int]] = Counter()
    payloads = {str(e.payload): e.payload for e in changes if isinstance(e, Insert | Retract)}
    for e in changes:
        assert isinstance(e, Insert | Retract)
        left[str(e.payload), e.vs, e.ve] += 1 if isinstance(e, Insert) else -1
        if isinstance(e, Retract) and e.new_ve > e.vs:
            left[str(e.payload), e.vs, e.new_ve] += 1
    assert min(left.values(), default=0) >= 0
    return [Event(payloads[payload], vs, ve) for payload, vs, ve in left.elements()]


@st.composite
def doubtful_feeds(draw: st.DrawFn) -> list[Element]:
    """Feeds with external CTIs that may count wrongly, CTIs that may come too early, and lost elements."""
    _, feed = draw(feeds())
    wrong = draw(st.sampled_from([0, 0, 1, -1]))
    for i, e in enumerate(feed):
        if isinstance(e, ExternalCti):
            feed[i] = ExternalCti(e.vs, e.ve, max(0, e.count + wrong))
    lost = draw(st.sets(st.integers(0, len(feed)), max_size=2))
    feed = [e for i, e in enumerate(feed) if i not in lost]
    for overlapping in draw(st.lists(overlaps(feed), max_size=3)):
        feed.insert(draw(st.integers(0, len(feed))), overlapping)
    if draw(st.booleans()):
        feed.insert(draw(st.integers(0, len(feed))), Cti(draw(st.integers(0, 12))))
    return feed


@st.composite
def overlaps(draw: st.DrawFn, feed: list[Element]) -> ExternalCti:
    """An external CTI over any time, which the paper forbids, with the right count or nearly."""
    vs = draw(st.integers(0, 12))
    ve = draw(st.integers(vs + 1, 14) | st.just(WIDE))
    counted = sum(vs <= sync(e) < ve for e in feed if isinstance(e, Insert | Retract))
    return ExternalCti(vs, ve, max(0, counted + draw(st.sampled_from([0, 0, 0, 1, -1]))))


@given(st.data(), st.sampled_from([FOREVER, FOREVER, 0, 2, 6]))
def test_as_an_element_at_a_time(data: st.DataObject, remember: int) -> None:
    """Whatever comes, and in whatever batches: the same output, the same CTI, the same left out."""
    drive, reference = driver(remember), FinalizeByElement(remember)
    for batch in data.draw(batchings(data.draw(doubtful_feeds()))):
        drive.feed(batch)
        for element in sorted(batch, key=lambda e: isinstance(e, Cti)):
            reference.take(element)
        assert drive.cti == reference.last
        assert [str(e) for e in drive.output if not isinstance(e, Cti)] == [
            str(e) for e in reference.output if not isinstance(e, Cti)
        ]
        if data.draw(st.booleans()):
            drive.restore_twin()
    dropped = [e for _, batch in drive.operator.take_dropped() for e in batch.to_elements()]
    assert Counter(map(str, dropped)) == Counter(map(str, reference.dropped))


@pytest.mark.parametrize("cut", range(16))
def test_external_ctis_that_overlap_are_asked_one_after_the_other_in_any_batches(cut: int) -> None:
    """The first interval is wrong, and is asked first only until a better one for the same time has come."""
    feed: list[Element] = [
        ExternalCti(0, 1, 1),
        ExternalCti(0, 1, 0),
        ExternalCti(1, 20, 1),
        Insert({"k": "a", "v": 1}, 3, 9),
        ExternalCti(20, WIDE, 0),
    ]
    drive = driver()
    batches: list[list[Element]] = [[]]
    for i, element in enumerate(feed):
        batches[-1].append(element)
        if cut >> i & 1:
            batches.append([])
    for batch in batches:
        drive.feed(batch)
    assert drive.cti == WIDE


@pytest.mark.slow
def test_an_interval_with_a_far_end_does_not_keep_the_past() -> None:
    """Nor do those that age has closed behind it; and its count comes out right all the same."""
    drive = driver(remember=10)
    drive.feed([ExternalCti(0, 10**9, 601)])
    for n in range(300):
        insert = Insert({"k": "a", "v": 1}, 2 * n, 2 * n + 1)
        drive.feed([ExternalCti(2 * n, 2 * n + 2, 7), insert, insert])
        if n % 100 == 99:
            assert drive.operator.state_rows() <= 100
            assert drive.operator.state_bytes() <= 30_000
            drive.restore_twin()
    assert drive.cti == 598 - 10
    drive.feed([Insert({"k": "a", "v": 1}, 0, 1)])
    assert drive.operator.counts().total() == 1
    assert drive.cti == 10**9


def test_late_events_are_counted_and_kept_aside() -> None:
    session = rc.session(rc.source("s", {"x": "int64"}).finalize(3))
    session.push("s", [Insert({"x": x}, x, 20) for x in (5, 9, 2)])
    metrics = session.metrics()[-1]
    assert metrics.dropped == 1
    [(_, batch)] = session.read().dropped[metrics.name]
    assert batch.to_elements() == [Insert({"x": 2}, 2, 20)]
