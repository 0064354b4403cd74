"""The index of the R3 merge: one node for each (vs, payload), with the end that each input has for it.

The payload is stored once, whatever the number of inputs; an input costs one integer a node. A batch of an
input comes to the index as the last change of each key.

Source      Physically Independent Stream Merging, §IV-D, figure 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask, new_end, take_rows
from recension.core.change_log import Change
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import Ticks
from recension.operators.lmerge.key_table import KeyTable, find_repeated
from recension.operators.lmerge.merge import NONE, OUT, port_column
from recension.operators.state.row_store import PayloadStore

_END = (np.int64, NONE)


class In2t:
    """Nodes by number; ``nodes`` has their keys, starts, rows of payloads, and ends."""

    def __init__(self, schema: pa.Schema, ports: list[int]) -> None:
        self.nodes = self._make_nodes(ports)
        self._payloads = PayloadStore(schema)

    @staticmethod
    def _make_nodes(ports: list[int]) -> KeyTable:
        ends = {port_column(port): _END for port in (OUT, *ports)}
        own = {"vs": (np.int64, 0), "row": (np.int64, 0), "disputed": (np.bool_, 1)}
        return KeyTable(own | ends, hints=["disputed"])

    def __len__(self) -> int:
        return len(self.nodes)

    def nbytes(self) -> int:
        """Memory held."""
        return self.nodes.nbytes() + self._payloads.nbytes()

    def attach(self, port: int) -> None:
        """A new input, which has none of the events."""
        self.nodes["disputed"][:] = True
        self.nodes.add_column(port_column(port), *_END)

    def detach(self, port: int) -> None:
        """Forget what an input has."""
        self.nodes.drop_column(port_column(port))

    def find(self, keys: Hashes) -> Index:
        """The node of each key, -1 if there is none."""
        return self.nodes.find(keys)

    def add(self, keys: Hashes, vs: Ticks, payload: pa.RecordBatch, rows: Index) -> Index:
        """New nodes with the payloads in these rows."""
        return self.nodes.add(keys, vs=vs, row=self._payloads.append(take_rows(payload, rows), len(rows)))

    def ends(self, port: int) -> Ticks:
        """The end of each node's event at an input or the output, NONE where it is not there."""
        ends: Ticks = self.nodes[port_column(port)]
        return ends

    def set_ends(self, port: int, nodes: Index, ends: Ticks) -> None:
        """The events of some nodes at an input, or the output, have these ends now."""
        self.nodes[port_column(port)][nodes] = ends
        self.nodes.note(nodes)

    def vs(self, nodes: Index) -> Ticks:
        """The starts of some nodes."""
        starts: Ticks = self.nodes["vs"].take(nodes)
        return starts

    def keys(self, nodes: Index) -> Hashes:
        """The keys of some nodes."""
        return self.nodes.keys[nodes]

    def payload(self, nodes: Index) -> pa.RecordBatch:
        """The payloads of some nodes."""
        return self._payloads.take(self.nodes["row"][nodes])

    def all_nodes(self) -> Index:
        """Every node."""
        return self.nodes.rows()

    def sort_nodes(self, nodes: Index) -> Index:
        """The places of nodes by (vs, key)."""
        return np.lexsort((self.nodes.keys[nodes], self.nodes["vs"][nodes]))

    def remove(self, nodes: Index) -> None:
        """Forget nodes."""
        self._payloads.drop(self.nodes["row"].take(nodes))
        self.nodes.remove_rows(nodes)

    def parts(self) -> dict[str, Any]:
        """The whole state."""
        return {"nodes": self.nodes, "payloads/rows": self._payloads}

    def restore(self, chunks: Mapping[str, Any], ports: list[int]) -> Index:
        """Become the index that gave these parts, or take over changes; the nodes that were given."""
        nodes = chunks["nodes"]
        self._payloads.restore(chunks["payloads/rows"])
        if not isinstance(nodes, Change) or nodes.is_whole:
            self.nodes = self._make_nodes(ports)
        return self.nodes.restore(nodes)[0]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """One entry for each key, in order of its last element.

    row       that element
    end       the end the event has after it, NONE if it is removed
    is_new    was it inserted within the batch?
    first     the first element of the key
    conflict  an element, if any, that inserts an event which the batch itself has with another end
    """

    row: Index
    key: Hashes
    end: Ticks
    is_new: Mask
    first: Index
    conflict: int | None = None

    def find_clash(self, batch: EventBatch, held: Ticks, repeats: bool = True) -> int | None:
        """An element, if any, that inserts an event which the input has (``held``), with another end.

        With ``repeats`` an insert with the same end is only a repeat.
        """
        if self.conflict is not None:
            return self.conflict
        opening = (batch.kind[self.first] == INSERT) & (held != NONE)
        if repeats:
            opening &= held != batch.ve[self.first]
        return int(self.first[opening].min()) if bool(opening.any()) else None


def find_key_changes(batch: EventBatch, repeats: bool = True) -> KeyChanges:
    """The last word on each key, where every key has at most one event at a time."""
    keys = combine(row_hash(batch.payload, len(batch)), batch.vs)
    end = new_end(batch)
    end = np.where(end == batch.vs, np.int64(NONE), end)
    inserted = batch.kind == INSERT
    again = find_repeated(keys)
    if not len(again):
        rows = np.arange(len(batch))
        return KeyChanges(rows, keys, end, inserted, rows)
    order = again[np.argsort(keys[again], kind="stable")]
    same = keys[order][1:] == keys[order][:-1]
    clash = order[1:][same & inserted[order][1:] & _differs(end[order], repeats)]
    first = np.flatnonzero(np.append(True, ~same))
    last = order[np.append(~same, True)]
    inserted[last] = np.logical_or.reduceat(inserted[order], first)
    keep = np.ones(len(batch), np.bool_)
    keep[order[np.append(same, False)]] = False
    opening = np.arange(len(batch))
    opening[last] = order[first]
    rows = np.flatnonzero(keep)
    conflict = int(clash.min()) if len(clash) else None
    return KeyChanges(rows, keys[rows], end[rows], inserted[rows], opening[rows], conflict)


def _differs(end: Ticks, repeats: bool) -> Mask:
    """Is there an event before each but the first, with another end than the one that comes?"""
    different: Mask = (end[:-1] != NONE) & ((end[1:] != end[:-1]) | (not repeats))
    return different
