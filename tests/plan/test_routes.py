"""Keys of a route: a column may be among them twice, and events go where they would go by its steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import recension as rc
from recension import col
from recension.core.batch import inserts
from recension.plan.fragments import Route, cut
from recension.plan.node import columns_named
from recension.plan.rewrites import optimize
from recension.runners.exchange.routing import Router

S = rc.source("s", {"k": "string", "v": "int64"})


def test_a_key_that_is_a_column_of_the_source_too_is_hashed_twice() -> None:
    query = S.group_by("k").apply(lambda g: g.where(col("v") >= 0).distinct())
    (edge,) = (edge for part in cut(optimize([query.plan])) for edge in part.edges)
    step = S.select("k", "v", a=col("k")).plan
    same = Route((step,), columns_named(["a", "k", "v"]))
    rows = pa.RecordBatch.from_pydict({"k": list("abcdefgh"), "v": list(range(8))})
    batch = inserts(np.arange(8), np.arange(8) + 1, rows)
    one, other = (Router(route, S.plan.schema, 4) for route in (edge.route, same))
    found = [[(shard, part.vs.tolist()) for shard, part, _ in router.split(batch)] for router in (one, other)]
    assert len(found[0]) > 1
    assert found[0] == found[1]
