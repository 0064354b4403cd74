"""Whatever dies between two durable writes, twice in a row: the query goes on from the disk, and is right.

`make test` has the gap in which a checkpoint was once stuck for good: a micro-batch's state is committed, and
the micro-batch is not. `make soak` has every gap (`points.py`), as often as ``KILLS`` says, for every sink.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from scripts.kafka_broker import Broker
from tests.runners.spark.gaps import program
from tests.runners.spark.gaps.harness import Kills, is_reached, rounds
from tests.runners.spark.gaps.points import POINTS, Trap, set_trap
from tests.runners.spark.gaps.program import Start
from tests.runners.spark.kafka.topics import counted, events_of, receive, without_repeats
from tests.runners.spark.lake import killed
from tests.runners.spark.stream.processes import ROOT, workers

pytestmark = [pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")]
# Of the long form, for each sink and writer.
KILLS = int(os.environ.get("KILLS", "24"))
EIGHT = 8
# How long Spark's thread that uploads snapshots sleeps, unless it is told otherwise; and a little.
A_MINUTE = 65.0
_WORKERS = count()


class AwayError(Exception):
    """The sink is away."""


def _fail() -> None:
    raise AwayError("the sink is away")


def _fail_at(spark: Any, folder: Path, sink: str, point: str, times: int) -> None:
    """Start the query, whose sink fails at a point that it reaches for the last of so many times."""
    with set_trap(Trap(point, times, _fail, folder / "ck")):
        query = program.begin(spark, Start(str(folder), sink))
        with pytest.raises(Exception, match="the sink is away"):
            query.awaitTermination()


def _kill_workers() -> None:
    """All Python workers of this session; Spark tries their tasks again."""
    for worker in workers(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)


def _lose_workers(spark: Any, folder: Path, sink: str, point: str, times: int) -> None:
    """The same with workers that die, and the query comes to its end."""
    died = threading.Event()

    def act() -> None:
        _kill_workers()
        died.set()

    with set_trap(Trap(point, times, act, folder / "ck")):
        program.begin(spark, Start(str(folder), sink)).awaitTermination()
    assert died.is_set(), point


@pytest.fixture
def new_workers(spark: Any) -> Iterator[Any]:
    """Called: from now on other Python workers, which know nothing, run what is started."""
    environment = spark.sparkContext.environment

    def renew() -> None:
        environment["RECENSION_TESTS_WORKERS"] = str(next(_WORKERS))

    yield renew
    environment.pop("RECENSION_TESTS_WORKERS", None)


def test_every_gap_of_the_protocol_is_one_in_which_a_query_is_killed() -> None:
    page = (ROOT / "docs" / "design" / "020-checkpoints.md").read_text(encoding="utf-8")
    table = page.partition("## The protocol")[2].partition("\n\nMessages")[0]
    named = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert len(named) > len("gaps")
    assert set(named) <= set(POINTS["own"])


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["own", pytest.param("delta", marks=pytest.mark.soak)])
def test_a_sink_that_fails_between_the_two_commits(
    request: pytest.FixtureRequest, spark: Any, new_workers: Any, tmp_path: Path, sink: str
) -> None:
    """In one session; every start has new state stores and workers, which read the state from the disk."""
    if sink == "delta":
        request.getfixturevalue("delta")
    run = Kills(tmp_path, sink)
    run.feed(4)
    # As a driver leaves it that is killed while Spark writes the very first of its files.
    (tmp_path / "ck" / "offsets").mkdir(parents=True)
    (tmp_path / "ck" / "offsets" / ".0.849c3b32-8e00-4439-a0bf-40d8718a46f0.tmp").touch()
    for times in (1, 1, 2):
        new_workers()
        _fail_at(spark, tmp_path, sink, "written", times)
    new_workers()
    program.begin(spark, Start(str(tmp_path), sink)).awaitTermination()
    run.check_tables(spark)


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["own", "delta", "iceberg"])
@pytest.mark.parametrize("stopped", ["sink", "workers"])
def test_a_sink_or_the_workers_at_every_point(
    request: pytest.FixtureRequest, spark: Any, new_workers: Any, tmp_path: Path, sink: str, stopped: str
) -> None:
    """Twice in a row at each. A sink has the points at which it is at work; a worker may die at any."""
    # Of its own, for a catalog of Iceberg is looked for once.
    spark = (spark if sink == "own" else request.getfixturevalue(sink)).newSession()
    run, at = Kills(tmp_path, sink), POINTS[sink]
    chosen = at[at.index("state") : at.index("written") + 1] if stopped == "sink" else at
    for point in (point for point in chosen if is_reached(sink, "default", point) and point != "upload"):
        for times in (2, 1):
            run.keep_busy(3)
            new_workers()
            if stopped == "sink":
                _fail_at(spark, tmp_path, sink, point, times)
            else:
                _lose_workers(spark, tmp_path, sink, point, times)
            run.kills[point] += 1
        run.check_now()
    new_workers()
    program.begin(spark, Start(str(tmp_path), sink)).awaitTermination()
    run.check_tables(spark)


@pytest.mark.slow
def test_a_driver_killed_between_the_two_commits_with_a_snapshot_in_between(
    spark: Any, new_workers: Any, tmp_path: Path
) -> None:
    """The third start reads the first attempt's snapshot, and changes of the second attempt after it."""
    run = Kills(tmp_path)
    run.kill_at("upload", times=2, snapshots=True)
    new_workers()
    _fail_at(spark, tmp_path, "own", "written", times=3)
    assert (tmp_path / "ck" / "state" / "0" / "0" / "2.zip").exists()
    assert run.done() == 3
    new_workers()
    program.begin(spark, Start(str(tmp_path), "own")).awaitTermination()
    run.check_tables(spark)


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["own", "delta"])
def test_eight_kills_between_the_commits_of_consecutive_micro_batches(
    request: pytest.FixtureRequest, tmp_path: Path, sink: str
) -> None:
    """As a user runs it, who sets nothing."""
    spark = request.getfixturevalue("spark" if sink == "own" else sink)
    run = Kills(tmp_path, sink)
    for number in range(EIGHT):
        # The micro-batch at which it was killed is run to its end, and it is killed at the next one.
        run.kill_at("written", times=1 if number == 0 else 2)
        assert run.done() == number
    run.check_end(spark)


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["own", "delta"])
def test_a_snapshot_uploaded_by_one_of_the_kills(
    request: pytest.FixtureRequest, tmp_path: Path, sink: str
) -> None:
    spark = request.getfixturevalue("spark" if sink == "own" else sink)
    run = Kills(tmp_path, sink)
    for number in range(EIGHT):
        run.kill_at("upload" if number % 4 == 2 else "written", 1 + number % 2, snapshots=number % 4 == 2)
    run.check_end(spark)


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["own", "delta"])
def test_a_sink_that_is_away_for_a_minute(request: pytest.FixtureRequest, tmp_path: Path, sink: str) -> None:
    """No kill; the state is committed meanwhile, and its snapshot is uploaded."""
    spark = request.getfixturevalue("spark" if sink == "own" else sink)
    run = Kills(tmp_path, sink)
    run.lose_sink(5.0, snapshots=True)
    run.lose_sink(A_MINUTE, snapshots=False)
    run.check_end(spark)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("sink", "writer"),
    [
        ("own", "default"),
        ("own", "driver"),
        ("own", "tasks"),
        ("delta", "default"),
        ("delta", "driver"),
        ("iceberg", "default"),
    ],
)
def test_kills_in_every_gap(request: pytest.FixtureRequest, tmp_path: Path, sink: str, writer: str) -> None:
    """Twice in a row in each, each time of a later micro-batch; a worker dies once a round."""
    spark = request.getfixturevalue("spark" if sink == "own" else sink)
    if sink == "iceberg":
        killed.with_catalog(spark, tmp_path)
    run = Kills(tmp_path, sink, writer=writer)
    for point, snapshots in rounds(sink, writer):
        if run.kills.total() >= KILLS:
            break
        run.kill_twice(point, snapshots=snapshots)
        if point == "commit":
            run.kill_worker()
    run.check_end(spark)


@pytest.mark.soak
def test_kills_in_every_gap_of_a_query_into_kafka(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """And the broker stands still for a while, in the middle of a micro-batch, before a kill."""
    topic = broker.create_topic(f"gaps-{tmp_path.name}", 2)
    run = Kills(tmp_path, "kafka", servers=broker.address, topic=topic)
    for point, snapshots in rounds("kafka", "default"):
        if run.kills.total() >= KILLS:
            break
        run.kill_twice(point, snapshots=snapshots)
    run.keep_busy(3)
    running = run.start("asked", how="stands still", snapshots=True, broker=broker.pid)
    try:
        running.wait_for(lambda: run.is_between_commits() and run.has_snapshot())
        running.kill()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    run.kills["broker stands still"] += 1
    run.check_end(spark)
    kept = without_repeats(receive(broker.address, topic))
    assert events_of(kept, ("n", "keys", "top")) == counted(run.expected())
