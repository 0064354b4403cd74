"""What a micro-batch changes in a history: events with a count, and which rows of a table these are.

`net_rows` nets a micro-batch, in the driver or for a bucket in a task: an event that is announced and taken
back has no row. An event that is added n times has the rows 0 to n-1, and so has one that is removed n times.
The rows name the ordinals of an event that the table does not have, or has once, which is nearly always so;
`with_ordinals` asks the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from recension.core.batch import CTI, Index
from recension.core.event_bag import bag_changes
from recension.core.formats.columns import VE, VS
from recension.core.formats.encode import history_rows
from recension.core.history import History
from recension.core.netting import group_sizes
from recension.core.ticks import BEGINNING
from recension.runners.spark.lake.shape import ORDINAL, payload_of
from recension.runners.spark.lake.table import quoted
from recension.runners.spark.sinks.micro_batch import MicroBatch, micro_batch
from recension.runners.spark.sinks.revision import check_elements, schema_of
from recension.runners.spark.sinks.tasks import BUCKET, spread_rows
from recension.runners.spark.stream.task import freeze_gc

# How many events are added, or with a minus removed.
NET: Final = "_net"
# The number of an event among those that a micro-batch changes.
EVENT: Final = "_event"
_FOUND: Final = "_found"


@dataclass(frozen=True, slots=True)
class NetRows:
    """The rows of `NET` and `ORDINAL`, the times at which they start, and the CTI after the micro-batch."""

    rows: pa.Table
    starts: Index
    cti: int

    def events(self) -> pa.Table:
        """Each event once, with its number in `EVENT`."""
        once = self.rows.filter(pc.equal(self.rows[ORDINAL], 0)).drop_columns([ORDINAL])
        return once.append_column(EVENT, pa.array(np.arange(len(once)), pa.int64()))


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a table that are events of a micro-batch: of which, with what ordinals, and where."""

    event: Index
    ordinal: Index
    files: npt.NDArray[np.object_]
    rows: Index

    @staticmethod
    def of(table: pa.Table) -> Found:
        """From these columns, in this order."""
        return Found(*(column.to_numpy() for column in table.columns))

    def take(self, rows: Index) -> Found:
        """Some of them."""
        return Found(self.event[rows], self.ordinal[rows], self.files[rows], self.rows[rows])


@dataclass(frozen=True, slots=True)
class Fitted:
    """Which rows are removed, which events are added under which ordinals, and which are not there."""

    removed: Index
    added: Index
    ordinals: Index
    missing: Index


def fit_ordinals(net: Index, found: Found) -> Fitted:
    """What is done for events with these counts, of which so many rows are there; as `with_ordinals`."""
    order = np.lexsort((found.ordinal, found.event))
    event, ordinal = found.event[order], found.ordinal[order]
    number = np.bincount(event, minlength=len(net))
    last = np.cumsum(number)
    # Of equal events those with the largest ordinals go first, so those at the end of each group.
    is_removed = np.arange(len(event)) >= (last + np.minimum(net, 0))[event]
    added = np.repeat(np.arange(len(net)), np.maximum(net, 0))
    after = np.zeros(len(net), np.int64)
    after[number > 0] = ordinal[last[number > 0] - 1] + 1
    ordinals = after[added] + np.arange(len(added)) - np.searchsorted(added, added)
    return Fitted(order[is_removed], added, ordinals, np.flatnonzero(number + net < 0))


def net_rows(batch: MicroBatch, cti: int) -> NetRows:
    """The net effect of a micro-batch's elements, after a cti."""
    events = check_elements(batch, cti)
    changes = bag_changes(events, events.is_data())
    order = np.argsort(changes.key, kind="stable")
    _, size = group_sizes(changes.key[order])
    first = np.cumsum(size) - size
    net = np.add.reduceat(changes.delta[order], first) if len(order) else first
    event = np.repeat(np.flatnonzero(net), np.abs(net[net != 0]))
    ordinal = np.arange(len(event)) - np.searchsorted(event, event)
    at = order[first[event]]
    found = events.take(changes.row[at])
    history = History(found.vs, changes.end[at], pa.Table.from_batches([found.payload]))
    schema = schema_of(batch)
    rows = pa.Table.from_batches(history_rows(history, schema, max(len(history), 1)), schema)
    rows = rows.append_column(NET, pa.array(net[event], pa.int64()))
    last = int(events.vs[events.kind == CTI].max(initial=BEGINNING))
    return NetRows(rows.append_column(ORDINAL, pa.array(ordinal, pa.int64())), found.vs, max(cti, last))


