"""Streams that join and leave a merge while its pipeline runs: the sub-folders of a root.

Assumes     the packets of a micro-batch name the file they are from, and its folder the stream. Others tell
            every shard which streams have files, who joins, complete from which time on, and who leaves.
Guarantees  every shard takes the streams in by the same order. Within a micro-batch whoever joins does so
            before anything is read, whoever leaves after everything was.
State       who has come, in the order of the merge's ports, and who has gone; how far each one's files go.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from recension.core.errors import RecensionError, StreamError
from recension.core.ticks import BEGINNING
from recension.plan.fragments import Edge, Fragment
from recension.plan.node import walk
from recension.plan.nodes import Merge, Source
from recension.runners.local import Session
from recension.runners.spark.stream.inflow import inflow
from recension.runners.spark.stream.packets import Packet

# In the name of the source that stands for all streams, where the name of one goes.
ANY: Final = "*"
COMES: Final = "comes"
JOINS: Final = "joins"
LEAVES: Final = "leaves"
IGNORED: Final = "it had left the merge"


@dataclass(slots=True)
class Comings:
    """Who came, with the time from which each is complete, and who has gone."""

    ports: list[tuple[str, int]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = [(name, since) for name, since in self.ports]

    def since(self, name: str) -> int | None:
        """The time with which a stream has joined, if it has."""
        return dict(self.ports).get(name)


class Joining:
    """The streams of one root, at the merge of one session."""

    def __init__(self, session: Session, fragment: Fragment, edge: Edge) -> None:
        self._session, self._edge = session, edge
        self._query = _reader(fragment, edge.source)
        self.comings = Comings()
        self._ignored: Counter[str] = Counter()

    def recall(self, comings: Comings) -> None:
        """Let all come and go that have, before their state is restored."""
        for name, since in comings.ports:
            self._join(name, since)
        for name in comings.gone:
            self._leave(name)

    def admit(self, packets: Iterable[Packet]) -> None:
        """Take in those who join: announced, else with their first file, complete from the beginning."""
        packets = list(packets)
        for name, (since, place) in sorted(_told(packets, JOINS).items()):
            self._require_new(name, since, place)
            self._join(name, since)
        for name in sorted(_told(packets, COMES)):
            if name not in self.comings.gone:
                self._join(name, BEGINNING)

    def _require_new(self, name: str, since: int, place: str) -> None:
        if name in self.comings.gone:
            raise RecensionError(f"{place}: {name} has left; let it come again in a folder of another name")
        known = self.comings.since(name)
        if known is not None and known != since:
            begun = "the beginning" if known == BEGINNING else known
            raise RecensionError(
                f"{place}: {name} has joined already, complete from {begun} on; say from when a stream is "
                "complete before its first file is there"
            )

    def feed(self, packets: Iterable[Packet], places: dict[str, str]) -> int:
        """What came of each stream, one after the other; gives the number of elements."""
        by_stream: defaultdict[str, list[Packet]] = defaultdict(list)
        for packet in packets:
            if packet.blob is not None:
                by_stream[stream_of(packet)].append(packet)
        return sum(self._feed(name, by_stream[name], places) for name in sorted(by_stream))

    def _feed(self, name: str, packets: list[Packet], places: dict[str, str]) -> int:
        came = inflow(packets, self._edge.origin.schema)
        if name in self.comings.gone:
            self._ignored[name] += len(came.events)
            return 0
        require_order(places, self._source(name), packets)
        rows = self._session.rows_seen(self._source(name))
        try:
            self._session.push(self._source(name), came.events)
        except StreamError as why:
            raise came.placed(why, name, rows) from None
        return len(came.events)

    def dismiss(self, packets: Iterable[Packet]) -> None:
        """Let those go who leave; what comes of them later is ignored."""
        for name in sorted(_told(packets, LEAVES)):
            self._leave(name)

    def states(self) -> dict[str, str]:
        """Whether each stream is joining, joined, leaving or has left."""
        names = (name for name, _ in self.comings.ports)
        return dict(zip(names, self._session.states(self._query), strict=True))

    def take_ignored(self) -> dict[str, Counter[str]]:
        """How many elements came of streams that had left, since the last time of asking."""
        ignored, self._ignored = self._ignored, Counter()
        return {name: Counter({IGNORED: count}) for name, count in ignored.items()}

    def _join(self, name: str, since: int) -> None:
        if self.comings.since(name) is None:
            self._session.attach(replace(self._edge.source, name=self._source(name)), since, self._query)
            self.comings.ports.append((name, since))

    def _leave(self, name: str) -> None:
        if name in self.comings.gone:
            return
        if self.comings.since(name) is not None:
            self._session.detach(self._source(name), self._query)
        self.comings.gone.append(name)

    def _source(self, name: str) -> str:
        return self._edge.source.name.replace(ANY, name)


def stream_of(packet: Packet) -> str:
    """The stream that a packet is of: the folder of its file."""
    return PurePath(packet.place).parent.name


def require_order(known: dict[str, str], name: str, packets: Iterable[Packet]) -> None:
    """Files are taken by their age; a stream's files must have been named in the same order."""
    places = [packet.place for packet in packets if packet.place]
    if not places:
        return
    last = known.get(name, "")
    if min(places) < last:
        raise RecensionError(
            f"{min(places)} came after {last}: Spark takes files by the time they were written, and a "
            "stream is its files in the order of their names; write them in that order"
        )
    known[name] = max(places)


def word(verb: str, name: str, since: int = BEGINNING) -> str:
    """What a control packet says."""
    return json.dumps({verb: name, "since": since})


def _told(packets: Iterable[Packet], verb: str) -> dict[str, tuple[int, str]]:
    """Of whom control packets say this, with the time and the file it stands in."""
    said = [(json.loads(p.info), p.place) for p in packets if p.place and p.info]
    return {words[verb]: (words["since"], place) for words, place in said if verb in words}


def _reader(fragment: Fragment, source: Source) -> str:
    """The number of the answer whose merge reads the root."""
    for number, (_, plan) in enumerate(fragment.outputs):
        if any(isinstance(n, Merge) and n.is_open and n.streams[0] is source for n in walk(plan)):
            return str(number)
    raise RecensionError("streams that come and go can only be read by a merge")
