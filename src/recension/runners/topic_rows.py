"""Messages of a topic as rows of a source: for the tasks of Spark, and for a service without Spark.

Assumes     messages as Spark's connector has them: ``value``, ``topic``, ``partition``, ``offset``, and of
            ``key``, ``timestamp`` and ``headers`` what is asked for.
Guarantees  the rows of those that can be read, in the order of the messages, each with the message that it
            was in; and why each of the others cannot. A message means the same, whatever others are read with
            it. What a database sends of changes (`rc.debezium`) becomes the rows that its source takes.
State       none.
Cost        that of reading the values; what is wrong with one is searched by halves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index
from recension.core.errors import FormatError, RecensionError, first_line, suggest_name
from recension.core.formats.change_feeds import Envelopes
from recension.core.formats.columns import (
    BATCH,
    CONTROL,
    FIXED_TYPES,
    RUN,
    SEQ,
    Layout,
    TimeColumns,
    layout_of,
)
from recension.core.formats.decode import Decoder
from recension.core.formats.messages import (
    TOMBSTONE,
    MessageFormat,
    MessageReader,
    MessageRows,
    header_columns,
)
from recension.core.formats.text import from_text
from recension.core.time_kind import AWARE, TICKS
from recension.core.values import cast_exactly
from recension.plan.keyed import envelopes_of
from recension.plan.node import Node, walk
from recension.plan.nodes import ByKey, Source, Table

UNREADABLE: Final = "a message that cannot be read"
HEADER: Final = "headers."
ROW: Final = "row"
PARTS: Final = ("topic", "partition", "offset", ROW, "timestamp", "key")
NUMBERS: Final = (RUN, BATCH, SEQ)
STARTS: Final = ("earliest", "latest")
_TABLES: Final = ("arrow", "parquet")


@dataclass(frozen=True)
class TopicColumns:
    """How the messages of a topic are read for one source.

    ``beside`` has the columns that come from beside the value, and from what. ``deleted`` is the column that
    a message without a value sets, if such a one deletes its key.
    """

    source: str
    form: MessageFormat
    avro_schema: Any
    beside: Mapping[str, str]
    kind: pa.DataType
    deleted: str | None = None

    @property
    def headers(self) -> list[str]:
        """The names of the headers that are columns."""
        return [part.removeprefix(HEADER) for part in self.beside.values() if part.startswith(HEADER)]


def columns_of(
    plan: Node,
    topics: Sequence[str],
    partitions: int,
    form: MessageFormat,
    avro_schema: Any,
    columns: Mapping[str, str],
) -> TopicColumns:
    """How topics are read for the one source of a plan; refuses what no message could be read as."""
    source, deleted = _source_of(plan)
    beside = _find_columns(source, topics, columns)
    _require_places(source, topics, partitions, beside, form)
    if envelopes_of(source) is not None and form != "json":
        raise RecensionError(f"{source.name}: envelopes of changes are read from JSON, not from {form}")
    is_deleting = deleted is not None and _can_delete(plan, source, beside)
    read = TopicColumns(
        source.name, form, avro_schema, beside, _kind(source, beside), deleted if is_deleting else None
    )
    TopicReader(source, read)
    return read


def _source_of(plan: Node) -> tuple[Source, str | None]:
    """The source, and the column that says that a row of a keyed one is deleted."""
    found = [node for node in walk(plan) if isinstance(node, Source) and not isinstance(node, Table)]
    if len(found) != 1:
        raise RecensionError("a topic is read for one source: give the stream that rc.source(...) makes")
    keyed = [node for node in walk(plan) if isinstance(node, ByKey)]
    return found[0], keyed[0].deleted if keyed else None


def _can_delete(plan: Node, source: Source, beside: Mapping[str, str]) -> bool:
    """Does a message without a value say enough to delete a row: its key, and when?"""
    keyed = next(node for node in walk(plan) if isinstance(node, ByKey))
    return {*keyed.key, source.start} <= set(beside)


def _find_columns(source: Source, topics: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """What the source gets from beside the value: what it was told, and where its rows stand."""
    found, places = dict(columns), () if source.sub_streams is None else source.sub_streams.names
    where = f"topic {', '.join(topics)}"
    for name in places:
        if name not in found and (name in PARTS or name in NUMBERS):
            found[name] = HEADER + name if name in NUMBERS else name
    for name, part in found.items():
        if part not in PARTS and not part.startswith(HEADER):
            raise RecensionError(
                f"{where}: columns={{{name!r}: {part!r}}}{suggest_name(part, PARTS)}: a message has "
                f"{', '.join(PARTS)} and {HEADER}NAME"
            )
        if name not in source.columns.names and name not in (*places, source.start, source.end):
            there = ", ".join(source.columns.names)
            raise RecensionError(
                f"{where}: columns= names {name!r}{suggest_name(name, source.columns.names)}, and the source "
                f"{source.name!r} has {there}"
            )
        if name in CONTROL and name not in NUMBERS:
            raise RecensionError(f"{where}: columns= cannot name {name!r}, which is in the value")
    return found


def _require_places(
    source: Source, topics: Sequence[str], partitions: int, beside: Mapping[str, str], form: str
) -> None:
    """Refuse a source that does not tell the partitions of its topic apart, or their messages' order."""
    where, told = f"topic {', '.join(topics)}", {beside.get(name) for name in source.partition}
    wanted = {"topic", "partition"} if len(topics) > 1 else {"partition"}
    order = '["offset", "row"]' if form in _TABLES else '"offset"'
    named = '["topic", "partition"]' if len(topics) > 1 else '"partition"'
    advice = f"rc.source({source.name!r}, ..., partition={named}, order={order})"
    # The rows of a key are in one partition, and are put in order by themselves.
    is_needed = partitions > 1 and not source.are_rows
    if (is_needed or source.partition) and not wanted <= told:
        raise RecensionError(f"{where}: has {partitions} partitions, each a stream of its own: {advice}")
    by = [beside.get(name) for name in source.order]
    if source.partition and (by[:1] != ["offset"] or (form in _TABLES and by[:2] != ["offset", ROW])):
        why = (
            "several rows come in one message"
            if form in _TABLES and by
            else "messages stand by their offsets"
        )
        raise RecensionError(f"{where}: {why}: {advice}")


