"""A stuck or damaged checkpoint: what is still good, and how the query goes on without losing answers.

What is good    the state after a micro-batch is good if Spark can read it, for every shard of every level,
                and all is there that its heads name. It is looked for from the last micro-batch backwards.
How to go on    the checkpoint is set back to that micro-batch. The offsets of those after it are set aside,
                and brought back one by one when the query starts (`sinks.replay`): they are run again over
                the same input, and the tables skip what they have, by number and content, as after a kill.
What cannot     a checkpoint whose logs are damaged, or cleared up too far; one whose input is gone; one that
                writes to what does not know its micro-batches: to Kafka, or a user's own sink.
Nothing is      removed: what does not belong to the state any more is moved into ``recension.repair``.
                Whatever the moment at which it is killed, a second repair finishes it.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recension.core.errors import FormatError, RecensionError
from recension.runners.spark.failures import is_damage, reason_of
from recension.runners.spark.sinks.checkpoint import (
    TABLES,
    InputLog,
    LocalFiles,
    listed_sources,
    query_of,
    shards_of,
)
from recension.runners.spark.sinks.files import disk_errors, publish_text, sync_folder
from recension.runners.spark.sinks.replay import FOLDER, PLAN
from recension.runners.spark.stream.chunks import HEAD, Head, read_head
from recension.runners.spark.stream.packing import path_of

# A version of the state: 7.changelog, 7.zip, 7_1b2c.zip; with Spark's checksums beside them.
_VERSION: Final = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:changelog|zip|delta|snapshot)(?:\.crc)?$")
# What else Spark's reader says where there is no state to be read.
_UNREADABLE: Final = re.compile(r"MISSING_COLUMN_FAMILY|\[STDS_\w+\]")
# All has been moved that a repair sets aside.
MOVED: Final = "moved"
_FRESH: Final = (
    "start with a new checkpoint and new tables, which read the input from the beginning, or restore "
    "checkpoint and tables from one backup"
)


@dataclass(frozen=True)
class Finding:
    """What a checkpoint is, and how to go on."""

    place: Path
    query: str
    done: int
    """The last micro-batch that was done."""
    begun: int
    good: int
    """The last one whose state is good; -1 for none."""
    reason: str = ""
    """What is wrong with the state after ``done``."""
    obstacle: str = ""
    """Why it cannot be set back to ``good``."""

    @property
    def is_sound(self) -> bool:
        """Is there nothing to repair?"""
        return not self.reason

    def describe(self) -> Iterator[str]:
        """In lines."""
        done = f"whose micro-batch {self.done} is done" if self.done >= 0 else "which begins anew"
        yield f"{self.place}: the checkpoint of query {self.query}, {done}"
        if self.is_sound:
            again = f"; micro-batches {self.done + 1} to {self.begun} are run again when the query starts"
            yield f"nothing is missing{again if self.begun > self.done else ''}"
            return
        yield f"the state after micro-batch {self.done} is damaged: {self.reason}"
        yield (
            f"the last good state is that after micro-batch {self.good}"
            if self.good >= 0
            else "no state that is still there is good"
        )
        if self.obstacle:
            yield f"it cannot be repaired: {self.obstacle}"
        else:
            yield (
                f"to go on: `recension repair {self.place} --apply`, then start the query as before; it runs "
                f"micro-batches {self.good + 1} to {self.begun} again, over the same input, and its tables "
                "skip what they have"
            )


def checkpoint_in(path: Path) -> Path:
    """The checkpoint of Spark's: the folder itself, or that of a job of the command in it."""
    for place in (path, path / "spark"):
        if (place / "offsets").is_dir():
            return place.absolute()
    raise RecensionError(f"{path}: not a checkpoint of a query that has begun: there are no offsets")


def examine(spark: SparkSession, place: Path, tell: Callable[[str], None] = lambda _: None) -> Finding:
    """Look for the last good state; nothing is changed."""
    files, plan = LocalFiles(place), _read_plan(place)
    if plan:
        _set_aside(place, plan)
    query, done = query_of(files), _last_whole(place, "commits")
    if query is None or (done < 0 and not plan):
        raise RecensionError(f"{place}: no micro-batch is done, nothing is lost: start with a new checkpoint")
    begun = max(done, _last_whole(place, "offsets"), plan.get("begun", -1))
    finding = partial(Finding, place, query, done, begun)
    tell(f"state after micro-batch {done}")
    reason = _fault_of(spark, place, done) if done >= 0 else ""
    if not reason and not (fault := _fault_of_logs(place, done)):
        return finding(done)
    kept = {*_numbers(place, "offsets"), *(_numbers(place / FOLDER, "offsets") if plan else ())}
    good = _last_good(spark, place, done, kept, tell) if reason else done
    return finding(good, reason or fault, _obstacle(files, kept, good, begun))


def _last_good(
    spark: SparkSession, place: Path, done: int, kept: set[int], tell: Callable[[str], None]
) -> int:
    """The last micro-batch before ``done`` whose state is good, as far back as is known; -1 for none."""
    number = done - 1
    while number >= 0 and number in kept:
        tell(f"state after micro-batch {number}")
        if not _fault_of(spark, place, number):
            return number
        number -= 1
    return -1


def repair(finding: Finding) -> None:
    """Set a checkpoint back to its last good state."""
    if finding.is_sound or finding.obstacle:
        raise RecensionError("nothing to repair" if finding.is_sound else finding.obstacle)
    plan = {"good": finding.good, "done": finding.done, "begun": finding.begun}
    with disk_errors(finding.place):
        aside = finding.place / FOLDER
        aside.mkdir(exist_ok=True)
        (aside / MOVED).unlink(missing_ok=True)
        publish_text(aside / PLAN, json.dumps(plan))
        _set_aside(finding.place, plan)


