"""Engines that stay in a Python worker between micro-batches, and how they are made again.

A worker may hold the engine of a shard as of any micro-batch, or of an attempt that failed. So an engine is
taken out before it is used and put back when its last packet is gone; it is good if the state carries its
token. If not, it is brought up to date: only pieces of state it does not hold are read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from recension.runners.spark.stream.chunks import Head, Store, load, read_head, save
from recension.runners.spark.stream.host import Host
from recension.runners.spark.stream.identity import require_same
from recension.runners.spark.stream.topology import Topology

# An engine nobody asked for in so many seconds is of a query that has ended, or has gone to another worker.
_IDLE: Final = 600.0


class Key(NamedTuple):
    """Whose engine it is. Queries of one plan may run beside each other, each on a checkpoint of its own."""

    query: str
    fingerprint: str
    level: int
    shard: int


@dataclass(slots=True)
class Live:
    """A host and the token of the state it stands for."""

    host: Host
    token: str
    code: str
    """That of the query it was made of: started again with other functions, a query needs other engines."""
    since: float = field(default_factory=time.monotonic)


_parked: dict[Key, Live] = {}


@dataclass(slots=True)
class Visit:
    """One micro-batch of one shard: the host as the state has it, and what getting it took."""

    key: Key
    topology: Topology
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
        _parked[self.key] = Live(self.host, self.head.token, self.topology.code)
        for key in [key for key, live in _parked.items() if time.monotonic() - live.since > _IDLE]:
            del _parked[key]


def visit(topology: Topology, level: int, shard: int, store: Store, query: str = "") -> Visit:
    """The host of a shard, from this worker or from the state."""
    began = time.perf_counter()
    key = Key(query, topology.fingerprint, level, shard)
    head, live = read_head(store), _parked.pop(key, None)
    if live is not None and live.code != topology.code:
        live = None
    if head is None:
        host, was_live = Host(topology, level, shard), False
    else:
        require_same(head.owner, topology.owner)
        was_live = live is not None and live.token == head.token
        host = live.host if live is not None else Host(topology, level, shard)
        if not was_live:
            known = host.snapshot() if live is not None else {}
            host.restore(load(store, head, known))
    return Visit(key, topology, host, head, was_live, time.perf_counter() - began)
