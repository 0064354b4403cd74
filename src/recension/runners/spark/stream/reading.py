"""Files that a shard reads for itself, rather than be sent what is in them.

A file of columns is read faster than its rows are sent: with few shards each of them reads all files and
keeps what is its own, and a stage of the pipeline has nothing to do.
"""

from __future__ import annotations

from recension.runners.spark.stream.packets import Packet
from recension.runners.spark.stream.packing import Packing, local_path
from recension.runners.spark.stream.topology import Topology


class Reading:
    """The files of one micro-batch: each is read once, whatever the number of edges that read its source."""

    def __init__(self, topology: Topology, level: int, shard: int) -> None:
        self._topology, self._level, self._shard = topology, level, shard
        self._found: dict[str, list[Packet]] = {}

    def fetched(self, packets: list[Packet], source: str) -> list[Packet]:
        """The packets of an edge, with what is in the files that some of them name."""
        addresses = [packet.place for packet in packets if packet.place and packet.blob is None]
        if not addresses:
            return packets
        if source not in self._found:
            packing = Packing(self._topology, source, self._level, only=self._shard)
            read = [packet for address in addresses for packet in packing.read(local_path(address))]
            self._found[source] = [*read, *(p for p in packing.farewell() if p.shard == self._shard)]
        return [packet for packet in self._found[source] if packet.edge == packets[0].edge]
