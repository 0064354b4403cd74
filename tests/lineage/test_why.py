"""`rc.why`: which answer is meant, how it came about, what is told, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension import Cti, Event, Insert, Retract, col
from recension.core.errors import RecensionError
from recension.lineage import Why, biography, explain_answer
from recension.lineage.inputs import read_inputs
from recension.lineage.replay import Replay

leases = rc.source("leases", {"user": "string", "site": "string"})
BY_SITE = leases.group_by("site").agg(n=rc.count(), speculate="eager")


def lease(user: str, vs: int, ve: int, site: str = "Oslo") -> Insert:
    return Insert({"user": user, "site": site}, vs, ve)


ANN, BOB, KIM = lease("ann", 0, 20), lease("bob", 5, 9), lease("kim", 9, 30)
FEED: list[Any] = [ANN, BOB, Cti(3), KIM, Retract(BOB.payload, 5, 9, 12), Cti(15)]


def test_it_is_told_step_by_step() -> None:
    why = rc.why(BY_SITE, {"leases": FEED}, {"site": "Oslo"}, at=9)
    assert str(why) == (
        """\
[9, 12) site Oslo, n 3

Step by step
  aggregate n = count() by site, speculate eager
    [9, 12) site Oslo, n 3: 3 leases alive in [9, 12): ann, bob, kim

It rests on
  leases, needed
    [0, 20) user ann, site Oslo
    [5, 12) user bob, site Oslo
    [9, 30) user kim, site Oslo
  no other event of leases with site = Oslo from 9 to 12

