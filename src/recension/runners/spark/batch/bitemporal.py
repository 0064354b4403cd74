"""The bitemporal table of a changelog as a batch job: what `core.bitemporal` does, distributed.

The steps of an event are added up within each time of belief. Then the first addition of an event that is
left goes with its first removal, the second with the second.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.bitemporal import FROM, TO
from recension.core.time_kind import AWARE
from recension.runners.spark.batch.frame import (
    VE,
    VS,
    Frame,
    column_name,
    describe_event,
    raise_if,
    repeat_rows,
)
from recension.runners.spark.batch.inputs import NamedFrame, net_steps
from recension.runners.spark.batch.run import to_user_columns
from recension.runners.spark.batch.times import to_times


def believed_events(elements: DataFrame, name: str) -> DataFrame:
    """Every event with its times of belief; the last column of the elements has theirs, in microseconds."""
    table = NamedFrame.of(elements, name)
    # As a column of the payload, so that the steps of an event at one time are added up.
    net, width = net_steps(table, table.payload(table.layout.payload)), len(table.layout.payload) - 1
    schema = pa.schema(list(table.layout.payload)[:width])
    event, time = [VS, VE, *(column_name(i) for i in range(width))], f.col(column_name(width))
    changed = net.where("n != 0").withColumns({"copies": f.abs("n"), "sign": f.signum("n").cast("int")})
    rank = f.row_number().over(Window.partitionBy(*event, "sign").orderBy(time))
    steps = repeat_rows(changed, "copies").withColumn("rank", rank)
    ends = [f.max(f.when(f.col("sign") == sign, time)).alias(end) for sign, end in ((1, FROM), (-1, TO))]
    found = steps.groupBy(*event, "rank").agg(*ends)
    text = describe_event(schema.names, event[2:], table.time_type)
    message = f.concat(f.lit(f"{name}: no such event to retract: "), text)
    checked = found.where(raise_if(f.col(FROM).isNull() | (f.col(TO) < f.col(FROM)), message))
    times = [
        to_times(f.col(end), spark.TimestampType()).alias(column_name(at))
        for at, end in enumerate((FROM, TO), width)
    ]
    wide = pa.schema([*schema, (FROM, AWARE), (TO, AWARE)])
    return to_user_columns(Frame(checked.select(*event, *times), wide), table.time_type)
