"""Sessions in worker processes: errors, deaths, snapshots, and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.runners.workers import crew
from recension.runners.workers.engine import SplitEngine
from recension.testing.assertions import assert_equivalent

SOURCE = rc.source("s", {"k": "string", "v": "int64"})
QUERY = SOURCE.group_by("k").agg(n=rc.count(), total=rc.sum("v"), speculate="eager")
KEYS = "abcdefgh"


def _rows(start: int = 0) -> list[Any]:
    return [rc.Insert({"k": key, "v": at}, start + at, start + at + 9) for at, key in enumerate(KEYS)]


def _pids(session: rc.Session) -> list[int]:
    engine = session._run.engine
    assert isinstance(engine, SplitEngine)
    return engine.pids


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def _wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_run_gives_the_same_history() -> None:
    rng = np.random.default_rng(5)
    vs = np.sort(rng.integers(0, 1000, 3000))
    columns = {"k": [KEYS[i] for i in rng.integers(0, 8, 3000)], "v": rng.integers(0, 9, 3000)}
    table = pa.table({"_vs": vs, "_ve": vs + 7, **columns})
    one = rc.run(QUERY, {"s": table}, batch_size=100)
    three = rc.run(QUERY, {"s": table}, batch_size=100, workers=3)
    assert_equivalent(three.history(), one.history())
    found = {line.name: (line.events_in, line.state_rows) for line in three.metrics}
    assert found == {line.name: (line.events_in, line.state_rows) for line in one.metrics}


@pytest.mark.parametrize("query", [SOURCE.align(3), SOURCE.advance_time(3).align(3)], ids=["align", "paced"])
def test_changes_come_out_where_only_a_clock_has_moved(query: rc.Stream) -> None:
    """A worker that gets no row in a step may still show what has waited long enough for rows of others."""
    with rc.session(query, workers=2) as live:
        for row in _rows():
            live.push("s", [row])
            live.read()
        live.push("s", [rc.Cti(rc.FOREVER)])
        assert len(live.history()) == len(KEYS)


def test_dropped_elements_are_counted_and_kept() -> None:
    source = rc.source("s", {"k": "string", "v": "int64"}, on_violation="drop")
    query = source.group_by("k").agg(n=rc.count(), speculate="eager")
    elements = [*_rows(), rc.Cti(20), *_rows(1), rc.Cti(90)]
    one, two = (rc.run(query, {"s": elements}, workers=workers) for workers in (1, 2))
    assert [line.dropped for line in two.metrics] == [line.dropped for line in one.metrics]
    assert sum(len(batch) for _, batch in two.dropped["s"]) == 8


def _fail_on_seven(value: int) -> int:
    if value == 7:
        raise ValueError("seven is not allowed")
    return value


def _push_and_read(session: rc.Session, *starts: int) -> None:
    for start in starts:
        session.push("s", _rows(start))
        session.read()


@pytest.mark.parametrize(
    "query",
    [
        SOURCE.map(lambda row: {"v": _fail_on_seven(row["v"])}, {"v": "int64"})
        .group_by("v")
        .agg(n=rc.count()),
        QUERY.map(lambda row: {"v": _fail_on_seven(row["total"])}, {"v": "int64"}),
    ],
    ids=["before the keys", "after them"],
)
def test_an_error_is_raised_as_in_one_process(query: rc.Stream) -> None:
    said = []
    for workers in (1, 2):
        live = rc.session(query, workers=workers)
        with pytest.raises(rc.RecensionError, match="seven is not allowed") as caught:
            _push_and_read(live, 0)
        said.append(str(caught.value))
        if isinstance(caught.value, rc.StreamError):  # a row that was looked at before anything changed
            live.push("s", _rows()[:2])
        else:
            with pytest.raises(rc.RecensionError, match="the session failed"):
                live.push("s", _rows())
    assert said[0].removeprefix("s: row 8: ") == said[1]
    assert "\n" not in said[0]


def test_a_push_that_is_refused_changes_nothing() -> None:
    with rc.session(QUERY, workers=2) as live:
        live.push("s", [*_rows(), rc.Cti(20)])
        with pytest.raises(rc.RecensionError, match="row 10"):
            live.push("s", [rc.Insert({"k": "a", "v": 1}, 3, 5)])
        live.push("s", _rows(30))
        live.close()
        assert_equivalent(live.history(), rc.run(QUERY, {"s": [*_rows(), *_rows(30)]}, close=True).history())


def test_an_end_that_no_step_can_take_is_refused() -> None:
    query = SOURCE.group_by("k").tumbling(5).agg(n=rc.count())
    said = []
    for workers in (1, 2):
        live = rc.session(query, workers=workers)
        live.push("s", [rc.Insert({"k": key, "v": 1}, 1) for key in KEYS])
        with pytest.raises(rc.RecensionError) as caught:
            live.close()
        said.append(str(caught.value))
        live.push("s", _rows(20))
        assert len(live.read().batches) >= 0
        live.stop()
    assert said[0] == said[1]


def test_a_killed_worker_is_an_error_and_a_snapshot_goes_on() -> None:
    live = rc.session(QUERY, workers=2)
    live.push("s", _rows())
    live.read()
    saved = live.snapshot()
    os.kill(_pids(live)[1], signal.SIGKILL)
    with pytest.raises(rc.RecensionError, match=r"worker 1 of 2, process \d+, was killed by signal 9"):
        _push_and_read(live, *range(10))
    live.restore(saved)
    live.push("s", _rows(5))
    live.close()
    assert_equivalent(live.history(), rc.run(QUERY, {"s": [*_rows(), *_rows(5)]}, close=True).history())


def test_a_snapshot_says_how_many_workers_it_needs() -> None:
    live = rc.session(QUERY, workers=2)
    live.push("s", _rows())
    live.read()
    saved = live.snapshot()
    other = rc.session(QUERY, workers=2)
    other.restore(saved)
    other.push("s", _rows(40))
    other.close()
    assert_equivalent(other.history(), rc.run(QUERY, {"s": [*_rows(), *_rows(40)]}, close=True).history())
    for workers in (1, 3):
        with pytest.raises(rc.RecensionError, match="restore it with workers=2"):
            rc.session(QUERY, workers=workers).restore(saved)
    with pytest.raises(rc.RecensionError, match="restore it with workers=1"):
        live.restore(rc.session(QUERY).snapshot())


@pytest.mark.parametrize("end", ["close", "stop", "forget"])
def test_workers_end_with_the_session(end: str) -> None:
    live = rc.session(QUERY, workers=2)
    live.push("s", _rows())
    _ = live.read().metrics
    pids = _pids(live)
    assert all(map(_is_there, pids))
    if end == "close":
        live.close()
        assert len(live.read().batches) > 0
        assert live.metrics()[-1].events_in == 8
        assert live.snapshot()
    elif end == "stop":
        live.stop()
        with pytest.raises(rc.RecensionError, match="stopped"):
            live.read()
    else:
        del live
        gc.collect()
    assert _wait_for(lambda: not any(map(_is_there, pids)))


@pytest.mark.slow
def test_workers_end_with_their_parent() -> None:
    program = """
