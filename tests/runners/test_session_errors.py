"""A session after an error: what is refused changes nothing, and after an error in a step nothing goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import recension as rc
from recension.core.events import Element
from recension.runners.local import Session
from recension.testing.modules import Seen, Total

Query: TypeAlias = Callable[[rc.Stream], rc.Stream]

s = rc.source("s", {"k": "string", "v": "int64"})
P, Q = {"k": "a", "v": 1}, {"k": "b", "v": 2}
summed = s.group_by("k").agg(t=rc.sum("v"), speculate="eager")


def rows(*elements: Element | tuple[str, int | None, int | None], **options: Any) -> pa.Table:
    """Elements and opens and closes as a table."""
    found = []
    for element in elements:
        if isinstance(element, tuple):
            kind, vs, ve = element
            found.append({"_kind": kind, "_vs": vs, "_ve": ve, "_new_ve": None, **P})
        elif isinstance(element, rc.Cti):
            found.append({"_kind": "cti", "_vs": element.t})
        else:
            assert isinstance(element, rc.Insert)
            found.append({"_kind": "insert", "_vs": element.vs, "_ve": element.ve, **element.payload})
    times = [(name, pa.int64()) for name in ("_vs", "_ve", "_new_ve")]
    schema = pa.schema([("_kind", pa.string()), *times, *s.schema])
    return pa.Table.from_pylist(found, schema)


def told(session: Session) -> tuple[object, ...]:
    """Everything that can be seen of a session, and its state."""
    chunks = session.snapshot()
    state = {name: table.to_pydict() for name, table in chunks.items()}
    seen = session.rows_seen("s"), session.counts(), session.is_table("s"), session.history().to_events()
    return *seen, state


GOOD = [rc.Insert(P, 0, 9), rc.Insert(Q, 3, 9)]
BAD: dict[str, Callable[[], Any]] = {
    "a late row in a later slice": lambda: [*GOOD, rc.Cti(8), *[rc.Insert(Q, 8, 9)] * 5, rc.Insert(P, 2, 9)],
    "an orphan in a later slice": lambda: [*GOOD * 3, rc.Retract(P, 4, 9, 5)],
    "no element": lambda: [*GOOD * 3, "x"],
    "a close of nothing after an open": lambda: rows(
        ("open", 1, None), *GOOD, ("close", None, 9), ("close", None, 0)
    ),
    "an open, then a late insert": lambda: rows(("open", 7, None), rc.Cti(6), *GOOD),
    "an unknown kind": lambda: rows(*GOOD, ("inset", 1, 2)),
    "a column too few": lambda: rows(*GOOD).drop_columns(["v"]),
    "a value that does not fit": lambda: rows(*GOOD).set_column(5, "v", pa.array(["1", "x"])),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_push_that_is_refused_changes_nothing(bad: Callable[[], Any]) -> None:
    session = rc.session(summed, batch_size=2)
    session.push("s", rows(rc.Insert(P, 4, 12), ("open", 2, None), rc.Cti(0)))
    before = told(session)
    with pytest.raises(rc.StreamError):
        session.push("s", bad())
    assert told(session) == before
    session.push("s", [rc.Insert(Q, 3, 9)])
    assert len(session.read().elements()) > 0


def test_what_a_refused_push_held_can_be_pushed_again() -> None:
    """Nothing of it was taken in: neither what came before the bad row, nor its promises."""
    session = rc.session(s, batch_size=2)
    good = [rc.Insert(P, 0, 9), rc.Insert(Q, 3, 9), rc.Cti(8)]
    with pytest.raises(rc.StreamError):
        session.push("s", [*good, rc.Insert(P, 2, 9)])
    assert session.read().elements() == []
    session.push("s", good)
    assert session.read().elements() == good


def test_a_push_that_is_refused_changes_no_counts_either() -> None:
    """Rows that a lenient source leaves out are counted once the whole push is taken in."""
    strict = rc.Properties(is_insert_only=True)
    session = rc.session(rc.source("s", s.schema, on_violation="drop", properties=strict))
    table = rows(
        ("inset", 1, 2), ("open", 1, None), ("open", 2, None), ("close", None, 0), ("close", None, 9)
    )
    with pytest.raises(rc.StreamError, match="declared insert-only"):
        session.push("s", table)
    assert session.counts()["s"].total() == 0
    assert session.rows_seen("s") == 0
    assert session.read().dropped == {}


ENDS: dict[str, Callable[[Session], None]] = {
    "close": lambda session: session.close(),
    "advance": lambda session: session.advance("s", rc.FOREVER),
    "push": lambda session: session.push("s", [rc.Cti(rc.FOREVER)]),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "windowed",
    [
        lambda g: g.tumbling(5).agg(n=rc.count()),
        lambda g: g.where(rc.col("v") > 0).group_by("k").hopping(4, 2).agg(n=rc.count(), speculate="eager"),
        lambda g: g.tumbling(5).agg(n=rc.aggregate(len, "v", result="int64")),
        lambda g: g.group_by("k").apply(lambda one: one.tumbling(5).agg(n=rc.count())),
    ],
    ids=["grid", "grouped", "modules", "applied"],
)
def test_a_close_that_is_refused_changes_nothing(windowed: Query, end: str) -> None:
    session = rc.session(windowed(s))
    session.push("s", [rc.Insert(P, 1), rc.Cti(3)])
    before = told(session)
    with pytest.raises(rc.RecensionError, match="until="):
        ENDS[end](session)
    assert told(session) == before
    session.push("s", [rc.Retract(P, 1, rc.FOREVER, 12)])
    session.close()
    assert session.history().to_events()[-1].payload["n"] == 1


BELOW: dict[str, Query] = {
    "distinct": lambda g: g.distinct(),
    "join": lambda g: g.join(g.select("k"), on="k"),
    "left join": lambda g: g.join(g.where(rc.col("v") > 5), on="k", how="left"),
    "semi join": lambda g: g.join(g, on="k", how="semi"),
    "clip": lambda g: g.clip(by=g.where(rc.col("v") > 5), on="k"),
    "as of": lambda g: g.as_of(g.select("k", w="v"), on="k"),
    "coalesce": lambda g: g.coalesce(on="v", group_by="k"),
    "finalize": lambda g: g.finalize(5),
    "advance time": lambda g: g.advance_time(1, every=1, late="adjust"),
    "shift": lambda g: g.shift(2).distinct(),
    "perfect": lambda g: g.agg(n=rc.count()),
    "ordered": lambda g: g.group_by("k").agg(n=rc.max("v"), speculate="ordered"),
    "eager": lambda g: g.agg(n=rc.count(), speculate="eager"),
    "cleanse": lambda g: g.cleanse(),
    "in groups": lambda g: g.group_by("k").apply(
        lambda one: one.agg(n=rc.count()).tumbling(5).agg(m=rc.count())
    ),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW)
def test_a_close_that_is_refused_above_steps_with_state_changes_nothing(below: Query, end: str) -> None:
    session = rc.session(below(s).tumbling(5).agg(n=rc.count()))
    session.push("s", [rc.Insert(P, 1), rc.Insert(Q, 2, 9), rc.Cti(3)])
    before = told(session)
    with pytest.raises(rc.RecensionError, match="until="):
        ENDS[end](session)
    assert told(session) == before
    session.push("s", [rc.Retract(P, 1, rc.FOREVER, 12)])
    ENDS[end](session)
    assert session.read().elements()[-1] == rc.Cti(rc.FOREVER)


@pytest.mark.parametrize("below", list(BELOW.values())[:-1], ids=list(BELOW)[:-1])
def test_a_close_that_can_be_is_not_refused(below: Query) -> None:
    """Windows with an end, and those over shorter lives, take events that never end."""
    for query in (
        below(s).tumbling(5, until=20).agg(n=rc.count()),
        below(s).set_duration(3).tumbling(5).agg(n=rc.count()),
    ):
        session = rc.session(query)
        session.push("s", [rc.Insert(P, 1), rc.Insert(Q, 2, 9), rc.Cti(3)])
        session.close()


def test_an_end_that_is_held_back_does_not_count_as_missing() -> None:
    session = rc.session(s.align(10).tumbling(5).agg(n=rc.count()))
    session.push("s", [rc.Insert(P, 1), rc.Cti(12), rc.Retract(P, 1, rc.FOREVER, 20)])
    session.close()
    assert session.read().elements()[-1] == rc.Cti(rc.FOREVER)


def test_an_external_cti_that_nobody_takes_changes_nothing() -> None:
    session = rc.session(summed)
    before = told(session)
    with pytest.raises(rc.RecensionError, match="an external cti came"):
        session.push("s", [rc.Insert(P, 1, 2), rc.ExternalCti(0, 5, 1)])
    assert told(session) == before


def test_an_attach_that_is_refused_changes_nothing() -> None:
    session = rc.session(rc.merge(s))
    other = rc.source("s", s.schema, on_violation="drop")
    before = told(session)
    for stream in (other.where(rc.col("v") > 0), rc.source("t", {"x": "int64"})):
        with pytest.raises(rc.RecensionError):
            session.attach(stream)
    assert told(session) == before
    session.push("s", [rc.Insert(P, 1, 2), rc.Cti(3)])
    assert len(session.history()) == 1


text = rc.source("s", {"k": "string", "v": "string"})
number = rc.col("v").cast("int64")
whole = rc.udf(int, result="int64")
ROW_STEPS = {
    "select": text.select("k", v=number),
    "where": text.where(number > 0),
    "two steps": text.where(rc.col("k") != "x").with_columns(v=number * 2).agg(t=rc.sum("v")),
    "key": text.group_by(n=number).agg(c=rc.count()),
    "argument": text.group_by("k").tumbling(5).agg(t=rc.sum(number), speculate="eager"),
    "argument of a selection": text.agg(t=rc.max(number), speculate="eager"),
    "lifetime": text.with_columns(began=rc.start()).where(number > 0).shift(2),
    "times": text.select("k", long=rc.lifetime() * number),
    "union": text.union(text.where(number > 0)),
    "two of one source": text.where(rc.col("k") == "a")
    .union(text.where(rc.col("k") != "a"))
    .select(v=number),
    "shifted": text.shift(2).select("k", v=number).group_by("k").tumbling(5).agg(t=rc.sum("v")),
    "moving": text.set_duration(3).where(number > 0),
    "points": text.to_points().group_by(n=number).agg(c=rc.count()),
    "ends": text.deletes().where(number > 0),
    "function": text.map(lambda row: {"v": int(row["v"])}, {"v": "int64"}, per_row=True),
    "function of an argument": text.agg(t=rc.sum(whole("v")), speculate="eager"),
    "module": text.tumbling(5).agg(t=Total(v=number), speculate="eager"),
    "module by key": text.group_by(n=number).snapshot().apply(Seen(v=number)),
}


@pytest.mark.parametrize("batch_size", [1, 100])
@pytest.mark.parametrize("query", ROW_STEPS.values(), ids=ROW_STEPS)
def test_a_row_that_breaks_an_expression_changes_nothing(query: rc.Stream, batch_size: int) -> None:
    """The push is refused with source and row, and the session goes on as one that never got it."""
    session, other = rc.session(query, batch_size=batch_size), rc.session(query, batch_size=batch_size)
    good = [rc.Insert({"k": "a", "v": "1"}, 0, 9), rc.Insert({"k": "b", "v": "2"}, 2, 4), rc.Cti(1)]
    bad = [rc.Insert({"k": "a", "v": "3"}, 5, 6), rc.Cti(3), rc.Insert({"k": "a", "v": "three"}, 5, 6)]
    more = [rc.Retract({"k": "a", "v": "1"}, 0, 9, 6), rc.Insert({"k": "b", "v": "4"}, 5, 8), rc.Cti(12)]
    for each in (session, other):
        each.push("s", good)
    before = told(session)
    with pytest.raises(rc.StreamError, match=r"^s: row 6: .*three"):
        session.push("s", bad)
    assert told(session) == before
    for each in (session, other):
        each.push("s", more)
    assert session.history().to_events() == other.history().to_events()
    assert session.read().elements() == other.read().elements()


@pytest.mark.parametrize("total", [rc.sum("x"), rc.mean("x"), rc.time_weighted_mean("x")], ids=str)
def test_a_float_that_is_too_large_for_sums_changes_nothing(total: Any) -> None:
    floats = rc.source("s", {"x": "float64"})
    session = rc.session(floats.tumbling(5).agg(t=total, speculate="eager"))
    session.push("s", [rc.Insert({"x": 1.5}, 0, 5)])
    with pytest.raises(rc.StreamError, match=r"^s: row 3: .*t: the value 1e\+300 is beyond 2\*\*960"):
        session.push("s", [rc.Insert({"x": 2.5}, 0, 5), rc.Insert({"x": 1e300}, 0, 5)])
    session.push("s", [rc.Insert({"x": 3.5}, 0, 5)])
    (answer,) = session.history().to_events()
    assert answer.payload["t"] == (5.0 if "sum" in str(total) else 2.5)


def test_what_is_looked_at_is_computed_once() -> None:
    calls = list[int]()

    def count(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(row["v"])
        return row

    counted = rc.udf(lambda v: count({"v": v})["v"], result="int64")
    for query in (
        s.map(count, s.schema, per_row=True).agg(n=rc.sum("v"), speculate="eager"),
        s.agg(n=rc.sum(counted("v")), speculate="eager"),
        s.set_duration(2).group_by(w=counted("v")).agg(n=rc.count()),
        s.tumbling(5).agg(n=Total(v=counted("v")), speculate="eager"),
    ):
        calls.clear()
        rc.session(query).push("s", [*GOOD, rc.Cti(1)])
        assert len(calls) == len(GOOD)


class Fails:
    """A function that fails when told to, once."""

    def __init__(self) -> None:
        self.is_due: BaseException | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.is_due is not None:
            due, self.is_due = self.is_due, None
            raise due
        return row


def started(fails: Fails) -> Session:
    totals = s.group_by("k").agg(t=rc.sum("v"), speculate="eager")
    return rc.session(out=totals.map(fails, totals.schema, per_row=True), raw=s)


def failed(fails: Fails, why: BaseException | None = None) -> tuple[Session, dict[str, pa.Table]]:
    """A session that has failed, and a snapshot from before."""
    session = started(fails)
    session.push("s", GOOD)
    session.read("out")
    chunks = session.snapshot()
    fails.is_due = why or ValueError("boom")
    with pytest.raises(rc.RecensionError if why is None else type(why)):
        session.push("s", [rc.Insert(P, 5, 9)])
    return session, chunks


REFUSED: dict[str, Callable[[Session], object]] = {
    "push": lambda session: session.push("s", GOOD),
    "advance": lambda session: session.advance("s", 3),
    "close": lambda session: session.close(),
    "read": lambda session: session.read("raw"),
    "history": lambda session: session.history("out"),
    "snapshot": lambda session: session.snapshot(),
    "tick": lambda session: session.tick(),
    "attach": lambda session: session.attach(s),
    "hear": lambda session: session.hear(3, "out"),
    "metrics": lambda session: session.metrics(),
    "counts": lambda session: session.counts(),
    "explain": lambda session: session.explain("out"),
}


@pytest.mark.parametrize("method", REFUSED.values(), ids=REFUSED)
def test_after_an_error_in_a_step_everything_is_refused(method: Callable[[Session], object]) -> None:
    session, _ = failed(Fails())
    with pytest.raises(
        rc.RecensionError, match=r"failed in push \(.*ValueError: boom\).*restore its last snapshot"
    ):
        method(session)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_restored_session_goes_on(fresh: bool) -> None:
    fails = Fails()
    session, chunks = failed(fails)
    if fresh:
        session = started(fails)
    session.restore(chunks)
    assert session.read("raw").elements() == []
    session.push("s", [rc.Insert(P, 5, 9)])
    assert [e.payload["t"] for e in session.history("out").to_events()] == [1, 2, 2]
    assert len(session.history("raw")) == 3


@pytest.mark.parametrize("per_row", [True, False])
def test_an_error_of_several_lines_in_a_function_is_one_line(per_row: bool) -> None:
    def broken(given: Any) -> Any:
        raise ValueError("\nno such thing\nas this")

    with pytest.raises(rc.RecensionError) as caught:
        rc.run(s.map(broken, {"n": "int64"}, per_row=per_row), {"s": GOOD})
    assert str(caught.value).endswith(": ValueError: no such thing")
    assert "\n" not in str(caught.value)


def test_an_interrupt_in_a_step_is_an_error_too() -> None:
    session, _ = failed(Fails(), KeyboardInterrupt())
    with pytest.raises(rc.RecensionError, match="failed in push"):
        session.read("raw")


def test_output_is_released_last() -> None:
    """What the slices before the failing one gave is not to be read."""

    def angry(row: dict[str, Any]) -> dict[str, Any]:
        return {"k": row["k"], "v": 6 // row["v"]}

    # Above a join, where it is not known beforehand which rows come.
    session = rc.session(s.join(s, on="k", how="semi").map(angry, s.schema, per_row=True), batch_size=1)
    session.push("s", GOOD)
    chunks = session.snapshot()
    with pytest.raises(rc.RecensionError, match="ZeroDivisionError"):
        session.push("s", [rc.Insert(P, 5, 9), rc.Insert({"k": "a", "v": 0}, 5, 9)])
    session.restore(chunks)
    assert session.read().elements() == []
    assert len(session.history()) == 2


def test_a_sum_that_overflows_does_not_leave_half_of_it_behind() -> None:
    session = rc.session(summed, batch_size=1)
    session.push("s", [rc.Insert({"k": "a", "v": 2**62}, 0, 9)])
    with pytest.raises(rc.RecensionError):
        session.push("s", [rc.Insert({"k": "a", "v": 2**62}, 0, 9)])
    with pytest.raises(rc.RecensionError, match="restore"):
        session.push("s", [rc.Retract({"k": "a", "v": 2**62}, 0, 9, 5)])


def test_a_second_thread_is_refused() -> None:
    inside, go_on, refused = threading.Event(), threading.Event(), list[str]()

    def wait(row: dict[str, Any]) -> dict[str, Any]:
        inside.set()
        assert go_on.wait(10)
        return row

    session = rc.session(s.map(wait, s.schema, per_row=True))
    first = threading.Thread(target=session.push, args=("s", GOOD))
    first.start()
    assert inside.wait(10)
    for method in (lambda: session.push("s", GOOD), session.read, session.snapshot, session.close):
        try:
            method()
        except rc.RecensionError as why:
            refused.append(str(why))
    go_on.set()
    first.join()
    assert len(refused) == 4
    assert all("a session belongs to one thread at a time" in reason for reason in refused)
    # One after the other, any thread may use it.
    assert len(session.read().elements()) == 2


def test_a_function_of_a_query_must_not_use_its_session() -> None:
    sessions: list[Session] = []

    def again(row: dict[str, Any]) -> dict[str, Any]:
        sessions[0].push("s", GOOD)
        return row

    sessions.append(rc.session(s.map(again, s.schema, per_row=True)))
    with pytest.raises(rc.RecensionError, match="push was called from within push of the same session"):
        sessions[0].push("s", GOOD)