def _kind(source: Source, beside: Mapping[str, str]) -> pa.DataType:
    if source.start is not None and beside.get(source.start) == "timestamp":
        return AWARE
    kind = source.kind
    return TICKS if kind is None else kind


def _times(source: Source, beside: Mapping[str, str]) -> TimeColumns:
    """The columns of times in the values; those that come from outside the value are not there."""
    named = [name for name in (source.start, source.end) if name is not None]
    elsewhere = [name for name in named if name in beside]
    if elsewhere and len(elsewhere) < len(named):
        raise RecensionError(
            f"{source.name}: columns= takes {elsewhere[0]} from outside the value, and the other time is in "
            "it: name both times in columns=, or none"
        )
    return TimeColumns(is_timeless=True) if elsewhere else source.time_columns


def _reader(source: Source, read: TopicColumns) -> MessageReader:
    own = pa.schema([column for column in source.columns if column.name not in read.beside])
    return MessageReader(read.form, own, _times(source, read.beside), read.kind, read.avro_schema)


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of messages, ``made_of`` the message that each was in, and by message why it has none.

    ``rows`` have the columns of the source, ``places`` those that say where they stand in it; ``events`` are
    what ``rows`` say.
    """

    rows: pa.RecordBatch
    places: pa.RecordBatch
    events: EventBatch
    layout: Layout
    made_of: Index
    bad: Mapping[int, str]

    @property
    def faults(self) -> dict[int, str]:
        """The messages that cannot be read, without those that have no value."""
        return {at: reason for at, reason in sorted(self.bad.items()) if reason != TOMBSTONE}

    @property
    def tombstones(self) -> int:
        """How many messages have no value, and say nothing."""
        return sum(reason == TOMBSTONE for reason in self.bad.values())

    @property
    def numbers(self) -> Index:
        """Of each row its number in its message."""
        return _row_numbers(self.made_of)


class TopicReader:
    """Reads messages for one source."""

    def __init__(self, source: Source, columns: TopicColumns, keeps: Sequence[str] = ()) -> None:
        """``keeps`` are columns from beside the value that are places though the source does not say so."""
        self.source, self._columns = source, columns
        self._envelopes = envelopes_of(source)
        self._reader = _reader(source, columns)
        named = () if source.sub_streams is None else source.sub_streams.names
        self._places = tuple(dict.fromkeys((*named, *keeps)))
        self._judge = Decoder(source.columns, "drop")

    def read(self, messages: pa.RecordBatch) -> TopicRows:
        """The rows of messages; nothing is remembered."""
        values = messages.column("value")
        if self._envelopes is None:
            read = self._reader.read(values)
        else:
            read = _read_changes(values, self._envelopes)
        bad = dict(read.bad)
        rows, made_of = self._with_deletions(read.rows, read.message, bad)
        beside, wrong = self._beside(messages, made_of)
        bad |= wrong
        rows = self._join(rows, beside)
        layout = layout_of(rows.schema, self.source.time_columns, self.source.name)
        decoded = self._judge.judge(rows, layout, self.source.name, 1)
        for at in np.flatnonzero(~decoded.kept).tolist():
            if int(made_of[at]) not in bad:
                bad[int(made_of[at])] = self._reason(rows.slice(at, 1), layout)
        is_good = ~np.isin(made_of, list(bad)) if bad else np.ones(len(made_of), np.bool_)
        good = pa.array(is_good)
        places = pa.RecordBatch.from_arrays(
            [beside[name].filter(good) for name in self._places if name in beside],
            names=[name for name in self._places if name in beside],
        )
        events = decoded.batch.filter(is_good[decoded.kept])
        return TopicRows(rows.filter(good), places, events, layout, made_of[is_good], bad)

    def _with_deletions(
        self, rows: pa.RecordBatch, made_of: Index, bad: dict[int, str]
    ) -> tuple[pa.RecordBatch, Index]:
        """With a row for each message without a value, if that deletes its key."""
        gone = [at for at, reason in bad.items() if reason == TOMBSTONE]
        if self._columns.deleted is None or not gone:
            return rows, made_of
        for at in gone:
            del bad[at]
        empty = {
            name: pa.repeat(True, len(gone)) if name == self._columns.deleted else pa.nulls(len(gone), kind)
            for name, kind in zip(rows.schema.names, rows.schema.types, strict=True)
        }
        deletions = pa.RecordBatch.from_arrays(list(empty.values()), schema=rows.schema)
        together, numbers = pa.concat_batches([rows, deletions]), np.concatenate([made_of, np.array(gone)])
        order = np.argsort(numbers, kind="stable")
        return together.take(pa.array(order)), numbers[order]

    def _beside(self, messages: pa.RecordBatch, made_of: Index) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """The columns from beside the value, and the messages of which one does not fit."""
        found, bad, taken = dict[str, pa.Array](), dict[int, str](), pa.array(made_of)
        names = self._columns.headers
        headers = (
            dict(zip(names, header_columns(messages.column("headers"), names), strict=True)) if names else {}
        )
        for name, part in self._columns.beside.items():
            if part == ROW:
                found[name] = pa.array(_row_numbers(made_of))
                continue
            given = headers[part.removeprefix(HEADER)] if part.startswith(HEADER) else messages.column(part)
            found[name], wrong = _convert(given, self._type_of(name), name)
            found[name] = found[name].take(taken)
            bad |= wrong
        return found, bad

    def _type_of(self, name: str) -> pa.DataType | None:
        at = self.source.columns.get_field_index(name)
        if at >= 0:
            return self.source.columns.field(at).type
        sequence = () if self.source.sub_streams is None else self.source.sub_streams.sequence
        if name in FIXED_TYPES:
            return FIXED_TYPES[name]
        if name in sequence:
            return pa.int64()
        return self._columns.kind if name in (self.source.start, self.source.end) else None

    def _join(self, rows: pa.RecordBatch, beside: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The rows with those columns from beside the value that the source has."""
        wanted = {*self.source.columns.names, self.source.start, self.source.end}
        for name, column in beside.items():
            if name in wanted:
                rows = rows.append_column(name, column)
        return rows

    def _reason(self, row: pa.RecordBatch, layout: Any) -> str:
        try:
            Decoder(self.source.columns, "raise").judge(row, layout, self.source.name, 1)
        except FormatError as why:
            return why.reason
        return UNREADABLE


