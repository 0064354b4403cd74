"""The connections over which tasks ask for their state: Spark's end is closed too, while a query runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.test_bad_input import _batch, _counted

import recension as rc
from recension.runners.spark.stream import connections

_CLOSE_WAIT = "08"


class Client:
    """As Spark's, with an end for each side."""

    def __init__(self, held: ExitStack) -> None:
        self._client_socket, self.server = map(held.enter_context, socket.socketpair())
        self.sockfile = held.enter_context(self._client_socket.makefile("rwb"))
        self.told: list[StatefulProcessorHandleState] = []
        self.handle_state = StatefulProcessorHandleState.CREATED

    def set_handle_state(self, state: StatefulProcessorHandleState) -> None:
        self.told.append(state)

    @property
    def is_open(self) -> bool:
        return self._client_socket.fileno() >= 0


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    monkeypatch.setattr(connections, "_kept", [])
    with ExitStack() as stack:
        yield stack


def _began(held: ExitStack) -> Client:
    client = Client(held)
    connections.keep_open(SimpleNamespace(_statefulProcessorApiClient=client))
    return client


def test_a_connection_is_kept_until_spark_has_ended_it(held: ExitStack) -> None:
    first = _began(held)
    for state in (StatefulProcessorHandleState.DATA_PROCESSED, StatefulProcessorHandleState.CLOSED):
        first.set_handle_state(state)
    assert first.told == [StatefulProcessorHandleState.DATA_PROCESSED]
    assert first.handle_state is StatefulProcessorHandleState.CLOSED
    second = _began(held)
    assert first.is_open
    first.server.close()
    third = _began(held)
    assert [client.is_open for client in (first, second, third)] == [False, True, True]


def test_a_worker_keeps_only_a_few(held: ExitStack) -> None:
    """A server that failed may never end them."""
    clients = [_began(held) for _ in range(20)]
    assert [client.is_open for client in clients] == [False] * 12 + [True] * 8


@pytest.mark.parametrize(
    ("version", "is_mended"),
    [("4.1.3", False), ("4.2.0", False), ("4.2.1", True), ("4.3.0", True), ("4.10.0.dev1", True)],
)
def test_only_where_spark_needs_it(version: str, is_mended: bool) -> None:
    assert connections.is_mended(version) is is_mended


def _descriptors(jvm: int) -> tuple[int, int]:
    """How many Java has open, and how many are connections that only the other side has closed."""
    folder = Path(f"/proc/{jvm}")
    waiting = {
        row.split()[9]
        for table in ("tcp", "tcp6")
        for row in (folder / "net" / table).read_text().splitlines()[1:]
        if row.split()[3] == _CLOSE_WAIT
    }
    links = []
    for descriptor in (folder / "fd").iterdir():
        try:
            links.append(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    return len(links), sum(link.removeprefix("socket:[").rstrip("]") in waiting for link in links)


def _run(spark: Any, folder: Path, micro_batches: int) -> list[tuple[int, int]]:
    """So many micro-batches in two shards; the descriptors after each tenth of them."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    found: list[tuple[int, int]] = []
    for number in range(micro_batches):
        events = _batch(rc.Insert({"k": number % 3}, number, number + 2), rc.Cti(number))
        driver.put(folder / "in", number, events)
    answers = rc.spark.stream(spark, _counted(), {"s": folder / "in"}, shards=2, files_per_batch=1)
    query = rc.spark.write(
        answers, history=folder / "table", checkpoint=folder / "ck", trigger={"availableNow": True}
    )
    try:
        while query.isActive:
            done = [int(file.name) for file in (folder / "ck" / "commits").glob("[0-9]*")]
            if max(done, default=0) >= (len(found) + 1) * micro_batches // 10:
                found.append(_descriptors(jvm))
            query.awaitTermination(0.1)
        query.awaitTermination()
    finally:
        query.stop()
    return [*found, _descriptors(jvm)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for descriptors in /proc")
def test_no_connection_is_left_by_a_micro_batch(spark: Any, tmp_path: Path) -> None:
    """There were two more after every micro-batch, of which a start of a query may leave a few."""
    before = _descriptors(int(spark._jvm.java.lang.ProcessHandle.current().pid()))[1]
    after = _run(spark, tmp_path, 12)[-1][1]
    assert after - before < 12


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for descriptors in /proc")
def test_descriptors_do_not_grow_over_a_thousand_micro_batches(spark: Any, tmp_path: Path) -> None:
    """There were 2,000 more; what Java opens and closes now and then is some tens."""
    found = _run(spark, tmp_path, 1000)
    print(f"\nopen, and only by us, after each hundred micro-batches: {found}")
    assert len(found) > 5
    assert max(opened for opened, _ in found) - found[0][0] < 100
    assert found[-1][1] - found[0][1] < 10
