"""Which shard each event goes to. Promises go to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, Index, inserts, take_rows
from recension.core.errors import RecensionError
from recension.core.rowhash import row_hash
from recension.lowering import operator_of
from recension.operators.base import Operator
from recension.plan.evaluation import Projection
from recension.plan.fragments import Route
from recension.plan.node import Node, same_names
from recension.plan.span import SpanNode, projected_schema

Shards: TypeAlias = npt.NDArray[np.int64]

_EVERY: Final = -1


class Router:
    """A route over a number of shards, for events with the payload of its origin."""

    def __init__(self, route: Route, schema: pa.Schema, shards: int) -> None:
        self.shards = 1 if route.is_single else shards
        steps = [node for node in route.path if _changes_payloads(node)]
        self._steps: list[Operator] = [operator_of(node) for node in steps]
        self._keys: Projection | None = None
        if route.keys:
            below = route.path[-1].schema if route.path else schema
            self._keys = Projection(route.keys, projected_schema(route.keys, below, "exchange"))

    def split(
        self, batch: EventBatch, only: int | None = None
    ) -> Iterator[tuple[int, EventBatch, Index | None]]:
        """For each shard that gets any of it, what it gets, in order, and which rows that is (None: all).

        With ``only``, for that shard.
        """
        if self.shards == 1:
            if not only:
                yield 0, batch, None
            return
        shard = self._shard_of(batch)
        everywhere = shard == _EVERY
        is_shared = bool(everywhere.any())
        for number in range(self.shards) if only is None else (only,):
            rows = np.flatnonzero((shard == number) | everywhere if is_shared else shard == number)
            if len(rows):
                yield number, batch.take(rows), rows

    def _shard_of(self, batch: EventBatch) -> Shards:
        """The shard of each row; rows that the steps drop may go anywhere, and go to the first.

        So does an external CTI: whoever takes it in stands alone.
        """
        shard = np.zeros(len(batch), np.int64)
        is_cti = batch.kind == CTI
        shard[is_cti] = _EVERY
        data = np.flatnonzero(~is_cti & (batch.kind != EXTERNAL_CTI))
        rows, payload = self._survivors(batch, data)
        keys = payload if self._keys is None else self._keys(payload, len(rows))
        shard[rows] = (row_hash(keys, len(rows)) % np.uint64(self.shards)).astype(np.int64)
        return shard

    def _survivors(self, batch: EventBatch, rows: Index) -> tuple[Index, pa.RecordBatch]:
        """Rows that get through all steps, with what the steps make of them. A row's start is its number."""
        payload = batch.payload if len(rows) == len(batch) else take_rows(batch.payload, rows)
        if not self._steps:
            return rows, payload
        passing = inserts(rows, rows + 1, payload)
        for step in self._steps:
            passing = step.on_batch(0, passing)
        return passing.vs, passing.payload


def _changes_payloads(node: Node) -> bool:
    """Does a step on the way matter here? Those that change lifetimes only do not."""
    if isinstance(node, SpanNode):
        return True
    if node.kept_columns() != same_names(node.schema):
        raise RecensionError(f"{node.label!r} cannot be done on the way to a shard: it needs a place")
    return False
