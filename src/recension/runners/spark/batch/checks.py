"""Errors out of data: a filter that lets rows pass or stops the job with a sentence."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f


def unless(bad: Column, message: Column) -> Column:
    """True, or an error with this message.

    Spark moves filters as it likes, and one that is put before this hides what is wrong from it. It keeps
    clear of what is not deterministic, so this is made to look so.
    """
    stop = f.raise_error(message).cast("boolean")
    stays = f.spark_partition_id() >= 0
    return stays & f.when(f.coalesce(bad, f.lit(False)), stop).otherwise(f.lit(True))