def net_columns(stream: spark.StructType) -> spark.StructType:
    """The columns of net rows of a stream."""
    times = [spark.StructField(name, stream[VS].dataType) for name in (VS, VE)]
    counts = [spark.StructField(name, spark.LongType()) for name in (NET, ORDINAL)]
    return spark.StructType([*times, *payload_of(stream), *counts])


def event_columns(stream: spark.StructType) -> spark.StructType:
    """The columns of `NetRows.events`."""
    columns = [field for field in net_columns(stream) if field.name != ORDINAL]
    return spark.StructType([*columns, spark.StructField(EVENT, spark.LongType())])


def net_frame(frame: DataFrame, batch: MicroBatch, cti: int, buckets: int) -> DataFrame:
    """The same by tasks, a bucket each; ``batch`` has no rows."""
    columns = net_columns(frame.schema)
    # By position: `mapInArrow` cannot pass on a name with a dot in it.
    given = spark.StructType([spark.StructField(f"c{i}", f.dataType) for i, f in enumerate(columns)])
    found = spread_rows(frame, buckets).mapInArrow(_Netting(batch, cti).__call__, given)
    return found.toDF(*columns.names)


@dataclass(frozen=True, slots=True)
class _Netting:
    """For ``mapInArrow``: the rows of a bucket into net rows."""

    batch: MicroBatch
    cti: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        parts = [part for part in batches if len(part)]
        if parts:
            given = self.batch
            rows = pa.Table.from_batches(parts).drop_columns([BUCKET])
            rows = rows.rename_columns(given.rows.schema.names)
            found = net_rows(micro_batch(given.query, given.number, rows), self.cti).rows
            yield from found.rename_columns([f"c{i}" for i in range(found.num_columns)]).to_batches()


def with_ordinals(rows: DataFrame, table: DataFrame, is_equal: str, failure: str) -> DataFrame:
    """Net rows with ordinals that fit the table, of which ``table`` has the part that they may be in.

    Of equal events that with the largest ordinal is removed first, and what is added comes after it. Events
    that are removed and are not there fail with a message. ``is_equal`` compares ``s`` and ``t``.
    """
    events = [name for name in rows.columns if name != ORDINAL]
    once = rows.where(F.col(ORDINAL) == 0).drop(ORDINAL).alias("s")
    there = table.alias("t")
    columns = [F.col(f"s.{quoted(name)}").alias(name) for name in events]
    met = once.join(there, F.expr(is_equal), "left").select(*columns, F.col(f"t.{ORDINAL}").alias(_FOUND))
    listed = met.groupBy(*map(quoted, events)).agg(F.sort_array(F.collect_list(_FOUND)).alias(_FOUND))
    net, number = F.col(NET), F.size(_FOUND)
    after = F.when(number > 0, F.element_at(_FOUND, -1) + 1).otherwise(F.lit(0)).cast("bigint")
    event = F.to_json(F.struct(*(F.col(quoted(name)) for name in events if name != NET)))
    missing = F.raise_error(F.concat(F.lit(failure), event)).cast("array<bigint>")
    removed = F.when(number + net >= 0, F.slice(_FOUND, (number + net + 1).cast("int"), (-net).cast("int")))
    ordinals = F.when(net > 0, F.sequence(after, after + net - 1)).otherwise(removed.otherwise(missing))
    return listed.select(*map(quoted, events), F.explode(ordinals).alias(ORDINAL))
