"""R3−: the merge of R3 with an index for each input and one for the output, the paper's baseline.

Assumes     as R3.
Guarantees  the output of R3 with the policy `first`, element for element.
State       for every input, and for the output, its events that are not fully frozen, payloads included.
Cost        as R3, but a lookup in every index for every key that is deleted; memory grows with the inputs.
Source      Physically Independent Stream Merging, §VI-A; ruling 23.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Output
from recension.operators.changes import changes
from recension.operators.lmerge.contradictions import describe_event
from recension.operators.lmerge.in2t import In2t, find_key_changes
from recension.operators.lmerge.key_table import FreezeQueue
from recension.operators.lmerge.merge import (
    NONE,
    OUT,
    IndexedMerge,
    is_frozen,
    mismatch_error,
    take_ascending,
)
from recension.operators.state.chunks import add_prefix, take_prefix


class R3Minus(IndexedMerge):
    """Simple, and wasteful: an event is stored once for each input that has it."""

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema, ports)
        self._indexes = {port: In2t(schema, []) for port in (OUT, *range(ports))}
        self._queue = FreezeQueue()

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch) or not self.inputs[port].is_live:
            return self._nothing
        changed = find_key_changes(batch)
        own, out = self._indexes[port], self._indexes[OUT]
        nodes, vs = own.find(changed.key), batch.vs[changed.row]
        held = np.where(nodes >= 0, own.ends(OUT)[nodes], NONE) if len(own) else np.full(len(nodes), NONE)
        if (row := changed.find_clash(batch, held)) is not None:
            raise mismatch_error(batch, row, "R3-", "the input has this start and payload with another end")
        is_shown = out.find(changed.key) >= 0
        shown = np.flatnonzero(~is_shown & changed.is_new & (vs >= self.out_cti) & (changed.end != NONE))
        put = _put(out, changed.key[shown], vs[shown], changed.end[shown], batch.payload, changed.row[shown])
        self._queue.add(vs[shown], put, BEGINNING)
        known = is_shown.copy()
        known[shown] = True
        enters = np.flatnonzero((nodes < 0) & known & changed.is_new & (changed.end != NONE))
        stays = np.flatnonzero(nodes >= 0)
        own.set_ends(OUT, nodes[stays], changed.end[stays])
        _put(own, changed.key[enters], vs[enters], changed.end[enters], batch.payload, changed.row[enters])
        vs, rows = vs[shown], changed.row[shown]
        return changes(vs, vs, changed.end[shown], take_ascending(batch.payload, rows))

    def holds_endless(self, port: int) -> bool:
        own = self._indexes[port]
        return bool((own.ends(OUT)[own.all_nodes()] == FOREVER).any())

    def pass_over(self, leader: int, t: int) -> list[EventBatch]:
        out, own = self._indexes[OUT], self._indexes[leader]
        nodes = self._queue.freeze(t, out.nodes)
        keys, vs, old = out.keys(nodes), out.vs(nodes), out.ends(OUT)[nodes]
        found = own.find(keys)
        end = np.where(found >= 0, own.ends(OUT)[found], NONE) if len(own) else np.full(len(nodes), NONE)
        kept = (end == NONE) & (vs < self.out_cti)
        self._note(leader, nodes, end, old, kept & (old >= self.least_end(leader)))
        end = np.where(kept, old, end)
        gone, final = end == NONE, is_frozen(end, t)
        wrong = (old != end) & (gone | final | (old < t) | (t == FOREVER))
        allowed = np.where(gone, vs >= self.out_cti, np.minimum(old, end) >= self.out_cti)
        self._note(leader, nodes, end, old, wrong & ~allowed)
        at = np.flatnonzero(wrong & allowed)
        at = at[out.sort_nodes(nodes[at])]
        new = np.where(gone, vs, end)[at]
        shown = changes(vs[at], old[at], new, out.payload(nodes[at]))
        out.set_ends(OUT, nodes[at], end[at])
        self._delete(keys[gone | final])
        self.out_cti = t
        return [shown]

    def _note(self, leader: int, nodes: Index, end: Ticks, old: Ticks, wrong: Mask) -> None:
        """The leading input lacks events that stay, or has ends that come too late."""
        at = np.flatnonzero(wrong)
        if not len(at):
            return
        out, first = self._indexes[OUT], at[:1]
        own, has, vs = int(end[first][0]), int(old[first][0]), int(out.vs(nodes[first])[0])

        def told() -> str:
            row = out.payload(nodes[first])
            if own == NONE:
                return f"lacks {describe_event(row, 0, vs, has)}, which the output has"
            return f"has {describe_event(row, 0, vs, own)}, which the output has with the end {has}"

        self.contradictions.note(leader, len(at), told)

    def _delete(self, keys: Hashes) -> None:
        """From all indexes, or lagging inputs would leak."""
        for index in self._indexes.values():
            nodes = index.find(keys)
            index.remove(nodes[nodes >= 0])
        self._queue.drop_dead(self._indexes[OUT].nodes)

    def on_attach(self, port: int) -> None:
        self._indexes[port] = In2t(self.schema, [])

    def on_detach(self, port: int) -> Output:
        del self._indexes[port]
        return super().on_detach(port)

    def state_rows(self) -> int:
        return sum(len(index) for index in self._indexes.values())

    def state_bytes(self) -> int:
        return self._queue.nbytes() + sum(index.nbytes() for index in self._indexes.values())

    def snapshot_state(self) -> Chunks:
        chunks = dict(super().snapshot_state())
        for port, index in self._indexes.items():
            chunks |= add_prefix(str(port), index.parts())
        return chunks

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        ports, known = (OUT, *self.inputs.live_ports()), self._indexes
        self._indexes = {port: known[port] if port in known else In2t(self.schema, []) for port in ports}
        for port, index in self._indexes.items():
            index.restore(take_prefix(str(port), chunks), [])
        nodes = self._indexes[OUT].all_nodes()
        self._queue = FreezeQueue()
        self._queue.add(self._indexes[OUT].vs(nodes), nodes, self.out_cti)


def _put(index: In2t, keys: Hashes, vs: Ticks, end: Ticks, payload: pa.RecordBatch, rows: Index) -> Index:
    nodes = index.add(keys, vs, payload, rows)
    index.set_ends(OUT, nodes, end)
    return nodes