import os, signal, recension as rc
s = rc.source("s", {"k": "string"})
live = rc.session(s.group_by("k").agg(n=rc.count()), workers=2)
live.push("s", [rc.Insert({"k": "a"}, 1, 2)])
print(*live._run.engine.pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert _wait_for(lambda: not any(map(_is_there, pids)))


@pytest.mark.slow
def test_other_threads_in_arrow_are_no_reason_to_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file, is_over = tmp_path / "rows.parquet", threading.Event()
    pq.write_table(pa.table({"v": np.arange(100_000)}), file, row_group_size=20_000)

    def work() -> None:
        while not is_over.is_set():
            pq.read_table(file)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    monkeypatch.setattr(crew, "START_WITHIN", 5.0)
    try:
        said = _describe_start()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert said == "started" or "open the session before such threads" in said


def _describe_start() -> str:
    try:
        with rc.session(QUERY, workers=2) as live:
            _push_and_read(live, 0)
    except rc.RecensionError as why:
        return str(why)
    return "started"


def test_what_cannot_be_split_runs_here_and_says_why() -> None:
    live = rc.session(SOURCE.agg(n=rc.count()), workers=2)
    assert "in this process, not in 2 workers: 'aggregate n = count(), speculate perfect' has no key" in (
        live.explain()
    )
    assert "in 2 workers\nfragment 1, in every shard\n" in rc.session(QUERY, workers=2).explain()


def test_what_needs_one_process_is_refused(tmp_path: Any) -> None:
    live = rc.session(QUERY, workers=2)
    with pytest.raises(rc.RecensionError, match="record: the session runs in 2 workers"):
        rc.record(live, tmp_path / "r")
    with pytest.raises(rc.RecensionError, match="memory="):
        rc.session(QUERY, workers=2, memory="64MB")
    for workers in (0, -1, 1.5, True, "2"):
        with pytest.raises(rc.RecensionError, match="workers is a number of processes from 1"):
            rc.session(QUERY, workers=workers)  # type: ignore[arg-type] # that is the test


def test_a_merge_is_split_by_payload_and_takes_no_other_stream() -> None:
    a, b = (rc.source(name, {"k": "string", "v": "int64"}) for name in "ab")
    merged = rc.merge(a, b, case="R3")
    inputs = {"a": [*_rows(), rc.Cti(50)], "b": [*_rows()[::-1], rc.Cti(40)]}
    one, two = (rc.run(merged, inputs, workers=workers) for workers in (1, 2))
    assert_equivalent(two.history(), one.history())
    with pytest.raises(rc.RecensionError, match="runs in 2 workers"):
        rc.session(merged, workers=2).attach(rc.source("c", {"k": "string", "v": "int64"}))


def test_external_ctis_that_count_all_elements_are_refused() -> None:
    query = SOURCE.finalize().group_by("k").agg(n=rc.count())
    live = rc.session(query, workers=2)
    with pytest.raises(rc.RecensionError, match="counts the elements of all workers"):
        live.push("s", [*_rows(), rc.ExternalCti(0, 5, 5)])
