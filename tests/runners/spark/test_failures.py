"""What stopped a Spark job, in one line with advice: a full disk, a worker too late, damaged state."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised
from tests.runners.spark.stream.rehearsal import Memory

from recension.core.difference import difference
from recension.core.errors import RecensionError
from recension.core.formats.parquet import ParquetSink
from recension.runners.spark import job
from recension.runners.spark.failures import BUSY, reason_of
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.stream import task
from recension.runners.spark.stream.codec import require

QUERY_HEAD = (
    "[STREAM_FAILED] Query [id = 9a51d5ae, runId = b5c32e7d] terminated with exception: {} SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: [id = 9a51d5ae, runId = b5c32e7d]\n"
    'Current Available Offsets: {{FileStreamSource[file:/data/in]: {{"logOffset":1}}}}\n'
)
# As Spark 4.3 told it.
IN_CHECKPOINT = QUERY_HEAD.format("java.io.IOException: No space left on device")
IN_WORKER = """An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the worker:
Traceback (most recent call last):
  File "/app/query.py", line 30, in work
    f.write("x"*100000);
    ^^^^^^^^^^^^^^^^^^^
OSError: [Errno 28] No space left on device: '/scratch/part 1'
 SQLSTATE: 38000
"""
IN_STATE = QUERY_HEAD.format(
    "org.rocksdb.RocksDBException: While appending to file: /local/StateStoreId(op=0)/000012.log: "
    "No space left on device"
)
NO_WORKER = QUERY_HEAD.format("Python worker failed to connect back.")
LATE_WORKER = (
    "Caused by: java.net.SocketTimeoutException: "
    "Timed out while waiting for the Python worker to connect back after 60000 ms"
)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        (IN_CHECKPOINT, "of the checkpoint or of Spark's scratch files (spark.local.dir)"),
        (IN_WORKER, "of /scratch/part"),
        (IN_STATE, "of /local/StateStoreId(op=0)/000012.log"),
    ],
)
def test_a_full_disk(told: str, place: str) -> None:
    assert reason_of(PySparkException(told)) == (
        f"no space left on the disk {place}; make room and start again, the query goes on where it stopped"
    )


@pytest.mark.parametrize("told", [NO_WORKER, LATE_WORKER])
def test_a_worker_that_came_too_late(told: str) -> None:
    assert reason_of(PySparkException(told)) == BUSY
    assert "start the query again" in BUSY


@pytest.mark.parametrize("make", [Changelog, lambda path: HistoryTable(path, keep=0)])
def test_a_full_disk_under_a_table(
    tmp_path: Path, make: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first file, the second and so on: told in one line, and once there is room it goes on."""
    batches, sink, failed = revised(3, 2, size=60), make(tmp_path), 0
    sink.apply(fed(batches[0], 0))
    for room in range(20):
        with monkeypatch.context() as patch:
            _fill(patch, room)
            try:
                sink.apply(fed(batches[1], 1))
                break
            except RecensionError as why:
                told = str(why)
        assert told.startswith(f"no space left on the disk of {tmp_path}; make room")
        found = read(tmp_path)
        # A part of the changelog may be there already, and only its mark be missing.
        assert not all(difference(found, expected) for expected in prefixes(batches))
        failed += 1
    assert failed > 1
    assert_same(read(tmp_path), prefixes(batches)[1])


def _fill(patch: pytest.MonkeyPatch, room: int) -> None:
    """There is room for so many files."""
    left = [room]

    def guarded(write: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*given: Any, **named: Any) -> Any:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            return write(*given, **named)

        return attempt

    patch.setattr(ParquetSink, "close", guarded(ParquetSink.close))
    patch.setattr(Path, "write_bytes", guarded(Path.write_bytes))


class Missed:
    """A query of which Spark gives up the first attempts."""

    def __init__(self, told: list[str]) -> None:
        self.told, self.started = told, 0
        self.isActive = False
        self.recentProgress: list[dict[str, Any]] = []

    def start(self, *_: Any, **__: Any) -> Missed:
        self.started += 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802
        if self.told:
            raise StreamingQueryException(self.told.pop(0))


