"""A session that reads topics, writes topics, and goes on after a kill as if nothing had happened.

    messages ── TopicReader ──> tables ── Session.push, read ──> elements ── Journal, then Sender ──> topics

Assumes     topics keep their messages for as long as the newest snapshot is old, and one service at a time
            has the folder.
Guarantees  every message is counted once: offsets are kept with the state. The answers in the output topics
            carry run, batch and seq; after a kill some stand there twice, with the same numbers. A reader
            that skips numbers which are not above the highest of their run and partition has each once.
State       the session's; per partition of the inputs an offset; what was sent since the last snapshot.
Cost        a write to the disk for each batch; for a snapshot, the whole state.

Batches are cut once. A replay after a kill has the same messages in the same batches, by the same clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias
from uuid import uuid4

import pyarrow as pa

from recension.core.errors import RecensionError, StreamError, suggest_name
from recension.core.formats.messages import TOMBSTONE, MessageFormat
from recension.core.wall_clock import Clock
from recension.plan.keyed import ByKey
from recension.plan.node import Node, walk
from recension.plan.source import Table
from recension.runners.kafka.client import Config, Fetcher, Message, Sender, Start, describe_place
from recension.runners.kafka.journal import MESSAGES, BatchRecord, Journal, Ranges, TopicPartition
from recension.runners.kafka.messages import ClientReader, MessageOrigin, contents_of, describe_message
from recension.runners.kafka.notes import Notes
from recension.runners.kafka.output import Limits, OutputTopic, dead_letters, messages_of, require_writable
from recension.runners.local import Session
from recension.runners.topic_rows import STARTS, UNREADABLE, columns_of

_NOTES: Final = "kafka"
TOO_LONG: Final = "an answer that is too long for its topic"
_SECOND: Final = 1_000_000
_TICK: Final = _SECOND
_LOOK: Final = 30 * _SECOND

Until: TypeAlias = Literal["end"] | Callable[[], bool]


@dataclass(frozen=True)
class InputTopic:
    """A topic that feeds a source.

    ``columns`` are columns of the source that come from beside the value, by what they come from: ``key``,
    ``timestamp``, ``topic``, ``partition``, ``offset`` or ``headers.NAME``. Columns that the source names as
    its partition and order need not be listed if they have these names. A message that cannot be read goes to
    the topic ``dead_letters``, if one is named; else the policy of the source says whether it stops the
    service or is dropped. ``start`` is where a new service begins: ``earliest`` or ``latest``. Values are
    ``json``, ``avro`` or ``confluent-avro`` with an ``avro_schema``, ``arrow`` or ``parquet``.
    """

    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    dead_letters: str | None = None
    start: Start = "earliest"
    format: MessageFormat = "json"
    avro_schema: Any = None

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise RecensionError(f"topic {self.name}: start is 'earliest' or 'latest', not {self.start!r}")


class Service:
    """Runs a session over topics; see `rc.kafka.service`."""

    def __init__(
        self,
        session: Session,
        config: Config,
        inputs: Mapping[str, InputTopic],
        outputs: Mapping[str, OutputTopic],
        folder: Path,
        *,
        snapshot_every: int,
        wait: int,
        batch_size: int,
        clock: Clock,
    ) -> None:
        self.session = session
        self._inputs, self._outputs, self._clock = dict(inputs), dict(outputs), clock
        self._wait, self._every, self._size = wait / _SECOND, snapshot_every, batch_size
        self._commits = "group.id" in config
        self._now = clock()
        _require_inputs(session, inputs)
        self._readers: dict[str, ClientReader] = {}
        for query, output in outputs.items():
            require_writable(session.plan.queries[query].schema, query, output)
        _require_no_loop(inputs, outputs)
        self._saved = 0
        self._is_stopping = self._is_closed = False
        self._journal = Journal(folder)
        try:
            self._fetcher = Fetcher(config)
            try:
                self._open(config)
            except BaseException:
                self._fetcher.close()
                raise
        except BaseException:
            self._journal.close()
            raise

    def _open(self, config: Config) -> None:
        """Begin anew, or where the folder says."""
        self.session.use_clock(lambda: self._now)
        chunks = self._journal.load_state()
        listed = {topic.name for topic in self._inputs.values()}
        self._widths = {o.name: len(self._fetcher.partitions(o.name)) for o in self._outputs.values()}
        for letters in self._letters():
            self._fetcher.partitions(letters)
        facts, written = self._fetcher.facts, {*self._widths, *self._letters()}
        own = config.get("message.max.bytes")
        self._limits = Limits(facts.limits(written), None if own is None else int(own))
        if chunks is None:
            self._notes = Notes(uuid4().hex, self._fetcher.cluster(), self._topics(), dict(self._widths))
            starts = {topic.name: topic.start for topic in self._inputs.values()}
            places = [(name, p) for name in sorted(listed) for p in self._fetcher.partitions(name)]
            self._notes.offsets = {at: self._fetcher.first_offset(at, starts[at[0]]) for at in places}
            self._notes.expected = dict(Counter(name for name, _ in places))
            self._notes.ids = facts.ids({*listed, *self._widths})
        else:
            self._notes = Notes.from_table(self.session.restore(chunks)[_NOTES])
            self._notes.require_same(self._fetcher.cluster(), self._topics(), self._widths)
            self._require_topics()
        for source, topic in self._inputs.items():
            self._open_reader(source, topic, self._count_partitions(topic.name))
            self._readers[source].is_known = source in self._notes.known
            self.session.expect_partitions(source, self._notes.expected[topic.name])
        if chunks is None:
            self._save()
        self._saved_at = self._ticked_at = self._clock()
        self._looked_at = self._saved_at - _LOOK  # the topics may have grown since the last service
        self._sender = Sender(config, self._notes.run, self._limits.by_topic)
        self._delivered = self._notes.batch
        self._replay()

    def _open_reader(self, source: str, topic: InputTopic, partitions: int) -> None:
        """How the messages of a topic are read; refuses a source that takes several partitions for one."""
        node: Node = self.session.plan.sources[source]
        steps = (step for plan in self.session.plan.queries.values() for step in walk(plan))
        keyed = [step for step in steps if isinstance(step, ByKey) and step.input is node]
        node = keyed[0] if keyed else node
        columns = columns_of(node, [topic.name], partitions, topic.format, topic.avro_schema, topic.columns)
        is_known = source in self._readers and self._readers[source].is_known
        self._readers[source] = ClientReader(self.session.plan.sources[source], topic.name, columns)
        self._readers[source].is_known = is_known

    def _count_partitions(self, topic: str) -> int:
        return sum(name == topic for name, _ in self._notes.offsets)

    def _topics(self) -> dict[str, str]:
        return {source: topic.name for source, topic in self._inputs.items()}

    def _letters(self) -> list[str]:
        """The topics of dead letters."""
        named = [topic.dead_letters for topic in self._inputs.values()]
        named += [topic.dead_letters for topic in self._outputs.values()]
        return [name for name in named if name is not None]

    def _require_topics(self) -> None:
        """Refuse topics that were deleted and made anew: offsets and numbers of the old ones mean nothing."""
        names = {*self._topics().values(), *self._widths}
        self._notes.require_ids(self._fetcher.facts.ids(names))

    @property
    def run_id(self) -> str:
        """The run in the headers of what this service writes: a new one for every new folder."""
        return self._notes.run

    @property
    def offsets(self) -> dict[str, dict[int, int]]:
        """Per topic and partition, the first offset that was not taken in yet."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in sorted(self._notes.offsets.items()):
            found.setdefault(topic, {})[partition] = offset
        return found

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Per source, the messages that gave no rows, by reason; for elements see ``session.counts()``.

        Per query, the answers that went to its dead letters.
        """
        return {source: Counter(counts) for source, counts in self._notes.counts.items()}

    def lag(self) -> dict[str, int]:
        """Per topic, how many offsets it is ahead of what was taken in."""
        lags: Counter[str] = Counter()
        for place, offset in self._notes.offsets.items():
            lags[place[0]] += max(0, self._fetcher.ends(place)[1] - max(offset, self._reached(place)))
        return {topic: lags[topic] for topic in sorted({*self._topics().values()})}

    def poll(self, timeout: float | None = None) -> int:
        """Take in what has come, or wait for so many seconds until something does; how many messages it was.

        After an error the service is closed. Start a new one over the same folder: it goes on from there.
        """
        if self._is_closed:
            raise RecensionError("the service is closed: make a new one over the same folder")
        try:
            self._find_new_partitions()
            taken = self._fetcher.take(self._size, self._wait if timeout is None else timeout)
            self._now = max(self._now, self._clock())
            if taken:
                self._work(taken)
            elif self._now - self._ticked_at >= _TICK and self.session.is_clocked:
                self._work([])
            if self._now - self._saved_at >= self._every and self._notes.batch > self._saved:
                self.save()
            return len(taken)
        except BaseException:
            self._abandon()
            raise

    def run(self, until: Until | None = None) -> None:
        """Poll until `stop` is called, or ``until()`` is true, or to the ends that the topics have now."""
        self._find_new_partitions()
        goal = {at: self._fetcher.ends(at)[1] for at in self._notes.offsets} if until == "end" else {}
        self._is_stopping = False
        while not self._is_stopping:
            if until == "end":
                if all(self._reached(place) >= end for place, end in goal.items()):
                    return
            elif until is not None and until():
                return
            self.poll()

    def stop(self) -> None:
        """Let `run` end after the batch that it is at; for signal handlers and other threads."""
        self._is_stopping = True

    def save(self) -> None:
        """Keep a snapshot now: what was sent has arrived, and a restart has nothing to do again."""
        self._sender.flush()
        self._delivered = self._notes.batch
        self._save()
        if self._commits:
            self._fetcher.commit(self._notes.offsets)

    def close(self) -> None:
        """Keep a snapshot and let go of broker and folder."""
        if not self._is_closed:
            try:
                self.save()
            finally:
                self._abandon()

    def _abandon(self) -> None:
        """Let go of everything as it is; the folder has what is needed to go on."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(Exception):
                self._sender.close()
            with suppress(Exception):
                self._fetcher.close()
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if why is None:
            self.close()
        else:
            self._abandon()

    def _save(self) -> None:
        self._notes.known = [source for source, reader in self._readers.items() if reader.is_known]
        written = [(name, p) for name in self._widths for p in self._fetcher.partitions(name)]
        self._notes.written = {place: self._fetcher.ends(place)[1] for place in written}
        chunks = self.session.snapshot({_NOTES: self._notes.to_table()})
        self._journal.save_state(self._notes.batch, chunks)
        self._saved, self._saved_at = self._notes.batch, self._now

    def _reached(self, place: TopicPartition) -> int:
        """The offset up to which nothing is left to take in of a partition."""
        taken = self._notes.offsets[place]
        return self._fetcher.reached(place) if self._fetcher.has_taken(place) else taken

    def _find_new_partitions(self) -> None:
        """A topic that has grown is read whole: what its new partitions hold came after the start."""
        now = self._clock()
        if now - self._looked_at < _LOOK:
            return
        self._looked_at = now
        self._require_topics()
        places = [(n, p) for n in {*self._topics().values()} for p in self._fetcher.partitions(n)]
        new = {
            at: self._fetcher.first_offset(at, "earliest") for at in places if at not in self._notes.offsets
        }
        if new:
            self._add_partitions(new)

    def _add_partitions(self, new: Mapping[TopicPartition, int]) -> None:
        self._notes.offsets |= new
        for source, topic in self._inputs.items():
            self._open_reader(source, topic, self._count_partitions(topic.name))
        self._fetcher.start(new)

    def _work(self, messages: Sequence[Message]) -> None:
        """One batch: into the session, to the disk, then to the topics."""
        self._ticked_at = self._now
        ranges = self._ranges(messages)
        dead = self._push(messages)
        sent = [*dead, *self._read_outputs()]
        self._notes.advance(ranges)
        if self._sender.has_delivered():
            self._delivered = self._notes.batch - 1
        contents = contents_of(messages)
        record = BatchRecord(self._notes.batch, self._now, ranges, self._delivered, _concat(sent), contents)
        self._journal.append(record)
        self._sender.send(record)

    def _ranges(self, messages: Iterable[Message]) -> Ranges:
        ends = dict[TopicPartition, int]()
        for message in messages:
            place = (message.topic(), message.partition())
            ends[place] = max(ends.get(place, 0), message.offset() + 1)
        return {place: (self._notes.offsets[place], end) for place, end in ends.items()}

    def _replay(self) -> None:
        """Do again what was done since the snapshot, and send what may not have arrived."""
        records = list(self._journal.read_log())
        self._require_newest(max([self._notes.batch, *(record.number for record in records)]))
        self._fetcher.start(self._notes.offsets)
        delivered = max((record.delivered for record in records), default=0)
        for record in records:
            new = {at: first for at, (first, _) in record.ranges.items() if at not in self._notes.offsets}
            if new:
                self._add_partitions(new)
            self._now = record.now
            messages = self._fetcher.take_ranges(record.ranges)
            _require_same_messages(record, messages)
            self._push(messages)
            self._read_outputs()
            self._notes.advance(record.ranges)
            if record.number > delivered:
                self._sender.send(record)
        self._delivered = max(self._delivered, delivered)

    def _require_newest(self, batch: int) -> None:
        """Refuse a folder that was put back: what it would write has numbers that readers have seen."""
        for output in self._outputs.values():
            written = self._fetcher.highest_batch(output.name, self._notes.run, self._notes.written)
            if written > batch:
                raise RecensionError(
                    f"topic {output.name}: has batch {written} of this service, and the folder only {batch}, "
                    "since it was put back to an earlier state: start with a new folder"
                )

    def _push(self, messages: Sequence[Message]) -> list[pa.Table]:
        """Give messages to their sources; those that cannot be read, as messages to the dead letters."""
        by_topic: dict[str, list[Message]] = {}
        for message in sorted(messages, key=lambda one: (one.partition(), one.offset())):
            by_topic.setdefault(message.topic(), []).append(message)
        dead = list[pa.Table]()
        for source, topic in self._inputs.items():
            if topic.name in by_topic:
                dead += self._push_to(source, topic, by_topic[topic.name])
        if not messages:
            self.session.tick()
        return dead

    def _push_to(self, source: str, topic: InputTopic, messages: Sequence[Message]) -> list[pa.Table]:
        read, dead = self._readers[source].read(messages), list[pa.Table]()
        self._count(source, TOMBSTONE, read.tombstones)
        if read.faults:
            if topic.dead_letters is not None:
                dead = [dead_letters(topic.dead_letters, read.faults, self._limits)]
            elif self._readers[source].source.on_violation == "raise":
                message, reason = read.faults[0]
                raise StreamError(reason, file=describe_message(message))
            self._count(source, UNREADABLE, len(read.faults))
        if len(read.rows):
            self.session.push(
                source, read.rows, origin=MessageOrigin(messages=messages, made_of=read.made_of)
            )
        return dead

    def _count(self, source: str, reason: str, number: int) -> None:
        if number:
            self._notes.counts.setdefault(source, Counter())[reason] += number

    def _read_outputs(self) -> list[pa.Table]:
        """What the queries gave, as messages. Those that go to no topic are read too: they have a history."""
        found = []
        for query in self.session.plan.queries:
            result = self.session.read(query)
            if query in self._outputs and any(map(len, result.batches)):
                output = self._outputs[query]
                width = self._notes.widths[output.name]
                made = messages_of(result, output, width, self._widths[output.name], self._limits)
                self._count(query, TOO_LONG, made.too_long)
                found += made.tables
        return found


