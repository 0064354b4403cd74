"""Sessions over many streams: what is shown, what is promised, what is kept; and as DuckDB has them."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.operators.window_case import AGGREGATES, WindowCase

import recension as rc
from recension import denote
from recension.core.events import Insert
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state import block_table, leaf_table
from recension.testing import assert_equivalent


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Groups with more than a few rows are long, and lie in small blocks."""
    monkeypatch.setattr(block_table, "_BLOCK", 4)
    if "long" in request.fixturenames and request.getfixturevalue("long"):
        monkeypatch.setattr(leaf_table, "_LONG", 6)
        monkeypatch.setattr(leaf_table, "_SHORT", 3)


def _end(dice: random.Random, vs: int) -> int:
    length = dice.choice([1, 1, 1, 3, dice.randint(1, 30)])
    return FOREVER if dice.random() < 0.02 else vs + length


class Case(WindowCase):
    """Sessions."""

    def __init__(
        self, seed: int, gap: int, what: str, speculate: Any, *, grouped: bool, insert_only: bool = False
    ) -> None:
        how: dict[str, Any] = {"grouped": grouped, "insert_only": insert_only}
        super().__init__(seed, lambda s: s.sessions(gap), denote.sessions(gap), _end, what, speculate, **how)
        self.gap = gap

    def windows(self) -> list[denote.Window]:
        """The sessions of all groups."""
        return [window for group in self.groups() for window, _ in self._windows(group)]

    def is_final(self, end: int, t: int) -> bool:
        return end + self.gap <= t or t == FOREVER


CASES = pytest.mark.parametrize(
    ("seed", "gap", "grouped", "long"),
    [(seed, gap, g, seed % 2) for seed, gap in enumerate((1, 3, 8, 20)) for g in (False, True)],
)


@pytest.mark.pairs
@CASES
@pytest.mark.parametrize("what", AGGREGATES)
def test_eager_shows_all_sessions(seed: int, gap: int, grouped: bool, long: int, what: str) -> None:
    Case(seed, gap, what, "eager", grouped=grouped).check_every_batch()


@pytest.mark.pairs
@CASES
@pytest.mark.parametrize("insert_only", [False, True])
@pytest.mark.parametrize("what", ["sums", "lists"])
def test_others_show_the_sessions_whose_gap_has_passed(
    seed: int, gap: int, grouped: bool, long: int, what: str, insert_only: bool
) -> None:
    case, watermark = Case(seed, gap, what, "perfect", grouped=grouped, insert_only=insert_only), BEGINNING
    for number, batch in enumerate(case.batches()):
        if number % 3 == 2:
            case.driver.restore_twin()
        case.driver.feed(batch)
        starts = [element.vs for element in batch if isinstance(element, Insert)]
        watermark = max(watermark, case.driver.input_cti(), *starts)
        shown = [e for e in case.meaning() if case.is_final(e.ve, watermark)]
        assert_equivalent(case.driver.history(), shown)


@CASES
@pytest.mark.parametrize("speculate", ["eager", "perfect"])
def test_ctis_and_state_go_as_far_as_they_can(
    seed: int, gap: int, grouped: bool, long: int, speculate: str
) -> None:
    case = Case(seed, gap, "sums", speculate, grouped=grouped)
    for batch in case.batches():
        t = case.driver.input_cti()
        case.driver.feed(batch)
        if t < case.driver.input_cti() < FOREVER:
            t = case.driver.input_cti()
            open_ = [window for window in case.windows() if not case.is_final(window.end, t)]
            assert case.driver.cti == min([t, *(window.start for window in open_)])
            if not open_:
                assert case.driver.operator.state_rows() == 0


SQL = """
    WITH marked AS (
        SELECT *, coalesce(vs >= {gap} + max(ve) OVER (PARTITION BY k ORDER BY vs, ve
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), TRUE)::INT AS begins FROM events
    ), numbered AS (
        SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY vs, ve ROWS UNBOUNDED PRECEDING) AS session
        FROM marked
    )
    SELECT min(vs) AS _vs, max(ve) AS _ve, k, count(*) AS n, sum(v) AS s, max(x) AS top
    FROM numbered GROUP BY k, session ORDER BY k, _vs
"""


