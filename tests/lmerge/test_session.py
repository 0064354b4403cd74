"""Merges in sessions: streams that join and leave, feedback, nesting, plans that are switched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension.core.events import Element
from recension.plan.merge import Merge
from recension.runners.local import Session
from recension.testing.assertions import assert_equivalent
from recension.testing.compatibility import Compatibility
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

KEYED = rc.Properties(has_key=True)
X, Y = {"p": "x"}, {"p": "y"}


def sources(*names: str, properties: rc.Properties | None = None) -> list[rc.Stream]:
    return [rc.source(name, {"p": "string"}, properties=properties) for name in names]


def said(live: Session) -> list[str]:
    return [str(e) for e in live.read().elements()]


def test_a_stream_joins_and_another_leaves() -> None:
    a, b, c = sources("a", "b", "c", properties=KEYED)
    live = rc.session(rc.merge(a, b))
    live.push("a", [rc.Insert(X, 1, 5), rc.Cti(3)])
    live.attach(c, from_time=4)
    assert live.sources == ["a", "b", "c"]
    live.push("c", [rc.Insert(X, 1, 6), rc.Insert(Y, 7, 9), rc.Cti(8)])
    assert said(live) == ["insert [1, 5) {'p': 'x'}", "cti 3", "insert [7, 9) {'p': 'y'}"]
    assert _states(live) == ["joined", "joined", "joining"]
    live.push("a", [rc.Retract(X, 1, 5, 6), rc.Cti(5)])
    # The output has reached 4: c has joined, and its stable counts.
    assert said(live) == ["retract [1, 5) -> 6 {'p': 'x'}", "cti 8"]
    live.detach(a)
    live.detach("b")
    assert _states(live) == ["leaving", "leaving", "joined"]
    assert live.sources == ["c"]
    live.push("c", [rc.Cti(rc.FOREVER)])
    assert said(live) == ["cti ∞"]
    assert _states(live) == ["left", "left", "joined"]
    with pytest.raises(rc.RecensionError, match="no source 'a'"):
        live.push("a", [rc.Cti(9)])
    with pytest.raises(rc.RecensionError, match="not an input of the merge now"):
        live.detach("a")


def _states(live: Session) -> list[str]:
    return next(m.inputs for m in live.metrics() if m.inputs)


def test_a_stream_that_was_restarted_may_repeat_itself() -> None:
    a, b = sources("a", "b", properties=KEYED)
    live = rc.session(rc.merge(a, b))
    told: list[Element] = [rc.Insert(X, 1, 5), rc.Cti(4), rc.Insert(Y, 6, 9)]
    live.push("a", told)
    live.detach("a")
    live.attach(a, from_time=0)
    live.push("a", [*told, rc.Cti(rc.FOREVER)])
    out = live.read()
    assert [str(e) for e in out.elements()] == [
        "insert [1, 5) {'p': 'x'}",
        "insert [6, 9) {'p': 'y'}",
        "cti 4",
        "cti ∞",
    ]


def test_a_session_goes_on_from_a_snapshot_with_those_that_have_joined() -> None:
    a, b, c = sources("a", "b", "c", properties=KEYED)

    def joined() -> Session:
        live = rc.session(rc.merge(a, b))
        live.attach(c, from_time=4)
        live.detach("b")
        return live

    live, again = joined(), joined()
    live.push("a", [rc.Insert(X, 1, 5), rc.Cti(4)])
    live.push("c", [rc.Insert(X, 1, 6)])
    again.restore(live.snapshot())
    live.read()
    for one in (live, again):
        one.push("c", [rc.Insert(Y, 7, 9), rc.Cti(rc.FOREVER)])
        assert said(one) == ["insert [7, 9) {'p': 'y'}", "retract [1, 5) -> 6 {'p': 'x'}", "cti ∞"]
        assert _states(one) == ["joined", "left", "joined"]
    with pytest.raises(rc.RecensionError, match="another query"):
        rc.session(rc.merge(a, b)).restore(live.snapshot())


def test_joined_streams_that_all_leave_halt_the_output() -> None:
    a, b = sources("a", "b", properties=KEYED)
    live = rc.session(rc.merge(a))
    live.attach(b, from_time=10)
    live.push("a", [rc.Cti(5)])
    live.detach(a)
    live.push("b", [rc.Cti(20)])
    assert said(live) == ["cti 5"]
    assert [m.is_halted for m in live.metrics() if m.inputs] == [True]


def test_what_joins_must_have_the_columns() -> None:
    (a,) = sources("a")
    live = rc.session(rc.merge(a))
    with pytest.raises(rc.SchemaError, match="attach: "):
        live.attach(rc.source("b", {"q": "string"}))
    with pytest.raises(rc.RecensionError, match="there is no merge"):
        rc.session(a).attach(a)


def test_what_has_joined_does_not_join_again() -> None:
    a, c = sources("a", "c", properties=KEYED)
    live = rc.session(rc.merge(a))
    live.attach(c, from_time=4)
    for stream in (a, c):
        with pytest.raises(rc.RecensionError, match=r"attach: source [ac] is an input of the merge already"):
            live.attach(stream, from_time=4)
    assert live.states() == ["joined", "joining"]
    live.detach(c)
    live.attach(c, from_time=4)
    assert live.sources == ["a", "c"]


def test_a_query_is_cut_over_to_another_plan_of_it() -> None:
    """Old and new plan read one source; the reader of the merge sees neither a repeat nor a gap."""
    s = rc.source("s", {"p": "string", "v": "int64"})
    old = s.where(rc.col("v") > 0).select("p")
    new = s.select("p", "v").where(rc.col("v") >= 1).select("p")
    live = rc.session(rc.merge(old, case="R4"))
    live.push("s", [rc.Insert({"p": "x", "v": 1}, 1, 5), rc.Cti(2)])
    live.attach(new, from_time=6)
    live.push("s", [rc.Insert({"p": "y", "v": 2}, 3, 8), rc.Cti(7)])
    live.detach(old)
    live.push(
        "s", [rc.Insert({"p": "z", "v": 3}, 7, 9), rc.Insert({"p": "z", "v": 0}, 7, 9), rc.Cti(rc.FOREVER)]
    )
    assert said(live) == [
        "insert [1, 5) {'p': 'x'}",
        "cti 2",
        "insert [3, 8) {'p': 'y'}",
        "cti 7",
        "insert [7, 9) {'p': 'z'}",
        "cti ∞",
    ]


def test_feedback_spares_slow_plans_what_is_settled() -> None:
    seen: list[int] = []

    def costly(row: dict[str, int]) -> dict[str, int]:
        seen.append(row["v"])
        return row

    known = rc.Properties(is_insert_only=True)
    fast, slow = (rc.source(name, {"v": "int64"}, properties=known) for name in ("fast", "slow"))
    events: list[Element] = [rc.Insert({"v": v}, v, v + 2) for v in range(10)]
    for feedback in (False, True):
        seen.clear()
        plan = slow.map(costly, {"v": "int64"}, per_row=True)
        live = rc.session(rc.merge(fast, plan, case="R3", feedback=feedback))
        live.push("fast", [*events, rc.Cti(8)])
        live.push("slow", [*events, rc.Cti(rc.FOREVER)])
        assert_equivalent(
            live.read().history().to_events(), [rc.Event({"v": v}, v, v + 2) for v in range(10)]
        )
        assert seen == (list(range(6, 10)) if feedback else list(range(10)))
    assert max(m.skipped for m in live.metrics()) == 6


def test_what_another_reader_wants_is_not_spared() -> None:
    known = rc.Properties(is_insert_only=True, has_key=True)
    fast, slow = sources("fast", "slow", properties=known)
    doubled = slow.where(rc.col("p") != "")
    live = rc.session(out=rc.merge(fast, doubled, feedback=True), also=doubled, all=slow)
    live.push("fast", [rc.Insert(X, 1, 3), rc.Cti(9)])
    live.push("slow", [rc.Insert(X, 1, 3), rc.Cti(9)])
    assert len(live.read("also").history()) == len(live.read("all").history()) == 1


def test_feedback_purges_the_state_of_a_join() -> None:
    known = rc.Properties(is_insert_only=True, has_key=True)
    fast, left, right = sources("fast", "left", "right", properties=known)
    query = rc.merge(fast, left.join(right, on="p"), feedback=True, case="R3")
    live = rc.session(query)
    live.push("left", [rc.Insert(X, 1, 4), rc.Insert(Y, 1, 9)])
    live.push("fast", [rc.Insert(X, 1, 4), rc.Insert(Y, 1, 8), rc.Cti(6)])
    join = next(m for m in live.metrics() if "join" in m.name)
    assert join.state_rows == 1
    live.push("right", [rc.Insert(X, 0, 5), rc.Insert(Y, 0, 8), rc.Cti(rc.FOREVER)])
    live.push("left", [rc.Cti(rc.FOREVER)])
    assert_equivalent(live.read().history().to_events(), [rc.Event(X, 1, 4), rc.Event(Y, 1, 8)])
    assert sum(m.skipped for m in live.metrics()) == 1


PLANS: dict[str, Callable[[rc.Stream, rc.Stream], rc.Stream]] = {
    "span": lambda s, t: s.where(rc.col("v") > -1).with_columns(w=rc.col("v") + 1).select("k", "v"),
    "shift": lambda s, t: s.shift(2),
    "set_duration": lambda s, t: s.set_duration(3),
    "extend": lambda s, t: s.extend(2).extend(-1),
    "to_points": lambda s, t: s.to_points(),
    "inserts": lambda s, t: s.inserts(),
    "hop_lifetime": lambda s, t: s.hop_lifetime(4, 2),
    "clip": lambda s, t: s.clip(by=t, on="k"),
    "union": lambda s, t: s.union(t),
    "join": lambda s, t: s.join(t, on="k").select("k", "v"),
    "semi": lambda s, t: s.join(t, on="k", how="semi"),
    "anti": lambda s, t: s.join(t, on="k", how="anti"),
    "left": lambda s, t: s.join(t, on="k", how="left").select("k", "v"),
    "distinct": lambda s, t: s.distinct(),
    "agg": lambda s, t: s.group_by("k").agg(v=rc.sum("v")),
    "window": lambda s, t: s.group_by("k").tumbling(3, until=30).agg(v=rc.count()),
    "cleanse": lambda s, t: s.cleanse(),
    "align": lambda s, t: s.align(2),
    "nested": lambda s, t: rc.merge(
        s, s.where(rc.col("v") == rc.col("v") + 0).union(s.where(rc.col("v").is_null())), case="R4"
    ),
}


@pytest.mark.parametrize("plan", PLANS)
@given(st.data())
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_with_feedback_the_merge_is_what_it_would_be(plan: str, data: st.DataObject) -> None:
    """Two replicas of a plan, each over its own telling of the same two histories."""
    known = data.draw(
        st.sampled_from(
            [rc.Properties(), rc.Properties(is_insert_only=True), rc.Properties(is_shrink_only=True)]
        )
    )
    shape = {"insert_only": known.is_insert_only, "shrink_only": known.is_shrink_only}
    tables = [data.draw(histories(min_size=1, max_size=4)) for _ in range(2)]
    batches = {}
    for replica in ("a", "b"):
        for name, table in zip("st", tables, strict=True):
            stream = data.draw(physical_streams(table, **shape))
            batches[f"{replica}{name}"] = data.draw(batchings(stream))
    turns = data.draw(st.permutations([name for name, parts in batches.items() for _ in parts]))
    outputs = []
    for feedback in (True, False):
        feeds = {name: rc.source(name, SCHEMA, properties=known) for name in batches}
        replicas = [PLANS[plan](feeds[f"{one}s"], feeds[f"{one}t"]) for one in ("a", "b")]
        # Cleansed streams allow the case R1.
        query = rc.merge(*replicas, case="auto" if plan == "cleanse" else "R4", feedback=feedback)
        live = rc.session(query)
        judge = Compatibility(0)
        left = {name: list(parts) for name, parts in batches.items()}
        for name in turns:
            part = left[name].pop(0)
            if name in live.sources:
                live.push(name, part)
            judge.take_output(live.read().elements())
        outputs.append(judge.history())
        assert judge.stable == rc.FOREVER
        assert not any(m.anomalies for m in live.metrics())
    assert_equivalent(outputs[0], outputs[1])


@given(st.data())
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_merge_of_merges_is_a_merge(data: st.DataObject) -> None:
    history = data.draw(histories())
    names = ["a", "b", "c", "d"]
    a, b, c, d = (rc.source(name, SCHEMA) for name in names)
    live = rc.session(rc.merge(rc.merge(a, b), rc.merge(c, d)))
    judge = Compatibility(4)
    streams = {name: data.draw(batchings(data.draw(physical_streams(history)))) for name in names}
    for name in data.draw(st.permutations([one for one in names for _ in streams[one]])):
        part = streams[name].pop(0)
        judge.take_input(names.index(name), part)
        live.push(name, part)
        judge.take_output(live.read().elements())
        judge.check()
    assert_equivalent(judge.history(), history)
    assert sum(m.state_rows for m in live.metrics()) == 0


def test_what_readers_do_not_want_is_left_out() -> None:
    known = rc.Properties(is_shrink_only=True)
    (s,) = sources("s", properties=known)
    live = rc.session(out=s.where(rc.col("p") != ""), same=s.where(rc.col("p") != ""), all=s)
    live.push("s", [rc.Insert(X, 1, 5), rc.Insert(Y, 1, 9)])
    for query in ("out", "same", "all"):
        live.read(query)
    live.hear(7, "out")
    live.push("s", [rc.Insert(X, 2, 6)])
    assert len(live.read("out").elements()) == 1, "what is computed once is for both its readers"
    live.hear(8, "same")
    live.push("s", [rc.Retract(X, 1, 5, 4), rc.Insert(X, 3, 7), rc.Retract(Y, 1, 9, 6), rc.Cti(3)])
    # The event that ends at 7 is wanted by one of the two, and so is the change of one that ended at 9.
    for query in ("out", "same"):
        found = [str(element) for element in live.read(query).elements()]
        assert found[-3:] == ["insert [3, 7) {'p': 'x'}", "retract [1, 9) -> 6 {'p': 'y'}", "cti 3"]
        assert "retract [1, 5) -> 4 {'p': 'x'}" not in found
    assert len(live.read("all").elements()) == 5


def test_an_open_merge_begins_with_nobody() -> None:
    (a,) = sources("a", properties=KEYED)
    everybody = rc.source("*", {"p": "string"}, properties=KEYED)
    live = Session({"query": Merge((everybody.plan,), is_open=True)})
    assert live.states() == []
    live.attach(a, from_time=0)
    live.push("a", [rc.Insert(X, 1, 5), rc.Cti(3)])
    assert said(live) == ["insert [1, 5) {'p': 'x'}"], "nobody can vouch for what was before 0"
    assert live.states() == ["joining"]


def test_a_restored_merge_knows_how_far_strictly_increasing_inputs_are() -> None:
    a, b = sources("a", "b", properties=rc.Properties(is_insert_only=True, is_strictly_increasing=True))
    live = rc.session(rc.merge(a, b))
    live.push("a", [rc.Insert(X, 1, 5)])
    again = rc.session(rc.merge(a, b))
    again.restore(live.snapshot())
    again.push("b", [rc.Insert(X, 1, 5), rc.Insert(Y, 2, 5)])
    assert said(again) == ["insert [2, 5) {'p': 'y'}"]
