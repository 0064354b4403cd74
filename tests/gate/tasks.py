"""Rows as Spark brings them, without Spark: what its tasks and shards do, called by hand.

Everything is the pipeline's own: a task reads a file, or rows of a DataFrame, and a shard judges what it is
sent. So a case costs milliseconds. `test_on_spark.py` gives some cases to Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.gate.cases import Case
from tests.gate.verdicts import Verdict, refused, taken
from tests.gate.ways import FORMATS, Way, write
from tests.runners.spark.stream.disorder import count_dropped
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import EventBatch
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.plan.source import declared_kind
from recension.runners.exchange.packets import NAMED, ORDER, ROW, Packet
from recension.runners.spark.stream.packing import FILE, Packing
from recension.runners.spark.stream.topology import Inlet


class Tasks(Rehearsal):
    """A query over files or rows, a micro-batch at a time, a task for each piece."""

    def play(self, pieces: list[Path] | list[pa.Table]) -> list[Packet]:
        flowing: list[Packet] = []
        for level in range(1, self.plan.levels + 1):
            for task, piece in enumerate(pieces):
                packing = Packing(self.plan, "s", level, task)
                flowing += [packet.seal() for packet in _packets(packing, piece)]
                flowing += packing.end_of_task_packets()
            flowing = [packet.seal() for packet in self._level(level, flowing)]
        return flowing


def _packets(packing: Packing, piece: Path | pa.Table) -> Iterator[Packet]:
    if isinstance(piece, Path):
        yield from packing.read_file(piece)
        return
    for rows in piece.to_batches():
        yield from packing.packets(rows)


def _as_frame(case: Case, start: int, stop: int) -> pa.Table:
    """Rows as a pipeline selects them of a DataFrame: columns that give a place have names of their own."""
    table, numbers = case.table(start, stop), range(start + 1, stop + 1)
    run = ["_run", "_batch", "_seq"]
    named = case.place_columns + (run if "_run" in case.columns else [])
    order = run[1:] if "_batch" in case.columns and "_run" not in case.columns else []
    apart = {*named, *order}.difference(case.payload)
    rows = table.select([name for name in table.column_names if name not in apart])
    for name in named:
        rows = rows.append_column(f"{NAMED}{name}", table[name])
    for number, name in enumerate(order):
        rows = rows.append_column(f"{ORDER}{number}", table[name])
    if "_kind" not in table.column_names or order or "order" in case.options:
        return rows
    rows = rows.append_column(FILE, pa.array(["s"] * len(table)))
    return rows.append_column(ROW, pa.array(numbers[: len(table)], pa.int64()))


def _verdict(case: Case, shards: int, turns: list[list[Path]] | list[list[pa.Table]]) -> Verdict:
    query = case.query()
    try:
        tasks, output, packets = (
            Tasks([query.plan], shards, {"s": Inlet(kind=declared_kind(query.plan))}),
            list[EventBatch](),
            list[Packet](),
        )
        for pieces in turns:
            flowing = tasks.play(pieces)
            packets += flowing
            output.append(tasks.output(flowing))
    except rc.RecensionError as why:
        return refused(why)
    history: History = reconstitute(output, query.schema)
    return taken(count_dropped(packets), history)


def by_file(name: str, shards: int, case: Case, folder: Path) -> Verdict:
    """A task reads a file."""
    return _verdict(case, shards, [[write(case, folder / f"s.{name}")]])


def by_rows(size: int, shards: int, case: Case, folder: Path) -> Verdict:
    """A task is sent rows, some in each micro-batch."""
    size = size or len(case.rows)
    starts = range(0, len(case.rows), size)
    return _verdict(case, shards, [[_as_frame(case, at, at + size)] for at in starts])


TASKS: Final[dict[str, Way]] = {
    **{f"Spark's tasks, {name}": partial(by_file, name, 1) for name in FORMATS},
    "Spark's tasks, parquet, 3 shards": partial(by_file, "parquet", 3),
    "Spark's tasks, rows": partial(by_rows, 0, 1),
    "Spark's tasks, rows, 2 shards": partial(by_rows, 0, 2),
    "Spark's tasks, rows by twos": partial(by_rows, 2, 1),
}
