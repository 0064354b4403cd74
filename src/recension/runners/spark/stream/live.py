"""Engines that stay in a Python worker between micro-batches, and how they are made again.

A worker may hold the engine of a shard as of any micro-batch, or of an attempt that failed. So an engine is
taken out before it is used and put back when its last packet is gone; it is good if the state carries its
token. If not, it is brought up to date: only pieces of state it does not hold are read.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import zip_longest

from recension.core.errors import RecensionError
from recension.runners.spark.stream.chunks import FORMAT, Head, Store, load, read_head, save
from recension.runners.spark.stream.host import Host
from recension.runners.spark.stream.topology import Topology

CUT_OVER = (
    "start it with a new checkpoint; to change a running query without a gap see 'cut-over' in the guide"
)


@dataclass(slots=True)
class Live:
    """A host and the token of the state it stands for."""

    host: Host
    token: str


_parked: dict[tuple[str, int, int], Live] = {}


@dataclass(slots=True)
class Visit:
    """One micro-batch of one shard: the host as the state has it, and what getting it took."""

    topology: Topology
    level: int
    shard: int
    host: Host
    head: Head | None
    was_live: bool
    seconds: float

    def leave(self, store: Store, batch: int) -> int:
        """Store what changed; the number of bytes. The host can be parked once this is done."""
        self.head, written = save(store, self.host.snapshot(), self.head, self.topology.owner, batch)
        return written

    def park(self) -> None:
        """Keep the host for the next micro-batch."""
        assert self.head is not None
        key = (self.topology.fingerprint, self.level, self.shard)
        _parked[key] = Live(self.host, self.head.token)


def visit(topology: Topology, level: int, shard: int, store: Store) -> Visit:
    """The host of a shard, from this worker or from the state."""
    began = time.perf_counter()
    head = read_head(store)
    live = _parked.pop((topology.fingerprint, level, shard), None)
    if head is None:
        host, was_live = Host(topology, level, shard), False
    else:
        _require_same(head, topology)
        was_live = live is not None and live.token == head.token
        host = live.host if live is not None else Host(topology, level, shard)
        if not was_live:
            known = host.snapshot() if live is not None else {}
            host.restore(load(store, head, known))
    return Visit(topology, level, shard, host, head, was_live, time.perf_counter() - began)


def _require_same(head: Head, topology: Topology) -> None:
    """Refuse a state made by another query, another number of shards or another version."""
    if head.format != FORMAT:
        raise RecensionError(
            f"the checkpoint's state has format {head.format}, this version reads {FORMAT}: {CUT_OVER}"
        )
    if head.owner == topology.owner:
        return
    old, new = json.loads(head.owner), json.loads(topology.owner)
    if old["shards"] != new["shards"]:
        what = f"was made with {old['shards']} shards, not {new['shards']}"
    else:
        pairs = zip_longest((n[0] for n in old["plan"]), (n[0] for n in new["plan"]))
        was, now = next(((a, b) for a, b in pairs if a != b), ("other columns", "these"))
        what = f"was made by another query: it has {was!r} where this one has {now!r}"
    raise RecensionError(f"the checkpoint {what}; {CUT_OVER}")