def test_a_job_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times at most, and only where nothing but the time was wrong."""
    monkeypatch.setattr(job, "_PAUSE", 0.0)
    monkeypatch.setattr(job, "stream", lambda *_, **__: None)
    for told, started, reason in (
        ([NO_WORKER] * 3, 4, None),
        ([NO_WORKER] * 4, 4, BUSY),
        ([IN_CHECKPOINT], 1, "no space left"),
    ):
        missed = Missed(list(told))
        monkeypatch.setattr(job, "write", missed.start)
        plan: Any = None
        one = job.Job(None, plan, {}, tmp_path)
        if reason is None:
            assert one.run(lambda _: None, lambda: False)
        else:
            with pytest.raises(RecensionError, match=reason[:20]):
                one.run(lambda _: None, lambda: False)
        assert missed.started == started


LOST_STATE = QUERY_HEAD.format(
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
    "sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent):\n"
    '  File "/app/pyspark/sql/utils.py", line 176, in call\n'
    "py4j.protocol.Py4JJavaError: An error occurred while calling o492.getResult.\n"
    ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
    "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred "
    "during loading state.  SQLSTATE: 58030\n"
    "Caused by: java.io.FileNotFoundException: File file:/ck/state/0/0/1.changelog does not exist\n"
)
LOST_FILES = QUERY_HEAD.format("batch 2 doesn't exist")


@pytest.mark.parametrize(
    ("told", "gist"),
    [
        (LOST_STATE, "File file:/ck/state/0/0/1.changelog does not exist"),
        (LOST_FILES, "batch 2 doesn't exist"),
    ],
)
def test_a_damaged_checkpoint(told: str, gist: str) -> None:
    assert reason_of(PySparkException(told)) == (
        f"the checkpoint is damaged: {gist}; `recension repair CHECKPOINT` says what is still good; or "
        "restore the checkpoint and its tables from the same backup, or start with new ones"
    )


def test_state_without_one_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an AssertionError, which named neither the checkpoint nor what to do."""
    with pytest.raises(RecensionError) as told:
        require(Memory(), "ab.0")
    assert str(told.value) == (
        "the checkpoint is damaged: the state of task 0 lacks its part ab.0; `recension repair CHECKPOINT` "
        "says what is still good, and how to go on"
    )
    settings = {task.CHECKPOINT: "/ck"}
    monkeypatch.setattr(task, "task_setting", settings.get)
    words = r"^the checkpoint /ck is damaged: .*; `recension repair /ck` says"
    with pytest.raises(RecensionError, match=words):
        require(Memory(), "ab.0")


def test_whatever_else_stops_a_query() -> None:
    assert reason_of(PySparkException(QUERY_HEAD.format("division by zero"))) == "division by zero"


def _lost(cause: str) -> str:
    """What Spark tells when it could not read the state, for whatever reason."""
    return (
        QUERY_HEAD.format("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. ")
        + f"Caused by: {cause}\n"
    )


@pytest.mark.parametrize(
    ("cause", "said", "advice"),
    [
        (
            'java.io.IOException: Cannot run program "chmod": error=24, Too many open files',
            "too many open files",
            "ulimit -n",
        ),
        (
            "java.io.FileNotFoundException: /ck/state/0/0/7.changelog (Too many open files)",
            "/ck/state/0/0/7.changelog: too many open files",
            "ulimit -n",
        ),
        ("java.io.IOException: Input/output error", "input/output error", "log"),
        ("java.io.IOException: error=12, Cannot allocate memory", "cannot allocate memory", "memory"),
        (
            "java.io.IOException: error=11, Resource temporarily unavailable",
            "resource temporarily",
            "ulimit -u",
        ),
        ("java.io.FileNotFoundException: /ck/state/0/0/7.zip (Permission denied)", "/ck/state", "user"),
        ("org.rocksdb.RocksDBException: Read-only file system", "read-only file system", "writable"),
    ],
)
def test_what_the_operating_system_refuses_is_no_damage(cause: str, said: str, advice: str) -> None:
    told = reason_of(PySparkException(_lost(cause)))
    assert told.startswith(said)
    assert advice in told
    assert told.endswith("the query goes on where it stopped") or "once it can be read" in told
    assert "damaged" not in told
    assert "\n" not in told


def test_too_many_open_files_wherever_they_are_opened() -> None:
    told = reason_of(PySparkException(IN_WORKER.replace("No space left on device", "Too many open files")))
    assert told.startswith("/scratch/part: too many open files; raise the limit")


@pytest.mark.parametrize(
    "cause", ["java.net.ConnectException: Connection refused", "java.lang.OutOfMemoryError: Java heap space"]
)
def test_what_another_server_or_memory_lacks_is_no_damage(cause: str) -> None:
    assert "damaged" not in reason_of(PySparkException(_lost(cause)))
