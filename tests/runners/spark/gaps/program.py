"""A query as a program that kills itself in a gap between two writes: ``program.py JSON`` with a `Start`.

It reads the files of FOLDER/in, one a micro-batch, by the query of `stream/driver.py`. Started again, it goes
on from its checkpoint. Without a point it comes to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts import kafka_jars, lake_jars
from tests.runners.spark.gaps.points import MAINTENANCE, Trap, set_trap
from tests.runners.spark.lake import killed
from tests.runners.spark.stream import driver
from tests.short_sessions import short_session

import recension as rc
from recension.api.stream import Stream
from recension.runners.spark.lake.delta import SETTINGS

OWN = {"changelog": "log", "history": "table"}


@dataclass(frozen=True)
class Start:
    """One start of the program, which ends at a point that it reaches for the last of so many times.

    ``how`` it ends: it is killed; its sink is away for so many ``seconds`` and then fails; or its ``broker``,
    a process, stands still from then on. ``writer``: the driver, tasks, or as it comes by default.
    """

    folder: str
    sink: str
    point: str = ""
    times: int = 1
    how: str = "killed"
    writer: str = "default"
    snapshots: bool = False
    seconds: float = 0.0
    servers: str = ""
    topic: str = ""
    broker: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def die() -> None:
    """The driver and its Java process at once; Python workers notice, and end some time after."""
    os.killpg(0, signal.SIGKILL)


class DyingWorker:
    """For ``map``: kills the worker that it runs in, once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, rows: Any) -> Any:
        order = Path(self._folder) / "worker"
        try:
            order.rename(order.with_name("worker is dead"))
        except FileNotFoundError:
            return rows
        os.kill(os.getpid(), signal.SIGKILL)
        return rows


def asked(folder: str) -> Stream:
    """The query, and a step that can be told to kill its worker."""
    answers = driver.query()
    return answers.map(DyingWorker(folder), answers.schema, per_row=False)


def session(start: Start) -> Any:
    settings: dict[str, str] = dict(MAINTENANCE) if start.snapshots else {}
    if start.sink == "kafka":
        settings["spark.jars"] = ",".join(map(str, kafka_jars.jars("connector")))
    elif start.sink != "own":
        settings["spark.jars"] = ",".join(map(str, lake_jars.jars(start.sink)))
        settings |= SETTINGS if start.sink == "delta" else {}
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    return rc.spark.session("local[2,4]", "gaps", **short_session(), **named)


def begin(spark: Any, start: Start) -> Any:
    """Start the query."""
    folder = Path(start.folder)
    rows = driver.read(spark, folder / "in")
    answers = rc.spark.stream(spark, asked(start.folder), {"s": rows}, shards=driver.SHARDS)
    every: dict[str, Any] = {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    if start.sink == "kafka":
        return rc.spark.write_kafka(answers, start.servers, start.topic, key="n", **every)
    if start.sink == "own":
        where: dict[str, Any] = {name: folder / place for name, place in OWN.items()}
        return rc.spark.write(answers, **where, record=folder / "recording", record_edges="all", **every)
    killed.with_catalog(spark, folder)
    return rc.spark.write(answers, **killed.addresses(start.sink, folder), **every)


def main(start: Start) -> None:
    os.setpgid(0, 0)
    if start.writer != "default":
        killed.written_by(start.writer)
    folder = Path(start.folder)
    trap = Trap(start.point, start.times, lambda: _end(start), folder / "ck")
    with set_trap(trap):
        spark = session(start)
        query = begin(spark, start)
        try:
            query.awaitTermination()
        except Exception:
            if start.how != "away":
                raise
            print(f"the sink was away: {rc.spark.reason_of(query)}")
        spark.stop()


def _end(start: Start) -> None:
    if start.how == "killed":
        (Path(start.folder) / "killed").write_text(start.point)
        die()
    if start.how == "stands still":
        os.kill(start.broker, signal.SIGSTOP)
        return
    time.sleep(start.seconds)
    raise OSError("the sink is away")


if __name__ == "__main__":
    main(Start(**json.loads(sys.argv[1])))
