"""Merge: inputs that stand for one history are that history; those that do not are an error."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.core.errors import RecensionError
from recension.plan.nodes import Merge
from recension.runners.spark.batch.checks import unless
from recension.runners.spark.batch.frame import VE, VS, Frame, framed
from recension.runners.spark.batch.netting import as_often, in_words

_PORT = "port"


def merge(node: Merge, *frames: Frame) -> Frame:
    """The one history: every event is counted in every input, and the counts must agree."""
    require_lossless(node)
    aligned = [
        framed(frame.df, {name: frame.column(name) for name in frame.schema.names}, node.schema)
        for frame in frames
    ]
    if len(aligned) == 1:
        return aligned[0]
    payload, counts = aligned[0].payload, [f"n{port}" for port in range(len(frames))]
    tagged = [frame.df.select("*", f.lit(port).alias(_PORT)) for port, frame in enumerate(aligned)]
    every = reduce(lambda one, other: one.unionAll(other), tagged)
    counted = every.groupBy(VS, VE, *payload).agg(
        *(f.count_if(f.col(_PORT) == port).alias(name) for port, name in enumerate(counts))
    )
    differ = reduce(or_, (f.col(name) != f.col(counts[0]) for name in counts[1:]))
    same = counted.where(unless(differ, _difference(node, payload, counts)))
    return Frame(as_often(same, counts[0]).select(VS, VE, *payload), node.schema)


def _difference(node: Merge, payload: Sequence[str], counts: Sequence[str]) -> Column:
    begin = f.lit(f"{node.label}: the inputs stand for different histories: ")
    times = f.concat_ws(", ", *(f.col(name) for name in counts))
    event = in_words(node.schema.names, payload)
    return f.concat(begin, event, f.lit(" is in them so many times: "), times)


def require_lossless(node: Merge) -> None:
    """What a merge in order takes for old news before it falls depends on who was ahead."""
    case = node.choose_case().case
    if node.on_mismatch == "fallback" and case in ("R0", "R1", "R2"):
        raise RecensionError(
            f"{node.label}: what {case} leaves out before it falls back depends on arrival, and a history "
            "has none; run the query as a stream, or leave on_mismatch='fallback' out of the batch query"
        )
