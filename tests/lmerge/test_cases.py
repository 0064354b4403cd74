"""What breaks a case is named, or makes the merge fall back; which case is chosen; what is refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.play import Play
from tests.lmerge.scripts import SHAPES, examples

import recension as rc
from recension.core.errors import RecensionError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.denote import merge as merge_histories
from recension.operators.lmerge.choice import Fallback, make_merge
from recension.operators.lmerge.merge import CaseMismatchError
from recension.testing.assertions import assert_equivalent
from recension.testing.compatibility import Compatibility, image
from recension.testing.model import reconstitute
from recension.testing.strategies import SCHEMA, batchings, class_streams, histories, physical_streams

A, B = {"k": "a", "v": 0}, {"k": "b", "v": 0}

BREAKS: list[tuple[str, list[Element], str]] = [
    ("R0", [Insert(A, 2, 5), Insert(B, 2, 5)], r"at or before.*insert \[2, 5\) \{'k': 'b'"),
    ("R0", [Insert(A, 2, 5), Retract(A, 2, 5, 3)], r"no retractions.*retract \[2, 5\) -> 3"),
    ("R1", [Insert(A, 2, 5), Insert(B, 1, 5)], r"starts before.*insert \[1, 5\)"),
    ("R2", [Insert(A, 2, 5), Insert(A, 2, 6)], r"end differently.*insert \[2, 6\)"),
    ("R3", [Insert(A, 2, 5), Insert(A, 2, 6)], r"with another end.*insert \[2, 6\)"),
    ("R3-", [Insert(A, 2, 5), Insert(A, 2, 6)], r"with another end.*insert \[2, 6\)"),
]


@pytest.mark.parametrize(("case", "elements", "reason"), BREAKS)
def test_an_element_that_breaks_the_case_is_named(case: str, elements: list[Element], reason: str) -> None:
    for size in (1, 2):
        play = Play(lambda ports: make_merge(case, SCHEMA, ports), 2)
        for start in range(0, 2 - size, size):
            play.feed(0, elements[start : start + size])
        with pytest.raises(CaseMismatchError, match=reason):
            play.feed(0, elements[2 - size :])


@pytest.mark.parametrize("case", ["R3", "R3-", "R2"])
def test_a_repeated_insert_is_no_news(case: str) -> None:
    play = Play(lambda ports: make_merge(case, SCHEMA, ports), 2)
    assert len(play.feed(0, [Insert(A, 2, 5)])) == 1
    assert play.feed(0, [Insert(A, 2, 5)]) == []
    assert play.feed(1, [Insert(A, 2, 5), Insert(A, 2, 5)]) == []


@st.composite
def revised(draw: st.DrawFn, history: list[Event], late: dict[int, int]) -> list[Element]:
    """In order, but some events, by their starts, are told with a wrong end first: R0 until the first."""
    told: list[Element] = []
    for element in draw(physical_streams(history, insert_only=True, ordered=True)):
        if isinstance(element, Insert) and element.ve < FOREVER and element.vs in late:
            wrong = element.ve + late[element.vs]
            change = Retract(element.payload, element.vs, wrong, element.ve)
            told += [Insert(element.payload, element.vs, wrong), change]
        else:
            told.append(element)
    return told


@pytest.mark.parametrize("case", ["R0", "R1", "R2", "R3"])
@given(st.data())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_merge_falls_back_to_a_more_general_case(case: str, data: st.DataObject) -> None:
    """What breaks R3 is always seen in time; what breaks the others is if all inputs break it alike.

    If not, one may have settled, or gone beyond, what another tells wrongly at first.
    """
    play = Play(lambda ports: make_merge(case, SCHEMA, ports, can_fall=True), 3)
    history = data.draw(histories(max_size=5, strict=case != "R3"))
    late = data.draw(st.dictionaries(st.integers(0, 9), st.sampled_from([1, 5])))
    told = physical_streams(history) if case == "R3" else revised(history, late)
    streams = [data.draw(batchings(data.draw(told))) for _ in range(3)]
    for port in data.draw(st.permutations([p for p, parts in enumerate(streams) for _ in parts])):
        play.feed(port, streams[port].pop(0))
        play.judge.check()
        if data.draw(st.booleans()):
            play.restore_twin()
    assert_equivalent(play.judge.history(), history)
    assert play.merge.state_rows() == 0


def test_a_fall_keeps_what_was_shown() -> None:
    play = Play(lambda ports: make_merge("R0", SCHEMA, ports, can_fall=True), 2)
    play.feed(0, [Insert(A, 1, 9), Insert(B, 3, 8), Cti(2)])
    play.feed(1, [Insert(A, 1, 9)])
    assert play.feed(1, [Insert(B, 3, 8), Retract(B, 3, 8, 5)]) == []
    assert isinstance(play.merge, Fallback)
    assert play.merge.has_fallen
    play.feed(0, [Retract(B, 3, 8, 5), Insert(A, 6, 7), Cti(FOREVER)])
    assert_equivalent(play.judge.history(), [Event(A, 1, 9), Event(B, 3, 5), Event(A, 6, 7)])


@pytest.mark.parametrize("case", ["R0", "R1", "R2"])
def test_a_fall_does_not_reopen_what_is_settled(case: str) -> None:
    """To a case in order the first word on an event is its last, and another input may settle it."""
    play = Play(lambda ports: make_merge(case, SCHEMA, ports, can_fall=True), 2)
    play.feed(0, [Insert(A, 0, 2)])
    play.feed(1, [Insert(A, 0, 1), Cti(FOREVER)])
    assert play.feed(0, [Retract(A, 0, 2, 1), Cti(FOREVER)]) == []
    assert_equivalent(play.judge.history(), [Event(A, 0, 2)])


@pytest.mark.parametrize("case", ["R2", "R3"])
def test_where_it_may_fall_a_repeat_is_a_second_event(case: str) -> None:
    for size in (1, 2):
        play = Play(lambda ports: make_merge(case, SCHEMA, ports, can_fall=True), 2)
        twice: list[Element] = [Insert(A, 2, 5), Insert(A, 2, 5)]
        for start in range(0, 2, size):
            play.feed(0, twice[start : start + size])
            play.restore_twin()
        play.feed(0, [Cti(FOREVER)])
        assert_equivalent(play.judge.history(), [Event(A, 2, 5), Event(A, 2, 5)])


def test_elements_that_one_input_lacks() -> None:
    """§V-C: R0 and R2 show what any input brings in time; R3 and R4 what the leading input has."""
    for case in ("R0", "R2"):
        play = Play(lambda ports, case=case: make_merge(case, SCHEMA, ports), 2)  # type: ignore[misc]
        play.feed(0, [Insert(A, 1, 9)])
        play.feed(1, [Insert(B, 3, 8), Cti(FOREVER)])
        assert_equivalent(play.judge.history(), [Event(A, 1, 9), Event(B, 3, 8)])
    for case in ("R3", "R3-", "R4"):
        play = Play(lambda ports, case=case: make_merge(case, SCHEMA, ports), 2)  # type: ignore[misc]
        play.feed(0, [Insert(A, 1, 9)])
        play.feed(1, [Insert(B, 3, 8), Cti(4)])
        assert_equivalent(play.judge.history(), [Event(B, 3, 8)])
        play.feed(0, [Cti(6)])
        # It lacks B, and it has A, which was taken back.
        assert play.merge.anomalies == (1 if case == "R3-" else 2)
        play.feed(1, [Cti(FOREVER)])
        assert_equivalent(play.judge.history(), [Event(B, 3, 8)])


def test_an_end_without_its_event_is_news_of_the_event() -> None:
    """A retraction whose insert was lost still tells where the event ends; a removal tells nothing."""
    play = Play(lambda ports: make_merge("R4", SCHEMA, ports), 2)
    play.feed(0, [Insert(A, 1, 9), Insert(B, 2, 9)])
    play.feed(1, [Retract(A, 1, 9, 7), Retract(A, 1, 7, 6), Retract(B, 2, 8, 2), Insert(B, 2, 9)])
    play.feed(1, [Cti(FOREVER)])
    assert_equivalent(play.judge.history(), [Event(A, 1, 6), Event(B, 2, 9)])
    assert play.merge.anomalies == 0


def test_choosing_a_case() -> None:
    def feed(name: str, **known: bool) -> rc.Stream:
        return rc.source(name, {"p": "string"}, properties=rc.Properties(**known))

    strict = [feed(name, is_strictly_increasing=True) for name in "ab"]
    assert "chosen: R0: insert-only, starts strictly increasing" in rc.merge(*strict).explain()
    assert rc.merge(*strict).properties.is_strictly_increasing
    assert "chosen: R3: (vs, payload) is a key, and only R3 has" in rc.merge(*strict, policy="hf").explain()
    assert "chosen: R4: (vs, payload) may not be a key" in rc.merge(feed("a"), feed("b")).explain()
    assert "chosen: R1: as the query says" in rc.merge(feed("a"), feed("b"), case="R1").explain()
    with pytest.raises(RecensionError, match="policy='ff' needs case R3, and this is R4"):
        rc.merge(feed("a"), feed("b"), policy="ff")
    with pytest.raises(RecensionError, match="lag=5 needs case R3, and this is R2"):
        rc.merge(feed("a"), feed("b"), case="R2", lag=5)
    with pytest.raises(RecensionError, match="policy is one of 'first'"):
        rc.merge(feed("a"), policy="last")  # type: ignore[arg-type]
    with pytest.raises(RecensionError, match="quorum is a part"):
        rc.merge(feed("a"), case="R3", policy="quorum", quorum=2)
    with pytest.raises(rc.SchemaError, match="merge: "):
        rc.merge(feed("a"), rc.source("b", {"q": "string"}))


def test_columns_may_come_in_another_order() -> None:
    a = rc.source("a", {"p": "string", "v": "int64"})
    b = rc.source("b", {"v": "int64", "p": "string"})
    live = rc.session(rc.merge(a, b))
    live.push("a", [Insert({"p": "x", "v": 1}, 1, 5)])
    live.push("b", [Insert({"p": "x", "v": 1}, 1, 5), Cti(FOREVER)])
    assert_equivalent(live.read().history().to_events(), [Event({"p": "x", "v": 1}, 1, 5)])


def test_cleanse_and_r1() -> None:
    """The paper's baseline (§VI-D) is a composition."""
    feeds = [rc.source(name, SCHEMA).cleanse() for name in "ab"]
    query = rc.merge(*feeds)
    assert "chosen: R1" in query.explain()
    elements: list[Element] = [Insert(B, 4, 6), Insert(A, 1, 9), Retract(A, 1, 9, 5), Cti(7)]
    live = rc.session(query)
    live.push("b", elements)
    live.push("a", [*elements, Cti(FOREVER)])
    assert [str(e)[:14] for e in live.read().elements()] == [
        "insert [1, 5) ",
        "insert [4, 6) ",
        "cti 7",
        "cti ∞",
    ]


