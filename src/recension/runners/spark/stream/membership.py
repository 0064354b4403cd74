"""Streams that join and leave a merge while its pipeline runs: the sub-folders of a root.

A task that reads the files of a root packs what each stream sent, and messages about who joins and leaves.
The host of a merge takes them in.

Assumes     the packets of a micro-batch name the file they are from, and its folder the stream. Messages name
            the streams that have files, those that join, complete from which time on, and those that leave.
Guarantees  every shard takes the streams in by the same order. Within a micro-batch streams join before
            anything is read, and leave after everything was.
State       who has joined, in the order of the merge's ports, and who has left; the last file of each.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError, RecensionError, TimeError
from recension.core.formats.files import format_errors
from recension.core.formats.listing import SPARK_LOG
from recension.core.ticks import BEGINNING, instant
from recension.plan.fragments import Edge, Fragment
from recension.plan.node import walk
from recension.plan.nodes import Merge, Source
from recension.runners.exchange.packets import Packet, merge_packets, require_file_order
from recension.runners.local import Session
from recension.runners.spark.stream.packing import FilePacker, Packing, paths_of
from recension.runners.spark.stream.topology import Topology

JOIN: Final = ".join"
LEAVE: Final = ".leave"
# In the name of the source that stands for all streams, where the name of one goes.
ANY: Final = "*"
HAS_FILES: Final = "has files"
JOINS: Final = "joins"
LEAVES: Final = "leaves"
IGNORED: Final = "it had left the merge"


class RootPacker(FilePacker):
    """The files of all streams, and the messages about them, into packets."""

    def __init__(self, topology: Topology, source: str, level: int, keys: list[int], *, root: Path) -> None:
        super().__init__(topology, source, level, keys)
        self._root = root

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        folders_seen: dict[Path, None] = {}
        for path in paths_of(batches):
            folders = path.relative_to(self._root).parts[:-1]
            if not folders:
                yield from packing.broadcast(read_message(path), str(path))
            elif len(folders) > 1:
                raise FormatError("a folder inside a stream's folder", file=str(path))
            else:
                folders_seen[path.parent] = None
                _require_whole(path.parent)
                yield from packing.read_file(path)
        for folder in folders_seen:
            # A shard that gets nothing of a stream must know of it all the same.
            yield from packing.broadcast(membership_message(HAS_FILES, folder.name), str(folder))


def read_message(path: Path) -> str:
    """The message in a small file on who joins or leaves."""
    name, verb = path.stem, path.suffix
    if verb == LEAVE:
        return membership_message(LEAVES, name)
    if verb != JOIN:
        raise FormatError("neither in a stream's folder nor called NAME.join or NAME.leave", file=str(path))
    with format_errors(str(path)):
        text = path.read_text(encoding="utf-8")
    try:
        since = json.loads(text)["from_time"]
        return membership_message(JOINS, name, BEGINNING if since is None else instant(since))
    except (ValueError, KeyError, TypeError, TimeError):
        raise FormatError('it must hold {"from_time": TIME}', file=str(path)) from None


def _require_whole(folder: Path) -> None:
    """Spark's own sink leaves files of failed attempts: which ones count is known only later."""
    if (folder / SPARK_LOG).is_dir():
        raise FormatError(
            "written by Spark's file sink, where files may not count; write it with rc.spark.write_changelog",
            file=str(folder),
        )


@dataclass(slots=True)
class Membership:
    """Who has joined, with the time from which each is complete, and who has left."""

    ports: list[tuple[str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = [(name, since) for name, since in self.ports]

    def since(self, name: str) -> int | None:
        """The time from which a stream is complete, if it has joined."""
        return dict(self.ports).get(name)


class RootMerge:
    """The merge of one session that reads the streams of one root."""

    def __init__(self, session: Session, fragment: Fragment, edge: Edge) -> None:
        self._session, self._edge = session, edge
        self._query = _query_of(fragment, edge.source)
        self.membership = Membership()
        self._ignored: Counter[str] = Counter()

    def restore(self, membership: Membership) -> None:
        """Let all join and leave that have, before their state is restored."""
        for name, since in membership.ports:
            self._join(name, since)
        for name in membership.left:
            self._leave(name)

    def admit(self, packets: Iterable[Packet]) -> None:
        """Let streams join: by a message, or else with their first file, complete from the beginning."""
        packets = list(packets)
        for name, (since, place) in sorted(_read_messages(packets, JOINS).items()):
            self._require_new(name, since, place)
            self._join(name, since)
        for name in sorted(_read_messages(packets, HAS_FILES)):
            if name not in self.membership.left:
                self._join(name, BEGINNING)

    def _require_new(self, name: str, since: int, place: str) -> None:
        if name in self.membership.left:
            raise RecensionError(
                f"{place}: {name} has left and cannot join again; write to a sub-folder with a new name"
            )
        known = self.membership.since(name)
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
                # A stream is a folder of files.
                by_stream[PurePath(packet.place).parent.name].append(packet)
        return sum(self._feed(name, by_stream[name], places) for name in sorted(by_stream))

    def _feed(self, name: str, packets: list[Packet], places: dict[str, str]) -> int:
        came = merge_packets(packets, self._edge.origin.schema)
        if name in self.membership.left:
            self._ignored[name] += len(came.events)
            return 0
        require_file_order(places, self._source(name), packets)
        self._session.push(self._source(name), came.rows(name))
        return len(came.events)

    def detach_left_streams(self, packets: Iterable[Packet]) -> None:
        """Let streams leave; what comes of them later is ignored."""
        for name in sorted(_read_messages(packets, LEAVES)):
            self._leave(name)

    def states(self) -> dict[str, str]:
        """Whether each stream is joining, joined, leaving or has left."""
        names = (name for name, _ in self.membership.ports)
        return dict(zip(names, self._session.states(self._query), strict=True))

    def take_ignored(self) -> dict[str, Counter[str]]:
        """How many elements came of streams that had left, since the last call."""
        ignored, self._ignored = self._ignored, Counter()
        return {name: Counter({IGNORED: count}) for name, count in ignored.items()}

    def _join(self, name: str, since: int) -> None:
        if self.membership.since(name) is None:
            self._session.attach(replace(self._edge.source, name=self._source(name)), since, self._query)
            self.membership.ports.append((name, since))

    def _leave(self, name: str) -> None:
        if name in self.membership.left:
            return
        if self.membership.since(name) is not None:
            self._session.detach(self._source(name), self._query)
        self.membership.left.append(name)

    def _source(self, name: str) -> str:
        return self._edge.source.name.replace(ANY, name)


def membership_message(verb: str, name: str, since: int = BEGINNING) -> str:
    """A message about a stream, as JSON."""
    return json.dumps({verb: name, "since": since})


def _read_messages(packets: Iterable[Packet], verb: str) -> dict[str, tuple[int, str]]:
    """The streams of which messages say this, each with the time and the file of the message."""
    found = [(json.loads(p.info), p.place) for p in packets if p.place and p.info]
    return {message[verb]: (message["since"], place) for message, place in found if verb in message}


def _query_of(fragment: Fragment, source: Source) -> str:
    """The number of the query whose merge reads the root."""
    for number, (_, plan) in enumerate(fragment.outputs):
        if any(isinstance(n, Merge) and n.is_open and n.streams[0] is source for n in walk(plan)):
            return str(number)
    raise RecensionError("streams that come and go can only be read by a merge")