How the answer with site = Oslo at 9 changed
  first [0, 20) site Oslo, n 1
    after leases, row 1: insert [0, 20) {'user': 'ann', 'site': 'Oslo'}
  then [9, 20) site Oslo, n 1
    after leases, row 2: insert [5, 9) {'user': 'bob', 'site': 'Oslo'}
  then [9, 20) site Oslo, n 2
    after leases, row 4: insert [9, 30) {'user': 'kim', 'site': 'Oslo'}
  then [9, 12) site Oslo, n 3
    after leases, row 5: retract [5, 9) -> 12 {'user': 'bob', 'site': 'Oslo'}
  final after leases, row 6: cti 15"""
    )


def test_the_named_events_as_a_table() -> None:
    why = rc.why(BY_SITE, {"leases": FEED}, {"site": "Oslo"}, at=9)
    table = why.to_arrow()
    assert table.column_names == ["_source", "_mark", "_vs", "_ve", "user", "site"]
    assert table["user"].to_pylist() == ["ann", "bob", "kim"]
    assert set(table["_mark"].to_pylist()) == {"needed"}
    assert why.to_arrow("leases").equals(table)
    with pytest.raises(RecensionError, match=r"no events of 'lease' are named .did you mean 'leases'"):
        why.to_arrow("lease")


def test_an_answer_may_be_given_as_an_event() -> None:
    answer = Event({"site": "Oslo", "n": 3}, 9, 12)
    for given in (answer, Insert(answer.payload, 9, 12)):
        why = rc.why(BY_SITE, {"leases": FEED}, given)
        assert why.answer == answer
        assert why.biography is not None
        assert len(why.biography.revisions) == 4, "its biography is that of its group, at its start"


@pytest.mark.parametrize(
    ("given", "at", "message"),
    [
        ({"site": "Osl"}, 9, r"no answer with site = Osl at 9; near it: \[9, 12\) site Oslo, n 3;"),
        ({"site": "Oslo"}, 99, r"no answer with site = Oslo at 99; near it: \[20, 30\) site Oslo, n 1"),
        ({"site": "Oslo"}, None, "5 answers with site = Oslo: .*; say at which time"),
        ({"sit": "Oslo"}, 9, "the answer has no column 'sit' .did you mean 'site'"),
        (None, None, "say which answer"),
        ("Oslo", 9, "an answer is an event or a mapping"),
        (Event({"site": "Oslo", "n": 4}, 9, 12), None, r"no answer with .* n = 4 in \[9, 12\); near it"),
        ({"site": "Oslo"}, "2024-01-01", "ticks"),
        ({"site": "Oslo"}, "noon", "why: at: "),
    ],
)
def test_what_is_refused(given: Any, at: Any, message: str) -> None:
    with pytest.raises(RecensionError, match=message) as raised:
        rc.why(BY_SITE, {"leases": FEED}, given, at=at)
    assert "\n" not in str(raised.value)


def test_two_answers_at_once_are_told_apart_by_more_columns() -> None:
    both = [ANN, lease("ann", 0, 20, "Rome")]
    with pytest.raises(RecensionError, match=r"2 answers with user = ann at 5: .*; name more columns"):
        rc.why(leases, {"leases": both}, {"user": "ann"}, at=5)
    with pytest.raises(RecensionError, match="no input for source 'leases'"):
        rc.why(leases, {}, {"user": "ann"}, at=5)
    with pytest.raises(RecensionError, match="the query has no answers over these inputs"):
        rc.why(leases, {"leases": []}, {"user": "ann"}, at=5)


def test_what_took_an_answer_back_is_named() -> None:
    """Also where it was shown only once it was due; what was never shown has not been there."""
    orders, shipments = (rc.source(name, {"order": "string"}) for name in ("orders", "shipments"))
    late = orders.set_duration(9).shift(9).join(shipments, on="order", how="anti").due(by=orders)
    rows = {
        "orders": [rc.Insert({"order": order}, at, at + 1) for order, at in (("a", 0), ("b", 1), ("c", 12))],
        "shipments": [
            rc.Insert({"order": order}, at, rc.FOREVER)
            for order, at in (("b", 5), ("x", 6), ("y", 7), ("a", 2))
        ],
    }
    with pytest.raises(RecensionError, match=r"there was \[9, 18\) order a, until shipments, row 4: .* came"):
        rc.why(late, rows, {"order": "a"}, at=10, batch_size=1)
    with pytest.raises(RecensionError, match="no answer with order = b at 10") as never:
        rc.why(late, rows, {"order": "b"}, at=10, batch_size=1)
    assert "there was" not in str(never.value)
    with pytest.raises(RecensionError, match="no answer with order = d at 10"):
        rc.why(late, rows, {"order": "d"}, at=10)


def test_an_answer_that_waits_is_told_as_if_the_inputs_had_ended() -> None:
    why = rc.why(leases.cleanse(), {"leases": [ANN]}, {"user": "ann"}, at=5)
    assert why.biography is not None
    assert why.biography.final is None
    assert "not given yet" in str(why)
    closed = rc.why(leases.cleanse(), {"leases": [ANN]}, {"user": "ann"}, at=5, close=True)
    assert closed.biography is not None
    assert str(closed.biography.final) == "leases, row 2: its end"


def test_a_plain_table_is_closed() -> None:
    days = rc.source("days", {"v": "int64"}, start="day")
    table = pa.table({"day": [1, 2, 2], "v": [1, 2, 3]})
    why = rc.why(days.agg(v=rc.sum("v")), {"days": table}, at=2)
    assert [event.payload["v"] for event in why.events()] == [2, 3]
    assert why.biography is not None
    assert str(why.biography.final) == "days, row 4: its end"


def test_windows_over_an_event_that_never_ends() -> None:
    query = leases.tumbling(10).agg(n=rc.count())
    feed = [Insert(ANN.payload, 0), BOB, Cti(25)]
    why = rc.why(query, {"leases": feed}, at=12)
    assert [event.payload["user"] for event in why.events()] == ["ann"]
    above = query.agg(most=rc.max("n"))
    assert len(rc.why(above, {"leases": feed}, at=5).events()) == 2
    with pytest.raises(RecensionError, match="no answer with n = 7 at 5"):
        rc.why(query, {"leases": feed}, {"n": 7}, at=5)
    with pytest.raises(RecensionError, match="or say at which time the answer is true"):
        rc.why(query, {"leases": feed}, {"n": 1})


def test_records_of_a_keyed_source() -> None:
    jobs = rc.source(
        "jobs", {"job": "int64", "state": "string"}, key="job", version="seq", start="a", end="b"
    )
    rows = pa.table(
        {
            "job": [7, 7, 8],
            "state": ["run", "done", "run"],
            "seq": [1, 2, 1],
            "a": [3, 3, 0],
            "b": [9, 5, 9],
        }
    )
    why = rc.why(jobs, {"jobs": rows}, {"job": 7}, at=4)
    assert [(e.payload["seq"], o.mark) for o in why.named["jobs"] if (e := o.event)] == [(2, "needed")]
    assert why.biography is not None
    assert [len(revision.after) for revision in why.biography.revisions] == [1, 1]


def test_changes_of_a_keyed_source() -> None:
    prices = rc.changes("prices", {"item": "string", "price": "int64"}, key="item", start="at")
    rows = pa.table({"item": ["a", "a", "b", "a"], "price": [1, 2, 9, 3], "at": [0, 5, 3, 8]})
    why = rc.why(prices, {"prices": rows}, {"item": "a"}, at=6)
    assert [(o.event.payload["price"], o.mark) for o in why.named["prices"]] == [(2, "needed"), (3, "needed")]


def test_a_table_that_is_joined() -> None:
    sites = rc.table("sites", {"site": "string", "land": "string"})
    lands = pa.table({"site": ["Oslo", "Rome"], "land": ["Norway", "Italy"]})
    why = rc.why(leases.join(sites, on="site"), {"leases": [ANN, BOB], "sites": lands}, {"user": "ann"}, at=6)
    assert [event.payload["land"] for event in why.events("sites")] == ["Norway"]
    assert why.to_arrow()["land"].to_pylist() == [None, "Norway"]


def test_a_source_whose_retractions_are_mended() -> None:
    """An orphan that finalize drops."""
    feed = [Retract(KIM.payload, 9, 30, 12), ANN, ANN, BOB]
    why = rc.why(leases.finalize().where(col("user") == "ann"), {"leases": feed}, {"user": "ann"}, at=6)
    assert {event.payload["user"] for event in why.events()} == {"ann"}


def test_sources_in_turn() -> None:
    """The second source changes the answer after a whole batch of the first, as in a run."""
    other = rc.source("others", {"user": "string", "site": "string"})
    query = leases.union(other).agg(n=rc.count(), speculate="eager")
    feeds = {"leases": [ANN, lease("eve", 6, 8)], "others": [BOB]}
    rows = []
    for size in (1, 10):
        why = rc.why(query, feeds, at=7, batch_size=size)
        assert why.biography is not None
        rows.append([revision.cause.source for revision in why.biography.revisions])
    assert rows == [["leases", "others", "leases"], ["leases", "leases", "others"]]


def test_a_source_with_partitions() -> None:
    parts = rc.source("parts", {"user": "string"}, partition="p", partitions=2)
    feed = {0: [Insert({"user": "ann"}, 0, 20), Cti(5)], 1: [Insert({"user": "bob"}, 2, 9), Cti(30)]}
    for query in (parts.agg(n=rc.count()), parts.advance_time(100).agg(n=rc.count())):
        why = rc.why(query, {"parts": feed}, at=4)
        assert [event.payload["user"] for event in why.events()] == ["ann", "bob"]


# Only what can matter is run.


def day(rows: int) -> pa.Table:
    """Leases of many sites over a day, some corrected."""
    random = np.random.default_rng(5)
    vs = np.sort(random.integers(0, 86_400, rows))
    ve = vs + random.integers(1, 600, rows)
    site = np.char.add("site", random.integers(0, 50, rows).astype(str))
    return pa.table(
        {
            "_kind": ["insert"] * rows,
            "_vs": vs,
            "_ve": ve,
            "user": np.char.add("u", np.arange(rows).astype(str)),
            "site": site,
        }
    )


@pytest.mark.parametrize(
    "query",
    [
        leases.group_by("site").agg(n=rc.count()),
        leases.group_by("site").hopping(600, 60).agg(n=rc.count()),
        leases.group_by("site").sessions(5).agg(n=rc.count()),
        leases.where(col("user") != "u7").coalesce("site"),
        leases.group_by("site").agg(n=rc.count()).join(leases, on="site", how="semi"),
    ],
)
def test_it_runs_a_part_of_the_inputs_and_says_the_same(query: rc.Stream) -> None:
    table = day(4000)
    full = rc.run(query, {"leases": table}, close=True).history().to_events()
    answer = full[len(full) // 2]
    whole, part = (
        explain_answer(query.plan, {"leases": table}, answer, biography=False, marks=False, small=small)
        for small in (10_000, 0)
    )
    assert _names(whole) == _names(part)
    assert whole.answer == part.answer == answer


def _names(why: Why) -> list[str]:
    return sorted(str(event) for event in why.events())


def test_the_part_is_small() -> None:
    query = leases.group_by("site").hopping(6000, 600).agg(n=rc.count())
    inputs = read_inputs(query.plan, {"leases": day(4000)})
    replay = Replay(query.plan, inputs, small=0)
    replay.need(query.plan, _at(40_000, "site7"))
    replay.look(query.plan)
    assert 0 < len(replay.parts["leases"]) < 40


def _at(t: int, site: str) -> Any:
    from recension.denote.lineage import Region

    return Region(t, t, (("site", site),))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from recension.cli import main

    (tmp_path / "query.py").write_text(
        "import recension as rc\n"
        "leases = rc.source('leases', {'user': 'string', 'site': 'string'})\n"
        "query = leases.group_by('site').agg(n=rc.count())\n"
    )
    stream = rc.run(leases, {"leases": FEED}, batch_size=1).to_arrow()
    pq.write_table(stream, tmp_path / "leases.parquet")
    base = ["why", str(tmp_path / "query.py"), "--input", f"leases={tmp_path / 'leases.parquet'}"]
    assert main([*base, "--where", "site=Oslo", "--at", "9"]) == 0
    told = capsys.readouterr().out
    assert "3 leases alive in [9, 12): ann, bob, kim" in told
    assert "final after leases, row 6: cti 15" in told
    for wrong, message in [
        (["--where", "site=Oslo", "--at", "99"], "no answer with site = Oslo at 99; near it"),
        (["--where", "n=many", "--at", "9"], "--where n=many: 'many' is not a value of type int64"),
        (["--where", "sit=Oslo"], "no column 'sit' (did you mean 'site'?)"),
        (["--where", "Oslo"], "--where Oslo: write COLUMN=VALUE"),
        ([], "say which answer, as in --where site=Oslo --at 9"),
    ]:
        assert main([*base, *wrong]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1


def test_other_keys_may_show_an_answer_and_the_biography_says_which_element_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window is shown when time has got to its end, by whichever key; fed in chunks or one by one."""
    source = rc.source("s", {"k": "int64"})
    feed: list[Any] = [rc.Insert({"k": n % 7}, n, n + 3) for n in range(60)]
    feed[40:40] = [rc.Cti(20)]
    query = source.group_by("k").tumbling(10).agg(n=rc.count())
    told = str(rc.why(query, {"s": feed}, {"k": 3}, at=15))
    assert "after s, row 21: insert [20, 23) {'k': 6}" in told
    monkeypatch.setattr(biography, "_CHUNK", 1)
    assert str(rc.why(query, {"s": feed}, {"k": 3}, at=15)) == told