@pytest.mark.parametrize("name", ["R0", "R1", "R2", "R3", "R4"])
@given(st.data())
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_output_is_of_the_case_of_its_inputs(name: str, data: st.DataObject) -> None:
    stream = data.draw(class_streams(name))  # type: ignore[arg-type]
    play = Play(lambda ports: make_merge(name, SCHEMA, ports), 2)
    for part in data.draw(batchings(stream)):
        play.feed(data.draw(st.sampled_from([0, 0, 0])), part)
    assert_equivalent(play.judge.history(), merge_histories(reconstitute(stream), reconstitute(stream)))
    assert SHAPES[name].get("insert_only", False) <= (not any(isinstance(e, Retract) for e in play.output))


def test_the_papers_outputs_are_judged_right() -> None:
    """O1 and O2 are compatible with I1 and I2, O3 is not (technical report, §III-D; ruling LMerge §10)."""

    def told(t: int, **events: tuple[int, int]) -> list[Element]:
        return [*(Insert({"p": name}, vs, ve) for name, (vs, ve) in events.items()), Cti(t)]

    one = told(14, A=(2, 16), B=(3, 10), C=(4, 18), D=(15, 20))
    two = told(11, A=(2, 12), B=(3, 10), C=(4, 18), E=(17, 21))
    fits = {
        "O1": (told(11, A=(2, FOREVER), B=(3, 10), C=(4, FOREVER)), True),
        "O2": (told(14, A=(2, 16), B=(3, 10), C=(4, 18), D=(15, 20), E=(17, 21)), True),
        "O3": (told(13, A=(2, 12), C=(4, 18), D=(15, 20)), False),
        "ahead of all": (told(15, A=(2, 16), B=(3, 10), C=(4, 18), D=(15, 20)), False),
    }
    for output, is_compatible in fits.values():
        judge = Compatibility(2)
        judge.take_input(0, one)
        judge.take_input(1, two)
        judge.take_output(output)
        if is_compatible:
            judge.check()
        else:
            with pytest.raises(AssertionError):
                judge.check()
    assert image([Event(A, 1, 5), Event(A, 3, 9)], 6, since=6).total() == 1


def play_joining(*since: int) -> Play:
    """One input that tells an end, and others that join when the output has come to these times."""
    play = Play(lambda ports: make_merge("R3", SCHEMA, ports), 1)
    for t in since:
        play.attach(t)
    assert play.feed(0, [Insert(A, 5, 12)]) == [Insert(A, 5, 12)]
    return play


def test_of_inputs_that_join_together_the_first_leads() -> None:
    play = play_joining(10, 10)
    play.feed(1, [Insert(A, 5, 40), Cti(20)])
    play.feed(2, [Insert(A, 5, 30), Cti(20)])
    assert play.feed(0, [Cti(10)]) == [Retract(A, 5, 12, 40), Cti(20)]


def test_a_stable_that_lets_several_join_one_by_one_adjusts_once() -> None:
    """Ruling 38: what the second says of an event is not shown before what the third says of it."""
    play = play_joining(10, 15)
    play.feed(1, [Insert(A, 5, 25), Cti(20)])
    play.feed(2, [Insert(A, 5, 50), Cti(30)])
    assert play.feed(0, [Cti(10)]) == [Retract(A, 5, 12, 50), Cti(30)]
