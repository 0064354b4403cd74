"""Spark's Python daemon with everything loaded that its workers need.

Spark forks its workers from a daemon that has loaded next to nothing: each worker then loads everything, and
most of the time of a first micro-batch goes into that. Here it is loaded once, before the fork. No thread
is running by then: Arrow starts its threads on first use, and handles forks itself.

Spark collects garbage in a worker after every task. What is loaded here is frozen, so it is not searched.
"""

from __future__ import annotations

import gc

import pyspark.worker
from pyspark.daemon import manager

import recension.runners.spark.sinks.tasks
import recension.runners.spark.stream.membership
import recension.runners.spark.stream.processor
import recension.runners.spark.stream.unpacking

__all__ = ["pyspark", "recension"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
