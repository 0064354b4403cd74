"""The index of the R4 merge: a node for each (vs, payload), and below it how often each input has each end.

A row of the lower level stands for a (vs, payload, end), with a count for each input and for the output:
inputs agree on most events, and then an event costs one row. The payload is stored once, with the node.

Source      Physically Independent Stream Merging, §IV-E, figure 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.change_log import Change
from recension.core.rowhash import Hashes, combine
from recension.core.sorted_runs import Column
from recension.core.ticks import Ticks
from recension.operators.lmerge.key_table import FreezeQueue, KeyTable
from recension.operators.lmerge.merge import OUT, port_column
from recension.operators.state.row_store import PayloadStore

_COUNT = (np.int32, 0)
_NODE = {"vs": (np.int64, 0), "row": (np.int64, 0)}
_EVENT = {"node": (np.int64, 0), "ve": (np.int64, 0)}


@dataclass(frozen=True, slots=True)
class FrozenEvents:
    """The events that start before a stable, with their nodes."""

    events: Index
    node: Index
    vs: Ticks
    ve: Ticks


class In3t:
    """Nodes and events by number."""

    def __init__(self, schema: pa.Schema, ports: list[int]) -> None:
        counts = {port_column(port): _COUNT for port in (OUT, *ports)}
        self.nodes = KeyTable(_NODE | counts)
        self.events = KeyTable(_EVENT | counts, {"node": self.nodes})
        self._payloads = PayloadStore(schema)
        self._queue = FreezeQueue()

    def nbytes(self) -> int:
        """Memory held."""
        index = self.nodes.nbytes() + self.events.nbytes() + self._queue.nbytes()
        return index + self._payloads.nbytes()

    def attach(self, port: int) -> None:
        """A new input, which has none of the events."""
        self.nodes.add_column(port_column(port), *_COUNT)
        self.events.add_column(port_column(port), *_COUNT)

    def detach(self, port: int) -> None:
        """Forget what an input has."""
        self.nodes.drop_column(port_column(port))
        self.events.drop_column(port_column(port))

    def size(self, port: int) -> Column:
        """How many events of each node an input, or the output, has; good until its start is passed."""
        return self.nodes[port_column(port)]

    def count(self, port: int) -> Column:
        """How often an input, or the output, has each event."""
        return self.events[port_column(port)]

    def note(self, nodes: Index, events: Index) -> None:
        """Counts of these change."""
        self.nodes.note(nodes)
        self.events.note(events)

    def add_nodes(self, keys: Hashes, vs: Ticks, payload: pa.RecordBatch, rows: Index) -> None:
        """New nodes with the payloads in these rows; keys are distinct and not there yet."""
        self.nodes.add(keys, vs=vs, row=self._payloads.append(take_rows(payload, rows), len(rows)))

    def put(self, nodes: Index, ve: Ticks, last_stable: int) -> Index:
        """The event of each node with this end, made where there is none."""
        found, fresh = self.events.find_or_add(self.event_keys(nodes, ve), node=nodes, ve=ve)
        if len(fresh):
            self._queue.add(self.nodes["vs"][nodes[fresh]], found[fresh], last_stable)
        return found

    def find(self, nodes: Index, ve: Ticks) -> Index:
        """The event of each node with this end, -1 if there is none."""
        return self.events.find(self.event_keys(nodes, ve))

    def event_keys(self, nodes: Index, ve: Ticks) -> Hashes:
        return combine(self.nodes.keys[nodes], ve)

    def payload(self, nodes: Index) -> pa.RecordBatch:
        """The payloads of some nodes."""
        return self._payloads.take(self.nodes["row"][nodes])

    def freeze(self, t: int) -> FrozenEvents:
        """All events that start before ``t``: they are half frozen from now on."""
        events = self._queue.freeze(t, self.events)
        node = self.events["node"][events]
        return FrozenEvents(events, node, self.nodes["vs"][node], self.events["ve"][events])

    def with_whole_nodes(self, frozen: FrozenEvents, some: Mask) -> FrozenEvents:
        """All events of the nodes that some of the events have, by (vs, key, ve)."""
        wanted = np.zeros(self.nodes.size, np.bool_)
        wanted[frozen.node[some]] = True
        at = np.flatnonzero(wanted[frozen.node])
        at = at[np.lexsort((frozen.ve[at], self.nodes.keys[frozen.node[at]], frozen.vs[at]))]
        return FrozenEvents(frozen.events[at], frozen.node[at], frozen.vs[at], frozen.ve[at])

    def remove(self, events: Index, nodes: Index) -> None:
        """Forget events and nodes; of a node all events must go."""
        self._payloads.drop(self.nodes["row"][nodes])
        self.events.remove_rows(events)
        self.nodes.remove_rows(nodes)
        self._queue.drop_dead(self.events)

    def find_unused(self, events: Index, ports: list[int]) -> Mask:
        """Which events nobody has."""
        total = self.count(OUT)[events].astype(np.int64)
        for port in ports:
            total += self.count(port)[events]
        nobody: Mask = total == 0
        return nobody

    def parts(self) -> dict[str, Any]:
        """The whole state."""
        return {"in3t/nodes": self.nodes, "in3t/events": self.events, "payloads/rows": self._payloads}

    def restore(self, chunks: Mapping[str, Any], last_stable: int) -> None:
        """Become the index that gave these parts, or take over changes."""
        events = chunks["in3t/events"]
        self._payloads.restore(chunks["payloads/rows"])
        if isinstance(events, Change) and not events.is_whole:
            # First what went: its numbers are given to what came.
            self.events.forget(events)
            self._queue.freeze(last_stable, self.events)
            self._queue.drop_dead(self.events)
        else:
            self._queue = FreezeQueue()
        self.nodes.restore(chunks["in3t/nodes"])
        rows, is_new = self.events.restore(events)
        fresh = rows[is_new]
        self._queue.add(self.nodes["vs"][self.events["node"][fresh]], fresh, last_stable)
