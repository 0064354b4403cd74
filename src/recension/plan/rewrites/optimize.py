"""All rewrites, in the order in which they help each other."""

from __future__ import annotations

from collections.abc import Sequence

from recension.plan.node import Node
from recension.plan.rewrites.finalize_sources import finalize_sources
from recension.plan.rewrites.fuse_spans import fuse_spans
from recension.plan.rewrites.prune_columns import prune_columns
from recension.plan.rewrites.push_filters import narrow_joins, push_filters


def optimize(roots: Sequence[Node]) -> list[Node]:
    """The queries of one session, rewritten together so that what they share stays shared.

    First Finalize goes onto sources with external CTIs, where it must stand. Then filters go down (those
    inside joins, then the rest), so that columns only they need can be dropped early; then unused columns
    go; then what has come to lie together becomes one pass.
    """
    rewritten = list(roots)
    for rewrite in (finalize_sources, narrow_joins, push_filters, prune_columns, fuse_spans):
        rewritten = rewrite(rewritten)
    for before, after in zip(roots, rewritten, strict=True):
        assert after.schema.equals(before.schema), f"rewrites changed the columns of {before.label}"
    return rewritten