def _require_same_messages(record: BatchRecord, messages: Sequence[Message]) -> None:
    """Refuse messages that are not those of which the answers were sent."""
    now = contents_of(messages)
    for place, (count, digest) in record.contents.items():
        left, found = now.get(place, (0, ""))
        if (left, found) != (count, digest):
            first, end = record.ranges[place]
            what = f"{left} of the {count} messages" if left != count else "other messages than those"
            raise RecensionError(
                f"{describe_place(place)}: from offset {first} to {end - 1} the topic has {what} that the "
                "service has answered since its newest snapshot, as after a compaction: start with a new "
                "folder, and set the topic's min.compaction.lag.ms above snapshot_every"
            )


def _require_no_loop(inputs: Mapping[str, InputTopic], outputs: Mapping[str, OutputTopic]) -> None:
    """Refuse a service that would read what it writes, for ever."""
    read, written = ({topic.name for topic in topics.values()} for topics in (inputs, outputs))
    for query, output in outputs.items():
        if output.name in read:
            raise RecensionError(
                f"topic {output.name}: {query!r} would be written to a topic that this service reads, and be "
                "read again, for ever; name another topic in outputs="
            )
    letters = [(name, topic.dead_letters) for name, topic in inputs.items()]
    letters += [(name, topic.dead_letters) for name, topic in outputs.items()]
    for name, topic in letters:
        if topic in read | written:
            what = "reads: it would read them for ever" if topic in read else "writes answers to"
            raise RecensionError(
                f"topic {topic}: the dead letters of {name!r} would go to a topic that this service {what}; "
                "name another topic in dead_letters="
            )


def _require_inputs(session: Session, inputs: Mapping[str, InputTopic]) -> None:
    """A topic for every source but tables, and no other."""
    sources = session.plan.sources
    for name in inputs:
        if name not in sources:
            known = ", ".join(sources)
            raise RecensionError(f"no source {name!r}{suggest_name(name, list(sources))}; there are {known}")
    for name, source in sources.items():
        if name not in inputs and not isinstance(source, Table):
            raise RecensionError(f"no topic for source {name!r}: add it to inputs=")
    starts: dict[str, Start] = {}
    for topic in inputs.values():
        if starts.setdefault(topic.name, topic.start) != topic.start:
            raise RecensionError(f"topic {topic.name} has two starts: one is enough for all its sources")


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else MESSAGES.empty_table()
