"""A batch job over history files, its result taken back into this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import PySparkException

from recension.core.errors import RecensionError
from recension.core.history import History
from recension.plan.node import Node
from recension.runners.spark.batch.run import batch
from recension.runners.spark.failures import reason_of
from recension.runners.spark.session import delay_interrupts, quiet_session


def history_of_files(plan: Node, paths: Mapping[str, str], log: Path) -> History:
    """The query's history over histories in Parquet files; what stops the job is told in one line."""
    with delay_interrupts():
        spark = quiet_session(log)
    try:
        found = batch(spark, plan, {name: spark.read.parquet(path) for name, path in paths.items()})
        history = History.from_arrow(found.toArrow())
    except PySparkException as why:
        raise RecensionError(reason_of(why)) from None
    return History(history.vs, history.ve, history.payload.cast(plan.schema))
