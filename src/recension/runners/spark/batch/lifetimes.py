"""Lifetimes altered event by event, and clipping by another stream."""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as f

from recension.core.ticks import FOREVER
from recension.plan import lifetimes as rules
from recension.plan.nodes import AlterLifetime, Clip
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.local_operators import map_batches
from recension.runners.spark.batch.times import add, floor, tick

_CLIPPING = "clipping"


def alter_lifetime(node: AlterLifetime, frame: Frame) -> Frame:
    """Each event on a lifetime computed from its own; functions of the user's own run on Arrow."""
    vs, ve = f.col(VS), f.col(VE)
    match node.lifetime:
        case rules.Shift(delta):
            return frame.with_lifetimes(add(vs, delta), add(ve, delta))
        case rules.SetDuration(duration):
            return frame.with_lifetimes(vs, add(vs, duration))
        case rules.ToPoints():
            return frame.with_lifetimes(vs, add(vs, 1))
        case rules.Extend(delta):
            return frame.with_lifetimes(vs, add(ve, delta))
        case rules.Hop(size, hop):
            return frame.with_lifetimes(floor(vs, hop), add(floor(vs, hop), size))
        case rules.Inserts():
            return frame.with_lifetimes(vs, tick(FOREVER))
        case rules.Deletes():
            return frame.with_lifetimes(ve, tick(FOREVER))
    return map_batches(node, frame)


def clip(node: Clip, frame: Frame, by: Frame) -> Frame:
    """Each event until the first matching start after its own: one look ahead over both in order."""
    keys = [f"k{i}" for i in range(len(node.on))]
    starts = [by.column(name).alias(key) for name, key in zip(node.on, keys, strict=True)]
    own = [frame.column(name).alias(key) for name, key in zip(node.on, keys, strict=True)]
    clipping = by.df.select(VS, *starts, f.col(VS).alias(_CLIPPING))
    for name, key in zip(node.on, keys, strict=True):
        if name not in node.null_matches:
            clipping = clipping.where(f.col(key).isNotNull())
    both = frame.df.select("*", *own).unionByName(clipping.distinct(), allowMissingColumns=True)
    later = Window.partitionBy(*keys).orderBy(VS).rangeBetween(1, Window.unboundedFollowing)
    first = f.min(_CLIPPING).over(later)
    seen = both.withColumn(_CLIPPING, f.struct(first.alias("first"), f.col(_CLIPPING).isNull().alias("own")))
    kept = seen.where(f.col(f"{_CLIPPING}.own"))
    return Frame(kept, frame.schema).with_lifetimes(f.col(VS), f.least(VE, f"{_CLIPPING}.first"))
