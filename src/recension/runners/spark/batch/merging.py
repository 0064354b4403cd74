"""Several histories as one: union, and merge, whose inputs must stand for the same history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.errors import RecensionError
from recension.core.time_kind import kind_in_messages
from recension.plan.nodes import Merge, Union
from recension.runners.spark.batch.frame import (
    VE,
    VS,
    Frame,
    describe_event,
    make_frame,
    raise_if,
    repeat_rows,
)
from recension.runners.spark.batch.times import type_of_kind

_PORT = "port"


def union(node: Union, *frames: Frame) -> Frame:
    """All events of all inputs, columns in the order of the first."""
    return Frame(reduce(DataFrame.unionAll, [frame.df for frame in _align(frames, node.schema)]), node.schema)


def merge(node: Merge, *frames: Frame) -> Frame:
    """The one history: every event is counted in every input, and the counts must agree."""
    aligned = _align(frames, node.schema)
    if len(aligned) == 1:
        return aligned[0]
    payload, counts = aligned[0].payload, [f"n{port}" for port in range(len(frames))]
    tagged = [frame.df.select("*", f.lit(port).alias(_PORT)) for port, frame in enumerate(aligned)]
    every = reduce(DataFrame.unionAll, tagged)
    counted = every.groupBy(VS, VE, *payload).agg(
        *(f.count_if(f.col(_PORT) == port).alias(name) for port, name in enumerate(counts))
    )
    differ = reduce(or_, (f.col(name) != f.col(counts[0]) for name in counts[1:]))
    same = counted.where(raise_if(differ, _describe_difference(node, payload, counts)))
    return Frame(repeat_rows(same, counts[0]).select(VS, VE, *payload), node.schema)


def _align(frames: Sequence[Frame], schema: pa.Schema) -> list[Frame]:
    """The frames with their columns in the order of the schema."""
    return [
        make_frame(frame.df, {name: frame.column(name) for name in frame.schema.names}, schema)
        for frame in frames
    ]


def _describe_difference(node: Merge, payload: Sequence[str], counts: Sequence[str]) -> Column:
    begin = f.lit(f"{node.label}: the inputs stand for different histories: ")
    times = f.concat_ws(", ", *(f.col(name) for name in counts))
    event = describe_event(node.schema.names, payload, type_of_kind(kind_in_messages()))
    return f.concat(begin, event, f.lit(" is in them so many times: "), times)


def require_lossless(node: Merge) -> None:
    """Refuse a merge that may fall back: what it has dropped by then depends on who was ahead."""
    case = node.choose_case().case
    if node.on_mismatch == "fallback" and case in ("R0", "R1", "R2"):
        raise RecensionError(
            f"{node.label}: what {case} drops before it falls back depends on arrival, and a history "
            "has none; run the query as a stream, or leave on_mismatch='fallback' out of the batch query"
        )
