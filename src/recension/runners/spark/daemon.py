"""Spark's Python daemon with everything loaded that its workers need.

Spark forks its workers from a daemon that has loaded next to nothing, so that each of them loads everything
again, which is most of what a first micro-batch waits for. Here it is loaded once. Nothing of it has begun
to work when workers are forked: Arrow makes its threads on first use, and takes care of forks itself.

A worker is searched for garbage after every task. What is loaded here is none, and is left out of it.
"""

from __future__ import annotations

import gc

import pyspark.worker
from pyspark.daemon import manager

import recension.runners.spark.stream.processor
import recension.runners.spark.stream.root_packing
import recension.runners.spark.stream.unpacking

__all__ = ["pyspark", "recension"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