def _set_aside(place: Path, plan: dict[str, int]) -> None:
    """Move away what comes after the good state. As long as that is not done no query starts on what is left.

    The state first: without it a start fails. Of offsets and commits the last first.
    """
    good = plan["good"]
    if (place / FOLDER / MOVED).exists():
        return
    for folder in sorted(place.glob("state/*/[0-9]*")):
        for file in sorted(folder.iterdir()):
            version = _VERSION.match(file.name)
            if version and int(version[1]) > good + 1:
                _move(place, file)
    for log, last_kept in (("offsets", min(good + 1, plan["begun"])), ("commits", good)):
        for number in sorted(_numbers(place, log), reverse=True):
            if number > last_kept:
                _move(place, place / log / f".{number}.crc")
                _move(place, place / log / str(number))
    publish_text(place / FOLDER / MOVED, "")


def _read_plan(place: Path) -> dict[str, int]:
    """What an earlier repair set out to do and is not done yet."""
    file = place / FOLDER / PLAN
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _move(place: Path, file: Path) -> None:
    if not file.exists():
        return
    target = place / FOLDER / file.relative_to(place)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file, target)
    sync_folder(target.parent)


def _fault_of(spark: SparkSession, place: Path, number: int) -> str:
    """What is wrong with the state after a micro-batch; nothing if it is good."""
    levels = sorted(int(folder.name) for folder in place.glob("state/[0-9]*"))
    if not levels:
        return "there is no state"
    shards = shards_of(LocalFiles(place))
    for level in levels:
        # Spark's reader takes the shards that it finds.
        there = len([*place.glob(f"state/{level}/[0-9]*")])
        if shards is not None and there != shards:
            return f"level {level + 1} has the state of {there} shards, not of {shards}"
        try:
            held = _read_names(spark, place, level, number)
        except (PySparkException, Py4JError) as why:
            if not is_damage(str(why)) and not _UNREADABLE.search(str(why)):
                raise RecensionError(f"{place}: the state cannot be read: {reason_of(why)}") from None
            return reason_of(why).removeprefix("the checkpoint is damaged: ").split("; ")[0]
        for shard, (names, head) in sorted(held.items()):
            if head is None:
                return f"level {level + 1}, shard {shard} has parts and no head"
            if missing := sorted(_needed(head) - names):
                return (
                    f"level {level + 1}, shard {shard} lacks {len(missing)} of its parts, {missing[0]} first"
                )
    return ""


def _needed(head: Head) -> set[str]:
    return {name for name, *_ in head.pieces} | head.chunks()


def _read_names(
    spark: SparkSession, place: Path, level: int, number: int
) -> dict[int, tuple[set[str], Head | None]]:
    """For every shard the names of what is in its state, and its head."""
    options = {"operatorId": level, "batchId": number, "stateVarName": "chunks"}
    state = spark.read.format("statestore").options(**options).load(f"file:{place}")
    told = state.selectExpr(
        "key.shard AS shard",
        "user_map_key.name AS name",
        f"if(user_map_key.name = '{HEAD}', user_map_value.chunk, NULL) AS head",
    )
    names, heads = defaultdict[int, set[str]](set), dict[int, Head | None]()
    for row in told.collect():
        names[row.shard].add(row.name)
        if row.head is not None:
            heads[row.shard] = read_head(_OneValue(bytes(row.head)))
    return {shard: (own, heads.get(shard)) for shard, own in names.items()}


@dataclass(frozen=True)
class _OneValue:
    """A store with a head."""

    value: bytes

    def get(self, name: str) -> bytes | None:
        return self.value

    def put(self, name: str, value: bytes) -> None:
        raise NotImplementedError

    def remove(self, name: str) -> None:
        raise NotImplementedError


def _obstacle(files: LocalFiles, kept: set[int], good: int, begun: int) -> str:
    """Why the micro-batches after the good one cannot be run again; nothing if they can."""
    again = range(good + 1, begun + 1)
    if missing := [number for number in again if number not in kept]:
        return (
            f"what micro-batch {missing[0]} was made of is not known any more (offsets/{missing[0]}); "
            f"{_FRESH}"
        )
    if not json.loads(files.text(TABLES) or "{}"):
        return (
            "it does not write to tables of rc.spark.write, which know their micro-batches: to run them "
            f"again would write them twice; {_FRESH}"
        )
    log = InputLog(files, "", listed_sources(files, begun))
    for number in again:
        if (gone := _gone(log, number)) is not None:
            return f"micro-batch {number} took {gone}, which is not there: put it back, and try again"
    return ""


def _gone(log: InputLog, number: int) -> Path | None:
    """A file that a micro-batch took and that is gone; the files of other file systems are not looked for."""
    for taken in (entry.rpartition(" ")[0] for entries in log.files_taken(number) for entry in entries):
        if taken.startswith("file:") and not path_of(taken).exists():
            return path_of(taken)
    return None


def _fault_of_logs(place: Path, done: int) -> str:
    """Is the last file of a log cut off?"""
    for log, last in (("commits", done), ("offsets", _last_whole(place, "offsets"))):
        if (number := max(_numbers(place, log), default=last)) > last:
            return f"{log}/{number} is not whole"
    return ""


def _numbers(place: Path, log: str) -> list[int]:
    return [int(name) for name in LocalFiles(place).names(log) if name.isdigit()]


def _last_whole(place: Path, log: str) -> int:
    """The last micro-batch of a log whose file is whole; -1 if there is none."""
    for number in sorted(_numbers(place, log), reverse=True):
        try:
            if (LocalFiles(place).text(f"{log}/{number}") or "").startswith("v"):
                return number
        except FormatError:
            continue
    return -1
