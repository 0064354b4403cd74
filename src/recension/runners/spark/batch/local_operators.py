"""The local engine's own operators inside a batch job, where Spark SQL has no equal or no exact one.

A history sorted by start is a perfect stream, so an operator is fed one: inserts in order, each batch
followed by a CTI at its last start. State is freed on the way, as in a stream. All groups that Spark put
into one partition go through one operator, which works on all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.batch import EventBatch, Mask, inserts, take_rows
from recension.core.errors import RecensionError, describe_error
from recension.core.reconstitution import HistoryBuilder
from recension.core.ticks import FOREVER, Ticks
from recension.core.time_kind import TimeKind, TimesInMessages, kind_in_messages
from recension.lowering import operator_of
from recension.operators.base import Operator
from recension.plan.nodes import Node, Source
from recension.plan.properties import Properties
from recension.runners.spark.batch.frame import VE, VS, Frame, column_name
from recension.runners.spark.types import arrow_carrier, carried_schema

P = ParamSpec("P")
R = TypeVar("R")

PERFECT = Properties(is_insert_only=True, is_ordered=True)
PORT = "_port"


def stand_in_source(frame: Frame, port: int = 0) -> Source:
    """What an operator in a worker reads: a source with this frame's columns, perfect."""
    return Source(str(port), frame.schema, declared=PERFECT)


def map_batches(node: Node, frame: Frame) -> Frame:
    """A node without state, applied to every batch of rows by itself."""
    step = StatelessStep(node.with_inputs([stand_in_source(frame)]), kind_in_messages())
    return Frame(frame.df.mapInArrow(step, _output_schema(node.schema)), node.schema)


def map_partitions(node: Node, rows: DataFrame, *, has_order: bool = True) -> Frame:
    """A node with state, applied to every partition by itself; rows hold all ports (see `union_ports`).

    ``node`` reads stand-ins. What may meet must lie in one partition. Where rows are not a history, they have
    no order (``has_order``), and nothing is final before the end.
    """
    in_order = rows.sortWithinPartitions(VS) if has_order else rows
    step = StatefulStep(node, kind_in_messages(), has_order)
    return Frame(in_order.mapInArrow(step, _output_schema(node.schema)), node.schema)


def union_ports(frames: Sequence[Frame], keys: Sequence[Sequence[str]]) -> DataFrame:
    """The rows of all inputs, each with the number of its port, those with equal keys in one partition."""
    parts: list[DataFrame] = []
    for port, (frame, own) in enumerate(zip(frames, keys, strict=True)):
        columns = [f.col(column_name(i)).alias(f"{_prefix(port)}{i}") for i in range(len(frame.schema))]
        chosen = [f.col(name).alias(f"k{i}") for i, name in enumerate(own)]
        parts.append(frame.df.select(f.lit(port).alias(PORT), VS, VE, *columns, *chosen))
    rows = parts[0]
    for other in parts[1:]:
        rows = rows.unionByName(other, allowMissingColumns=True)
    names = [f"k{i}" for i in range(len(keys[0]))]
    return (rows.repartition(*names) if names else rows.repartition(1)).drop(*names)


def _prefix(port: int) -> str:
    """What the columns of a port begin with; a single one has those of its frame."""
    return "d" * port if port else "c"


def _output_schema(schema: pa.Schema) -> spark.StructType:
    times = [spark.StructField(name, spark.LongType()) for name in (VS, VE)]
    return spark.StructType([*times, *carried_schema(schema).fields])


@dataclass(frozen=True)
class StatelessStep:
    """A span or lifetime step on whatever rows come; ``kind`` is that of the times in its errors."""

    node: Node
    kind: TimeKind

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the step makes of the rows."""
        step = name_errors(self, operator_of(self.node).on_batch)
        for rows in batches:
            yield to_rows(step(0, read_events(rows, self.node, 0)))


@dataclass(frozen=True)
class StatefulStep:
    """An operator that is fed one partition in order of starts, or, without order, as it comes."""

    node: Node
    kind: TimeKind
    has_order: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the operator makes of the partition."""
        emitted = self._drive(batches)
        if self.node.properties.is_insert_only:
            yield from (to_rows(batch) for batch in emitted if len(batch))
            return
        builder = HistoryBuilder(self.node.schema)
        for batch in emitted:
            builder.add(batch)
        left = builder.build()
        for payload in _payload_batches(left.payload, len(left)):
            yield to_rows(inserts(left.vs, left.ve, payload))

    def _drive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[EventBatch]:
        operator: Operator = operator_of(self.node)
        on_batch, on_cti = name_errors(self, operator.on_batch), name_errors(self, operator.on_cti)
        ports = range(len(self.node.inputs))
        for rows in batches:
            if not rows.num_rows:
                continue
            yield from (on_batch(port, read_events(rows, self.node, port)) for port in ports)
            if self.has_order:
                t = rows.column(VS)[rows.num_rows - 1].as_py()
                yield from (on_cti(port, t).batch for port in ports)
        yield from (on_cti(port, FOREVER).batch for port in ports)


def _payload_batches(payload: pa.Table, size: int) -> list[pa.RecordBatch]:
    whole = payload.combine_chunks().to_batches() if payload.num_columns else []
    return whole or ([pa.RecordBatch.from_pylist([], payload.schema)] if size else [])


def read_events(rows: pa.RecordBatch, node: Node, port: int) -> EventBatch:
    """The rows of one port as inserts, payloads in their own types."""
    schema = node.inputs[port].schema
    keep = _rows_of_port(rows, port)
    columns = [
        rows.column(f"{_prefix(port)}{i}").cast(field.type, safe=False) for i, field in enumerate(schema)
    ]
    payload = pa.RecordBatch.from_arrays(columns, schema=schema)
    vs, ve = (_ticks(rows, name) for name in (VS, VE))
    if keep is None:
        return inserts(vs, ve, payload)
    return inserts(vs[keep], ve[keep], take_rows(payload, np.flatnonzero(keep)))


def _rows_of_port(rows: pa.RecordBatch, port: int) -> Mask | None:
    if PORT not in rows.schema.names:
        return None
    keep: Mask = rows.column(PORT).to_numpy() == port
    return None if bool(keep.all()) else keep


def _ticks(rows: pa.RecordBatch, name: str) -> Ticks:
    ticks: Ticks = rows.column(name).to_numpy()
    return ticks


def to_rows(batch: EventBatch) -> pa.RecordBatch:
    """Inserts as rows for Spark."""
    schema = batch.schema
    columns = [
        column.cast(arrow_carrier(field.type, field.name), safe=False)
        for column, field in zip(batch.payload.columns, schema, strict=True)
    ]
    names = [VS, VE, *(column_name(i) for i in range(len(schema)))]
    return pa.RecordBatch.from_arrays([pa.array(batch.vs), pa.array(batch.ve), *columns], names)


def name_errors(step: StatelessStep | StatefulStep, method: Callable[P, R]) -> Callable[P, R]:
    """Errors in data or in a user's function have the step's name, and times as users write them."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with TimesInMessages(step.kind):
                return method(*args, **kwargs)
        except RecensionError:
            raise
        except Exception as why:
            raise RecensionError(f"{step.node.label}: {describe_error(why)}") from why

    return call
