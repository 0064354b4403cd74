"""A micro-batch written where it is computed: its rows go to buckets, and the task of each bucket writes.

Assumes     rows of one event differ at most in kind, ends and number: they have one start and one payload.
Guarantees  all rows of an event are in one task, in every micro-batch, whoever computed them; every task has
            all CTIs. The driver gets what the tasks say of their files, no rows.
State       none.
Cost        one job: the stage that computes the rows, and one that writes them.

The bucket of an event is Spark's hash of its start and of those columns of its payload in which equal values
have equal bytes. Floats (0.0 is -0.0), maps, lists and structs are left out.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from recension.core.errors import RecensionError
from recension.core.formats.columns import KIND, VS
from recension.runners.spark.sinks.micro_batch import MicroBatch
from recension.runners.spark.stream.task import freeze_gc

BUCKET: Final = "_bucket"
_WRITTEN: Final = pa.schema([("rows", pa.int64()), ("written", pa.binary())])
_DDL: Final = "rows long, written binary"
_HASHED: Final = (
    spark.IntegralType,
    spark.StringType,
    spark.BinaryType,
    spark.BooleanType,
    spark.DateType,
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.DecimalType,
)


class TaskWriter(Protocol):
    """Writes the rows of one bucket for one table."""

    @property
    def buckets(self) -> int | None:
        """How many buckets the table has; none if any number is right."""

    def write(self, batch: MicroBatch, bucket: int, buckets: int) -> Any:
        """Write, and say what was written; none if that is nothing."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks have written for each table, and how many rows they had."""

    rows: int
    parts: list[list[Any]]


def write_from_tasks(
    frame: DataFrame, batch: MicroBatch, writers: Sequence[TaskWriter | None], buckets: int
) -> Written:
    """Run the job of a micro-batch; ``batch`` has no rows. Tables that have it already have no writer."""
    buckets = next((w.buckets for w in writers if w is not None and w.buckets), buckets)
    # The stream's own session. Adaptive execution would make two jobs of the one.
    frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    task = _Task(batch, tuple(writers), buckets)
    found = spread_rows(frame, buckets).mapInArrow(task.__call__, _DDL).collect()
    # From the tasks of this very job, as Spark itself takes their results; never from a file.
    results = [pickle.loads(row.written) for row in found]
    for result in results:
        if isinstance(result, RecensionError):
            raise result
    parts = [[part for part in parts if part is not None] for parts in zip(*results, strict=True)]
    return Written(sum(row.rows for row in found), parts or [[] for _ in writers])


def spread_rows(frame: DataFrame, buckets: int) -> DataFrame:
    """The rows with their buckets, a task for each bucket. CTIs go to all, other punctuation to the last.

    Columns go by position: `mapInArrow` cannot pass on a name with a dot in it.
    """
    names = {field.name: f"c{at}" for at, field in enumerate(frame.schema)}
    hashed = [VS, *(field.name for field in frame.schema if _is_hashed(field))]
    kind, every = F.col(names[KIND]), F.array(*(F.lit(bucket) for bucket in range(buckets)))
    bucket = F.pmod(F.hash(*(names[name] for name in hashed)), F.lit(buckets))
    place = F.when(kind == "cti", every).otherwise(
        F.array(F.when(kind.isin("insert", "retract"), bucket).otherwise(F.lit(buckets - 1)))
    )
    placed = frame.toDF(*names.values()).select("*", F.explode(place).alias(BUCKET))
    return placed.repartitionById(buckets, F.col(BUCKET))


def _is_hashed(column: spark.StructField) -> bool:
    return column.name[:1] != "_" and isinstance(column.dataType, _HASHED)


@dataclass(frozen=True, slots=True)
class _Task:
    """For ``mapInArrow``: the rows of a bucket into what was written of them."""

    batch: MicroBatch
    writers: tuple[TaskWriter | None, ...]
    buckets: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        parts = [part for part in batches if len(part)]
        if parts:
            table = pa.Table.from_batches(parts)
            bucket, rows = table[BUCKET][0].as_py(), table.drop_columns([BUCKET])
            rows = rows.rename_columns(self.batch.rows.schema.names)
            yield pa.RecordBatch.from_pylist(
                [{"rows": len(rows), "written": pickle.dumps(self._write(rows, bucket))}], _WRITTEN
            )

    def _write(self, rows: pa.Table, bucket: int) -> list[Any] | RecensionError:
        """What the writers say; an error of ours is for the driver, since another attempt would not help."""
        try:
            batch = self.batch.with_rows(rows)
            return [w if w is None else w.write(batch, bucket, self.buckets) for w in self.writers]
        except RecensionError as why:
            return why
