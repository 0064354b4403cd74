"""Group and apply: a pipeline of its own for every group, as if no other group existed.

Assumes     valid physical streams. Those that are split carry the group's keys beside what the group sees;
            the others are the same for every group.
Guarantees  the output of each group's pipeline, with the group's keys before it. Every CTI reaches every
            group; the output CTI is the least of all groups, and of a group that has not been seen yet.
State       that of the pipelines of the groups at hand, and of one more, which has seen all CTIs and no
            event: a new group begins as that one is, and a group that has become like it is forgotten.
Cost        O(n log n) to split a batch, once; then that of a pipeline, for every group the batch holds, and
            at a CTI for every group at hand.
Source      DESIGN, group_by(...).apply; ruling B15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, concat, cti
from recension.operators.base import Chunks, Operator, Orphans, Output
from recension.operators.pipeline import Flow, Pipeline
from recension.operators.state.chunks import add_prefix, stack_groups, take_prefix, unstack_groups
from recension.operators.state.keys import KeyIndex


class GroupApply(Operator):
    """Ports are first those that are ``split``, each with the columns that a group sees, then the others."""

    makes_ctis: ClassVar[bool] = True

    def __init__(
        self,
        schema: pa.Schema,
        key_schema: pa.Schema,
        split: Sequence[pa.Schema],
        make: Callable[[], Pipeline],
    ) -> None:
        super().__init__(schema)
        self._split, self._make = split, make
        self._key_names = key_schema.names
        self._keys = KeyIndex(key_schema)
        self._groups: list[Pipeline] = []
        self._ctis = np.zeros(0, np.int64)
        self._unseen = make()
        self._unseen_chunks: Chunks | None = {}  # empty while it is as it was made, None if not known
        self._no_effect: dict[int, int] = {}
        self.is_clocked = self._unseen.is_clocked

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        if port < len(self._split):
            out = self._feed(port, self._split_by_group(port, batch))
        else:
            out = self._tell_all(lambda pipeline: pipeline.feed(port, Flow([batch])))
        before, t = self.out_cti, self._least_cti()
        self.out_cti = max(before, t)
        return concat([out, cti(t, self.schema)]) if t > before else out

    def _split_by_group(self, port: int, batch: EventBatch) -> Iterable[tuple[int, EventBatch]]:
        """The elements of each group, in the order in which they came."""
        number = self._keys.number(batch.payload.select(self._key_names))
        opened = [self._open() for _ in range(len(self._keys) - len(self._groups))]
        self._ctis = np.append(self._ctis, np.array(opened, np.int64))
        order = number.argsort(kind="stable")
        number = number[order]
        own = replace(batch, payload=batch.payload.select(self._split[port].names)).take(order)
        first = np.append(True, number[1:] != number[:-1]).nonzero()[0]
        for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(own)], strict=True):
            yield int(number[start]), own.slice(start, stop)

    def _open(self) -> int:
        """A group that was not there begins as one that has seen no event."""
        pipeline = self._make()
        if self._unseen_chunks is None:
            self._unseen_chunks = self._unseen.snapshot()
        if self._unseen_chunks:
            pipeline.restore(self._unseen_chunks)
        self._groups.append(pipeline)
        return pipeline.out_cti

    def _feed(self, port: int, shares: Iterable[tuple[int, EventBatch]]) -> EventBatch:
        given = [(number, self._groups[number].feed(port, Flow([share]))) for number, share in shares]
        for known, t in self._no_effect.items():
            self._no_effect[known] = min(
                t, *(self._groups[number].no_effect_before(known) for number, _ in given)
            )
        return self._gather(given)

    def _tell_all(self, tell: Callable[[Pipeline], Flow]) -> EventBatch:
        """Give the same to every group, and to the one that stands for groups not seen yet."""
        tell(self._unseen)
        self._unseen.take_counts()
        self._no_effect = {}
        self._unseen_chunks = None
        return self._gather([(number, tell(group)) for number, group in enumerate(self._groups)])

    def _gather(self, given: Sequence[tuple[int, Flow]]) -> EventBatch:
        """The output of groups, each with its keys; counts what they dropped."""
        for number, _ in given:
            group = self._groups[number]
            self._ctis[number] = group.out_cti
            self._counts.update(group.take_counts())
            self._dropped += group.take_dropped()
        shown = [(number, batch) for number, flow in given for batch in flow.batches]
        if not shown:
            return self._nothing
        owner = np.repeat([number for number, _ in shown], [len(batch) for _, batch in shown])
        return self._with_keys(owner, concat([batch for _, batch in shown]))

    def _with_keys(self, owner: Index, batch: EventBatch) -> EventBatch:
        columns = [*self._keys.rows(owner).columns, *batch.payload.columns]
        return replace(batch, payload=pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _least_cti(self) -> int:
        return int(self._ctis.min(initial=self._unseen.out_cti))

    def on_cti(self, port: int, t: int) -> Output:
        out = self._tell_all(lambda pipeline: pipeline.feed(port, Flow(cti=t)))
        return self._forget_idle_groups(out)

    def check_end(self) -> None:
        for group in self._groups:
            group.check_end()

    def on_clock(self, now: int) -> Output:
        return self._forget_idle_groups(self._tell_all(lambda pipeline: pipeline.tick(now)))

    def _forget_idle_groups(self, shown: EventBatch) -> Output:
        """After all groups got something: forget those that are now like a group not seen yet."""
        t = self._least_cti()
        in_use = np.array([not group.is_like(self._unseen) for group in self._groups], np.bool_)
        if not in_use.all():
            self._keys.retire(in_use)
            self._groups = [self._groups[number] for number in in_use.nonzero()[0].tolist()]
            self._ctis = self._ctis[in_use]
        return self.emit(t, shown)

    def no_effect_before(self, port: int, t: int) -> int:
        """The least of all groups. It is kept until all groups get something again."""
        if port not in self._no_effect:
            everyone = [self._unseen, *self._groups]
            self._no_effect[port] = min(pipeline.no_effect_before(port) for pipeline in everyone)
        return self._no_effect[port]

    def orphans(self, port: int) -> Orphans:
        """A group gets its elements in the order in which they came."""
        return self._unseen.orphans(port)

    def trace(self) -> tuple[int, ...] | None:
        return None if self._groups else ()

    def state_rows(self) -> int:
        return self._unseen.state_rows() + sum(group.state_rows() for group in self._groups)

    def state_bytes(self) -> int:
        return self._keys.nbytes() + sum(group.state_bytes() for group in [self._unseen, *self._groups])

    def snapshot_state(self) -> Chunks:
        unseen = add_prefix("unseen", self._unseen.snapshot())
        groups = add_prefix("groups", stack_groups(group.snapshot() for group in self._groups))
        return {"keys": self._keys, **unseen, **groups}

    def restore_state(self, chunks: Chunks) -> None:
        self._keys.restore(chunks["keys"])
        self._unseen, self._unseen_chunks = self._make(), None
        self._unseen.restore(take_prefix("unseen", chunks))
        self._groups = []
        for own in unstack_groups(take_prefix("groups", chunks)):
            group = self._make()
            group.restore(own)
            self._groups.append(group)
        self._ctis = np.array([group.out_cti for group in self._groups], np.int64)
        self._no_effect = {}