@pytest.mark.parametrize(("gap", "speculate"), [(1, "eager"), (40, "perfect"), (300, "eager")])
def test_as_duckdb_has_them(gap: int, speculate: Any) -> None:
    """Late and revised rows in batches with CTIs; one in ten is taken back, one in ten ends otherwise."""
    rng, size = np.random.default_rng(gap), 12_000
    vs = rng.integers(0, 30_000, size)
    ve = vs + np.where(rng.random(size) < 0.5, 1, rng.integers(1, 200, size))
    table = pa.table({"k": rng.integers(0, 50, size), "v": rng.integers(-9, 9, size), "x": rng.random(size)})
    source = rc.source("s", table.schema)
    answer = (
        source.group_by("k")
        .sessions(gap)
        .agg(n=rc.count(), s=rc.sum("v"), top=rc.max("x"), speculate=speculate)
    )
    live, told, fate = rc.session(answer), ve.copy(), rng.integers(0, 10, size)
    order = np.argsort(vs + rng.integers(0, 2_000, size))
    told[fate == 1] += rng.integers(1, 400, int((fate == 1).sum()))
    for part in np.array_split(order, 12):
        live.push("s", _rows("insert", table, part, vs, told, None))
        for at, end in (
            (part[fate[part] == 0], vs),
            (part[(fate[part] == 1) & (told[part] != ve[part])], ve),
        ):
            live.push("s", _rows("retract", table, at, vs, told, end))
        later = order[np.flatnonzero(order == part[-1])[0] + 1 :]
        if len(later):
            live.advance("s", int(vs[later].min()))
    live.advance("s", FOREVER)
    found = live.history().to_arrow().sort_by([("k", "ascending"), ("_vs", "ascending")])
    left = fate != 0
    events = table.append_column("vs", pa.array(vs)).append_column("ve", pa.array(ve)).filter(pa.array(left))
    with duckdb.connect() as connection:
        connection.register("events", events)
        expected = connection.sql(SQL.format(gap=gap)).to_arrow_table()
    assert found.select(["_vs", "_ve", "k", "n", "top"]).to_pylist() == (
        expected.select(["_vs", "_ve", "k", "n", "top"]).to_pylist()
    )
    assert found["s"].to_pylist() == [int(s) for s in expected["s"].to_pylist()]


def _rows(kind: str, table: pa.Table, at: Any, vs: Any, ve: Any, new: Any) -> pa.Table:
    times = {"_kind": [kind] * len(at), "_vs": vs[at], "_ve": ve[at]}
    if new is not None:
        times["_new_ve"] = new[at]
    return pa.table(times | {name: table[name].take(pa.array(at)) for name in table.column_names})


@pytest.mark.parametrize("long", [True])
@pytest.mark.parametrize("distance", [3, 4])
def test_a_session_that_begins_just_within_the_gap_is_found_wherever_it_is_kept(
    distance: int, long: bool
) -> None:
    """Of many sessions, each in turn is met from before: one of them is the first of a block."""
    starts = range(0, 600, 20)
    source = rc.source("s", {"v": "int64"})
    for met in starts:
        live = rc.session(source.sessions(4).agg(n=rc.count(), speculate="eager"))
        live.push("s", [Insert({"v": 0}, start, start + 2) for start in starts])
        live.push("s", [Insert({"v": 0}, met - distance - 1, met - distance)])
        ends = [(start, start + 2, 1) for start in starts if start != met]
        new = [(met - distance - 1, met - distance, 1), (met, met + 2, 1)]
        united = [(met - distance - 1, met + 2, 2)]
        expected = sorted([*ends, *(new if distance >= 4 else united)])
        found = live.history().to_events()
        assert sorted((int(e.vs), int(e.ve), e.payload["n"]) for e in found) == expected
