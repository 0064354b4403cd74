"""Sorted runs against a plain list of rows, with steps so short that merges are nearly always under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core import sorted_runs
from recension.core.sorted_runs import Columns, Run, SortedRuns
from recension.core.ticks import BEGINNING, FOREVER

Row = tuple[int, int, int]
"""Key, count and end; keys that are summed fix the end."""
Equal = Literal["sum", "newest", "all"]

KEYS = st.integers(0, 9)
ROWS = st.lists(st.tuples(KEYS, st.sampled_from([1, 2, -1]), st.integers(0, 30)), max_size=30)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "forget", "remove", "pop", "rewrite", "reload"]), ROWS
    ),
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def short_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "STEP", 6)
        patch.setattr(sorted_runs, "_SHARE", 1)
        patch.setattr(sorted_runs, "_FEW", 2)
        yield


class Model:
    """The rows that came, in order of arrival, and what is to be seen of them."""

    def __init__(self, equal: Equal, keys: int) -> None:
        self.rows: list[Row] = []
        self.equal, self.keys = equal, keys
        self.frontier = BEGINNING

    def seen(self) -> list[Row]:
        """By key, then by arrival."""
        rows = sorted(self.rows, key=self._key)
        if self.equal == "newest":
            rows = list({self._key(row): row for row in rows}.values())
        elif self.equal == "sum":
            totals: dict[tuple[int, ...], Row] = {}
            for key, count, end in rows:
                before = totals.get(self._key((key, count, end)), (0, 0, 0))[1]
                totals[self._key((key, count, end))] = (key, before + count, end)
            rows = [row for row in totals.values() if row[1]]
        return [row for row in rows if row[2] >= self.frontier]

    def _key(self, row: Row) -> tuple[int, ...]:
        return (row[0],) if self.keys == 1 else (row[0], row[2])


class Checked:
    """Runs and their model, changed alike."""

    def __init__(self, equal: Equal, keys: int) -> None:
        self.names = ("key", "count", "end") if keys == 1 else ("key", "end", "count")
        self.runs = self._new(equal, keys)
        self.model = Model(equal, keys)
        self.written: dict[int, bytes] = {}

    def _new(self, equal: Equal, keys: int) -> SortedRuns:
        types = {name: np.uint64 if name == "key" else np.int64 for name in self.names}
        return SortedRuns(types, keys=keys, equal=equal, expiry="end")

    def do(self, what: str, rows: list[Row]) -> None:
        keys = np.unique([row[0] for row in rows]).astype(np.uint64)
        t = max([self.model.frontier, 0]) + len(rows) // 3
        model = self.model
        if what == "push":
            self._push([row for row in rows if row[2] >= model.frontier])
        elif what == "forget":
            model.frontier = t
            self.runs.forget_before(t)
        elif what == "remove" and model.equal == "all":
            assert _rows(self.runs.find_rows(keys)) == [row for row in model.seen() if row[0] in keys]
            self.runs.remove(keys)
            model.rows = [row for row in model.rows if row[0] not in keys]
        elif what == "pop" and model.equal == "all":
            side: Literal["left", "right"] = "left" if len(rows) % 2 else "right"
            bound = len(rows) // 4 + (side == "right")
            out = _rows(self.runs.pop(len(rows) // 4, side))
            due = [row for row in model.seen() if row[0] < bound]
            assert sorted(row for row in out if row[2] >= model.frontier) == sorted(due)
            model.rows = [row for row in model.rows if row[0] >= bound]
        elif what == "rewrite" and model.equal == "all":
            self.runs.rewrite(lambda part: part | {"count": part["count"] + 1})
            model.rows = [(key, count + 1, end) for key, count, end in model.rows]
        elif what == "reload":
            table = self.runs.snapshot()
            self.runs = self._new(model.equal, model.keys)
            self.written = {}
            self.runs.restore(table, model.frontier)

    def _push(self, rows: list[Row]) -> None:
        if self.model.equal == "sum" and self.model.keys == 1:
            rows = [(end % 10, count, end) for _, count, end in rows if end < 10]
        else:
            rows = sorted(rows, key=lambda row: row[0]) if self.model.equal != "sum" else rows
        if self.model.equal == "newest":
            rows = list({row[0]: row for row in rows}.values())
        self.model.rows += rows
        columns = dict(zip(("key", "count", "end"), np.array(rows, np.int64).reshape(-1, 3).T, strict=True))
        columns["key"] = columns["key"].astype(np.uint64)
        self.runs.push(*(columns[name] for name in self.names), is_run=self.model.equal != "sum")

    def check(self) -> None:
        self._check_rows()
        self._check_runs()

    def _check_rows(self) -> None:
        seen, model = self.model.seen(), self.model
        assert _rows(self.runs.find_rows(np.arange(10, dtype=np.uint64))) == seen
        if model.equal == "sum":
            needles = {"key": [row[0] for row in seen], "end": [row[2] for row in seen]}
            key, end = np.array(needles["key"], np.uint64), np.array(needles["end"], np.int64)
            total = self.runs.total(key) if model.keys == 1 else self.runs.total(key, end)
            assert total.tolist() == [row[1] for row in seen]

    def _check_runs(self) -> None:
        """The invariants of `recension.core.sorted_runs`."""
        runs = list(self.runs)
        assert all(bool((run.key[1:] >= run.key[:-1]).all()) for run in runs)
        assert len({run.serial for run in runs}) == len(runs)
        for run in runs:
            assert not any(column.flags.writeable for column in run.columns.values())
            stored = b"".join(column.tobytes() for column in run.columns.values())
            if len(run.key) == run.written:
                assert self.written.setdefault(run.serial, stored) == stored
            if self.model.equal != "all":
                by = list(
                    zip(*(run.columns[name].tolist() for name in self.names[: self.model.keys]), strict=True)
                )
                assert by == sorted(set(by))
        busy = {run.serial for merge in self.runs._merges for run in merge.sources}
        for start in range(len(runs) - sorted_runs._FAN + 1):
            some = runs[start : start + sorted_runs._FAN]
            steps = (run.size > 2 * max(r.size for r in some[i:]) for i, run in enumerate(some[:-1], 1))
            assert any(steps) or busy & {run.serial for run in some}


def _rows(columns: Columns) -> list[Row]:
    return list(zip(*(columns[name].tolist() for name in ("key", "count", "end")), strict=True))


@pytest.mark.parametrize(("equal", "keys"), [("sum", 1), ("sum", 2), ("newest", 1), ("all", 1)])
@given(steps=STEPS)
def test_seen_as_a_list_of_rows_would_be(equal: Equal, keys: int, steps: list[tuple[str, list[Row]]]) -> None:
    checked = Checked(equal, keys)
    for what, rows in steps:
        checked.do(what, rows)
        checked.check()


def _filled(rows: int, each: int) -> SortedRuns:
    runs = SortedRuns({"key": np.uint64, "end": np.int64}, expiry="end")
    for start in range(0, rows, each):
        keys = np.arange(start, start + each)
        runs.push((keys * 7919 % rows).astype(np.uint64), keys)
    return runs


def test_a_call_merges_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    write, merged = SortedRuns._write, [0]

    def counted(self: SortedRuns, sources: Sequence[Run], parts: Sequence[Columns]) -> Columns:
        merged[-1] += sum(len(part["key"]) for part in parts)
        return write(self, sources, parts)

    monkeypatch.setattr(SortedRuns, "_write", counted)
    runs = SortedRuns({"key": np.uint64, "end": np.int64}, expiry="end")
    for start in range(0, 3000, 3):
        runs.push(np.arange(start, start + 3, dtype=np.uint64) * 7919 % 3001, np.arange(start, start + 3))
        merged.append(0)
    assert max(merged) <= 4 * sorted_runs.STEP
    assert len(runs) == 3000


def test_runs_stay_few_though_merges_take_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "STEP", 16)
    runs = _filled(3000, 1)
    assert len(list(runs)) <= 24


def test_what_has_expired_is_written_out_of_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "STEP", 64)
    runs = _filled(3000, 3)
    for t in range(0, 2999, 10):
        runs.forget_before(t)
    assert len(runs) < 100
    runs.forget_before(FOREVER)
    assert len(runs) == 0


def test_most_runs_are_the_same_after_a_small_batch() -> None:
    """What a checkpoint has stored need not be stored again."""
    runs = _filled(3000, 100)
    before = {run.serial: run.size for run in runs}
    runs.push(np.array([5], np.uint64), np.array([5]))
    kept = sum(size for serial, size in before.items() if serial in {run.serial for run in runs})
    assert kept > 1500
