"""Many small batch queries in one Spark job: a job costs half a second, whatever it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element, Event
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.plan.nodes import Source, walk
from recension.testing.assertions import assert_equivalent

# For a handful of rows spreading the plan out is all the cost.
_QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}


@contextmanager
def quickly(spark: Any) -> Iterator[None]:
    """The session set for many small plans meanwhile."""
    before = {key: spark.conf.get(key, None) for key in _QUICK}
    for key, value in _QUICK.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def frame(spark: Any, events: Sequence[Event], schema: pa.Schema) -> Any:
    """A history as a DataFrame."""
    return spark.createDataFrame(History.from_events(events, schema).to_arrow())


def stream_frame(spark: Any, elements: Sequence[Element], schema: pa.Schema) -> Any:
    """A physical stream as a DataFrame, in the order of its rows."""
    rows = stream_rows(from_elements(elements, schema), stream_schema(schema, pa.int64()))
    return spark.createDataFrame(pa.Table.from_batches([rows]))


def batch(spark: Any, query: rc.Stream, frames: Mapping[str, Any]) -> Any:
    """The query over those of the frames that it reads."""
    read = {node.name for node in walk(query.plan) if isinstance(node, Source)}
    return rc.spark.batch(spark, query, {name: df for name, df in frames.items() if name in read})


def answers(results: Sequence[Any]) -> list[list[Event]]:
    """The histories of several results, computed together."""
    shapes = [_shape(df) for df in results]
    columns = {column: kind for shape in shapes for column, kind in shape.items()}
    tagged = [
        _among(df, shape, columns, number)
        for number, (df, shape) in enumerate(zip(results, shapes, strict=True))
    ]
    found: list[list[Event]] = [[] for _ in results]
    for row in _united(tagged).toArrow().to_pylist():
        number = row["number"]
        vs, ve, *values = (row[column] for column in shapes[number])
        payload = dict(zip(results[number].columns[2:], values, strict=True))
        found[number].append(Event(payload, vs, FOREVER if ve is None else ve))
    return found


def _shape(df: Any) -> dict[str, str]:
    """One column by place and type holds what results of the same shape have there."""
    kinds = [field.dataType.simpleString() for field in df.schema]
    return {f"{i} {kind}": kind for i, kind in enumerate(kinds)}


def _among(df: Any, shape: Mapping[str, str], columns: Mapping[str, str], number: int) -> Any:
    """A result with the columns of all, and its number."""
    from pyspark.sql import functions as f

    own = df.toDF(*shape)
    missing = {column: f.lit(None).cast(kind) for column, kind in columns.items() if column not in shape}
    given = [missing[column].alias(column) if column in missing else f"`{column}`" for column in columns]
    return own.select(*given, f.lit(number).alias("number"))


def _united(frames: Sequence[Any]) -> Any:
    """In halves: Spark looks through all of a plan whenever it grows."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _united(frames[:middle]).union(_united(frames[middle:]))


def check_as_local(
    spark: Any, queries: Sequence[rc.Stream], events: Sequence[Event], schema: pa.Schema
) -> None:
    """What the local engine says of the source ``s`` is what Spark says."""
    given = frame(spark, events, schema)
    found = answers([batch(spark, query, {"s": given}) for query in queries])
    inserts = [rc.Insert(e.payload, e.vs, e.ve) for e in events]
    for query, got in zip(queries, found, strict=True):
        expected = rc.run(query, {"s": inserts}, close=True).history().to_events()
        try:
            assert_equivalent(got, expected)
        except AssertionError as why:
            raise AssertionError(f"{query.plan.label}\n{why}") from None
