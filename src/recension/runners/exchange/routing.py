"""Which shard each event goes to. CTIs go to all shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, Index, inserts, take_rows
from recension.core.errors import RecensionError, describe_error
from recension.core.rowhash import combine, row_hash
from recension.lowering import operator_of
from recension.operators.base import Operator
from recension.plan.evaluation import Projection
from recension.plan.fragments import Route, runs_before_shuffle
from recension.plan.node import Node
from recension.plan.span import SpanNode, projected_schema

Shards: TypeAlias = npt.NDArray[np.int32]

_EVERY: Final = -1
_NO_ROWS: Final = np.zeros(0, np.int64)


class Router:
    """A route over a number of shards, for events with the payload of its origin."""

    def __init__(self, route: Route, schema: pa.Schema, shards: int) -> None:
        self.shards = 1 if route.is_single else shards
        self._is_everywhere = route.is_everywhere
        self._steps = path_steps(node for node in route.path if _changes_payloads(node))
        self._keys: Projection | None = None
        if route.keys:
            below = route.path[-1].schema if route.path else schema
            self._keys = Projection(route.keys, projected_schema(route.keys, below, "exchange"))

    def split(
        self, batch: EventBatch, only: int | None = None, *, by_start: bool = False
    ) -> Iterator[tuple[int, EventBatch, Index | None]]:
        """For each shard that gets any of it, what it gets, in order, and which rows that is (None: all).

        With ``only``, for that shard. ``by_start`` as for `address`.
        """
        addresses = self.address(batch, by_start=by_start)
        for number in range(self.shards) if only is None else (only,):
            rows = rows_for(addresses, number)
            if rows is None:
                yield number, batch, None
            elif len(rows):
                yield number, batch.take(rows), rows

    def address(self, batch: EventBatch, *, by_start: bool = False) -> Shards | None:
        """The shard of each row, for `rows_for`; None: all rows go to the first.

        What is spread by its whole payload is so ``by_start`` too, if that is given: equal payloads then do
        not go together. Retractions may not know the start (of a close).
        """
        if self._is_everywhere and self.shards > 1:
            return np.full(len(batch), _EVERY, np.int32)
        return None if self.shards == 1 else self._shard_of(batch, by_start)

    def _shard_of(self, batch: EventBatch, by_start: bool) -> Shards:
        """The shard of each row. Rows that the steps drop may go anywhere, and go to the first shard.

        So do external CTIs: the step that takes them in runs in one shard only.
        """
        is_cti = batch.kind == CTI
        data = np.flatnonzero(~is_cti & (batch.kind != EXTERNAL_CTI))
        rows, payload = survivors(self._steps, batch, data)
        keys = payload if self._keys is None else self._keys(payload, len(rows))
        hashes = row_hash(keys, len(rows))
        if self._keys is None and by_start:
            hashes = combine(hashes, batch.vs[rows])
        own = (hashes % np.uint64(self.shards)).astype(np.int32)
        if len(rows) == len(batch):
            return own
        shard = np.zeros(len(batch), np.int32)
        shard[is_cti] = _EVERY
        shard[rows] = own
        return shard


def rows_for(addresses: Shards | None, number: int) -> Index | None:
    """The rows that a shard gets; None: all."""
    if addresses is None:
        return _NO_ROWS if number else None
    return np.flatnonzero((addresses == number) | (addresses == _EVERY))


class PathStep(NamedTuple):
    """A step on the way to the keys, with its name for messages."""

    label: str
    operator: Operator


def path_steps(nodes: Iterable[Node]) -> list[PathStep]:
    """The steps of a path, ready to run."""
    return [PathStep(node.label, operator_of(node)) for node in nodes]


def survivors(steps: Sequence[PathStep], batch: EventBatch, rows: Index) -> tuple[Index, pa.RecordBatch]:
    """Rows that get through all steps, with their payloads then. Here a row's number is its start."""
    payload = batch.payload if len(rows) == len(batch) else take_rows(batch.payload, rows)
    if not steps:
        return rows, payload
    passing = inserts(rows, rows + 1, payload)
    for label, operator in steps:
        try:
            passing = operator.on_batch(0, passing)
        except RecensionError:
            raise
        except Exception as why:
            raise RecensionError(f"{label}: {describe_error(why)}") from why
    return passing.vs, passing.payload


def _changes_payloads(node: Node) -> bool:
    """Does a step on the way matter here? Not if it changes lifetimes only."""
    if not runs_before_shuffle(node):
        raise RecensionError(f"{node.label!r} cannot run before the shuffle: it has state")
    return isinstance(node, SpanNode)
