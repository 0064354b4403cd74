"""The merge of streams that other queries write, as a pipeline of its own."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from os.path import normpath
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from recension.core.errors import RecensionError, SchemaError
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.time_kind import AWARE, TICKS
from recension.plan.nodes import Merge, Source
from recension.runners.spark.session import prepare_streaming
from recension.runners.spark.sinks.files import local_path
from recension.runners.spark.stream.feedback import FOLDER
from recension.runners.spark.stream.inputs import read_input
from recension.runners.spark.stream.joining import ANY
from recension.runners.spark.stream.pipeline import flow
from recension.runners.spark.stream.root import read_root, seen_columns
from recension.runners.spark.types import arrow_schema

Place = str | PathLike[str]


def merge_frames(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    how: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    shards: int | None,
    feedback: bool | Place,
) -> DataFrame:
    """The merge of streaming DataFrames, each in the order of its own ``_batch`` and ``_seq``."""
    prepare_streaming(spark)
    if feedback is True:
        raise RecensionError("merge: say where the inputs' queries look for feedback: feedback=FOLDER")
    if not frames:
        raise SchemaError("merge: nothing to merge")
    columns = [_payload(name, frame) for name, frame in frames.items()]
    for name, other in zip(frames, columns, strict=True):
        if set(other.names) != set(columns[0].names):
            raise SchemaError(f"merge: {name} has the columns {other.names}, the first {columns[0].names}")
    sources = {name: Source(name, columns[0], **source) for name in frames}
    ready = {name: read_input(sources[name], frame, ()) for name, frame in frames.items()}
    plan = Merge(tuple(sources.values()), **how)
    return flow(spark, plan, ready, shards, tells=local_path(feedback) if feedback else None)


def _payload(name: str, frame: DataFrame) -> pa.Schema:
    return layout_of(arrow_schema(frame.schema), TimeColumns(), name).payload


def merge_root(
    spark: SparkSession,
    root: Path,
    how: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    shards: int | None,
    feedback: bool | Place,
    schema: pa.Schema | None,
    timestamps: bool,
    files_per_batch: int | None,
) -> DataFrame:
    """The merge of the streams in the sub-folders of a root, those of today and those to come."""
    prepare_streaming(spark)
    root = Path(normpath(root))  # as Spark will name its files
    if schema is None:
        columns, kind = seen_columns(root)
    else:
        columns, kind = schema, AWARE if timestamps else TICKS
    given = read_root(spark, root, files_per_batch, kind)
    plan = Merge((Source(ANY, columns, **source),), is_open=True, **how)
    tells = root / FOLDER if feedback is True else local_path(feedback) if feedback else None
    return flow(spark, plan, {ANY: given}, shards, tells=tells)
