"""Users' modules over windows: the local engine's operator on partitions that hold whole groups."""

from __future__ import annotations

from dataclasses import replace

from recension.plan.nodes import ModuleWindow
from recension.runners.spark.batch.frame import Frame
from recension.runners.spark.batch.hosted import each_partition, ported, stand_in
from recension.runners.spark.batch.span import beside


def module_window(node: ModuleWindow, frame: Frame) -> Frame:
    """What the modules say of every window of every group."""
    wider, keys = beside(frame, [key for _, key in node.keys])
    rows = ported([Frame(wider.df, frame.schema)], [keys])
    # Perfect input: a window that is shown when it has ended is shown once.
    waiting = replace(node.policies, speculate="perfect")
    return each_partition(replace(node, input=stand_in(frame), policies=waiting), rows)