def _read_changes(values: pa.Array, envelopes: Envelopes) -> MessageRows:
    """The rows of changes; those of a message that cannot be read are searched by halves."""
    texts = values.cast(pa.binary()).to_pylist()
    parts, bad = list[tuple[pa.Table, Index]](), list[tuple[int, str]]()

    def read_some(at: Index) -> None:
        try:
            table, made_of = envelopes.read([texts[i] for i in at], "the message")
            parts.append((table, at[made_of]))
        except FormatError as why:
            if len(at) == 1:
                bad.append((int(at[0]), why.reason))
                return
            for half in np.array_split(at, 2):
                read_some(half)

    there = [at for at, text in enumerate(texts) if text is not None]
    bad += [(at, TOMBSTONE) for at, text in enumerate(texts) if text is None]
    read_some(np.array(there, np.int64))
    rows = pa.concat_tables([table for table, _ in parts] or [envelopes.rows([], "the message")])
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    made_of = [numbers for _, numbers in parts] or [np.zeros(0, np.int64)]
    return MessageRows(batch, np.concatenate(made_of), sorted(bad))


def _row_numbers(made_of: Index) -> Index:
    """Of each row its number in its message."""
    starts = np.flatnonzero(np.append(True, made_of[1:] != made_of[:-1])) if len(made_of) else made_of
    return np.arange(len(made_of)) - np.repeat(starts, np.diff(np.append(starts, len(made_of))))


def _convert(column: pa.Array, kind: pa.DataType | None, name: str) -> tuple[pa.Array, dict[int, str]]:
    """A column in its type; where a value does not fit it is null, and named with the reason."""
    if kind is None or column.type == kind:
        return (column.cast(pa.string()) if pa.types.is_binary(column.type) else column), {}
    try:
        return _to_type(column, kind), {}
    except (pa.ArrowException, ValueError):
        pass
    values, bad = [], dict[int, str]()
    for at in range(len(column)):
        try:
            values.append(_to_type(column.slice(at, 1), kind))
        except (pa.ArrowException, ValueError) as why:
            bad[at] = f"column {name}: {first_line(why)}"
            values.append(pa.nulls(1, kind))
    return pa.concat_arrays(values), bad


def _to_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(column.type) and not pa.types.is_binary(kind):
        column = column.cast(pa.string())
    return from_text(column, kind) if pa.types.is_string(column.type) else cast_exactly(column, kind)
