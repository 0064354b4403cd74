"""Windows over events whose ends go to the end of time and come back: the history is the same in any batches.

The other random plans need ``until=`` wherever an event may never end, which leaves no window without an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension import denote
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.modules import Seen, Total

S = rc.source("s", {"k": "string", "v": "int64"})
GRIDS = [(5, 5, 0), (6, 2, 0), (2, 5, 0), (5, 3, 1), (1, 1, 0)]
ASKED: dict[str, Callable[[Any], Any]] = {
    "sums": lambda windows: windows.agg(n=rc.count(), v=rc.sum("v"), speculate="eager"),
    "extremes": lambda windows: windows.agg(n=rc.max("v"), v=rc.first("v"), speculate="eager"),
    "module": lambda windows: windows.agg(n=Total(v=rc.col("v")), speculate="eager"),
    "events": lambda windows: windows.apply(Seen(v=rc.col("v")), speculate="eager"),
    "weights": lambda windows: windows.agg(n=rc.time_weighted_mean("v"), speculate="eager"),
}


@st.composite
def revised_streams(draw: st.DrawFn) -> list[Element]:
    """Events that come, end sooner, later or never, and go; now and then a CTI."""
    stream, live, cti = list[Element](), list[Event](), 0
    for _ in range(draw(st.integers(3, 10))):
        movable = [event for event in live if event.ve >= cti]
        turn = draw(st.sampled_from(["come", "come", "come", "move", "move", "move", "cti"]))
        if turn == "cti":
            cti = draw(st.integers(cti, cti + 2))
            stream.append(Cti(cti))
        elif turn == "come" or not movable:
            start = draw(st.integers(cti, cti + 8))
            end = draw(st.sampled_from([start + 5, start + 9, FOREVER]))
            payload = {"k": draw(st.sampled_from("ab")), "v": draw(st.integers(0, 2))}
            live.append(Event(payload, start, end))
            stream.append(Insert(payload, start, end))
        else:
            event = live.pop(live.index(draw(st.sampled_from(movable))))
            ends = [FOREVER, FOREVER, max(event.vs, cti), max(event.vs + 1, cti) + draw(st.integers(0, 9))]
            end = draw(st.sampled_from([end for end in ends if end != event.ve]))
            stream.append(Retract(event.payload, event.vs, event.ve, end))
            live += [Event(event.payload, event.vs, end)] if end > event.vs else []
    return stream


def _play(query: rc.Stream, stream: Sequence[Element], cuts: Sequence[int], revive_at: int) -> History:
    session = rc.session(query)
    bounds = [0, *cuts, len(stream)]
    for number, (low, high) in enumerate(pairwise(bounds)):
        if number == revive_at:
            chunks, session = session.snapshot(), rc.session(query)
            session.restore(chunks)
        session.push("s", list(stream[low:high]))
    return session.history()


def _ended(stream: Sequence[Element]) -> list[Element]:
    """The same with an end for every event, and closed."""
    model = StreamModel()
    for element in stream:
        model.take(element)
    endless = [event for event in model.events() if event.ve == FOREVER]
    last = max([model.cti, 20, *(event.vs + 1 for event in endless)])
    return [*stream, *(Retract(e.payload, e.vs, FOREVER, last) for e in endless), Cti(FOREVER)]


@pytest.mark.parametrize("asked", ASKED)
@given(st.data())
@settings(max_examples=examples(200))
def test_the_history_does_not_depend_on_the_batches(asked: str, data: st.DataObject) -> None:
    size, hop, offset = data.draw(st.sampled_from(GRIDS))
    stream = data.draw(revised_streams())
    events = S if data.draw(st.booleans()) else S.group_by("k")
    query = ASKED[asked](events.hopping(size, hop, offset=offset))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    for elements in (stream, _ended(stream)):
        each = range(1, len(elements))
        one_by_one = _play(query, elements, each, data.draw(st.integers(0, len(elements))))
        assert_equivalent(_play(query, elements, cuts, data.draw(st.integers(0, 5))), one_by_one)
        assert_equivalent(_play(query, elements, [], -1), one_by_one)


@given(st.data())
@settings(max_examples=examples(200))
def test_once_all_events_have_ended_the_history_is_the_denotation(data: st.DataObject) -> None:
    size, hop, offset = data.draw(st.sampled_from(GRIDS))
    elements = _ended(data.draw(revised_streams()))
    model = StreamModel()
    for element in elements:
        model.take(element)
    query = ASKED["sums"](S.hopping(size, hop, offset=offset))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(elements)), max_size=6)))
    rows = denote.agg(n=denote.count(), v=denote.sum("v"))
    meant = denote.window_aggregate(model.events(), denote.hopping(size, hop, offset), rows)
    assert_equivalent(_play(query, elements, cuts, data.draw(st.integers(0, 5))), meant)
