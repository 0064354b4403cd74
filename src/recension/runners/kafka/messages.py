"""Messages of a topic as a table that a session takes, and those of which none can be made.

A value is JSON: an element (with ``_kind``), a row with times, or a change that a database sent. The first
message of a topic says which of the first two it holds. The rules are those of JSON Lines files.

Messages are read together, a column at a time. Only if that fails are they looked at apart, to find those
that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import FormatError, RecensionError, StreamError, first_failure, suggest_name
from recension.core.formats.columns import CONTROL, FIXED_TYPES, KIND, TimeColumns, is_text, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.files import convert_column
from recension.core.formats.json_lines import JsonRows
from recension.core.formats.text import from_text, ticks_from_text
from recension.core.time_kind import TICKS, kind_of_column
from recension.core.values import cast_exactly
from recension.plan.keyed import RowSource
from recension.plan.source import Source
from recension.runners.kafka.client import Message, describe_place

UNREADABLE: Final = "a message that cannot be read"
TOMBSTONE: Final = "a message without a value"
ELEMENTS: Final = "elements"
ROWS: Final = "rows"
HEADER: Final = "headers."
_AT_ONCE: Final = 1 << 30
_INSTANTS: Final = pa.timestamp("ms", "UTC")

Bad: TypeAlias = tuple[Message, str]
"""A message, and why it cannot be read."""


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of messages, which message each was made of, and the messages that made none."""

    table: pa.Table
    messages: Sequence[Message]
    made_of: Index
    bad: Sequence[Bad] = ()
    tombstones: int = 0


@dataclass(slots=True)
class TopicReader:
    """Reads the messages of a topic for one source.

    ``columns`` are those that the source gets of a message beside its value, by its own names for them.
    ``form`` is what the topic was seen to hold.
    """

    source: Source
    topic: str
    columns: Mapping[str, str]
    form: str | None = None
    _values: dict[str, Callable[[Message], Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = dict(self.columns)
        for name in _places(self.source):
            if name not in named and (name in _PARTS or name in _NUMBERS):
                named[name] = HEADER + name if name in _NUMBERS else name
        for name, part in named.items():
            if part not in _PARTS and not part.startswith(HEADER):
                raise RecensionError(
                    f"topic {self.topic}: columns={{{name!r}: {part!r}}}: a message has "
                    f"{', '.join(_PARTS)} and {HEADER}NAME{suggest_name(part, list(_PARTS))}"
                )
        self.columns = named

    def read(self, messages: Sequence[Message]) -> TopicRows:
        """The rows of messages; nothing is remembered but the form of the topic."""
        there = [message for message in messages if message.value() is not None]
        bad: list[Bad] = []
        while there:
            try:
                table, made_of = self._decode(there)
            except StreamError as why:
                found = self._find_bad(there) if not bad else []
                found = found or [self._find_first(there, why)]
                bad += found
                gone = {id(message) for message, _ in found}
                there = [message for message in there if id(message) not in gone]
            else:
                self.form = self.form or self._form_of(there)
                break
        else:
            table, made_of = pa.table({}), np.zeros(0, np.int64)
        return TopicRows(table, there, made_of, bad, sum(message.value() is None for message in messages))

    def _find_bad(self, messages: Sequence[Message]) -> list[Bad]:
        """Those that cannot be read by themselves."""
        try:
            self._decode(messages)
        except StreamError as why:
            if len(messages) == 1:
                return [(messages[0], why.reason)]
            middle = len(messages) // 2
            return [*self._find_bad(messages[:middle]), *self._find_bad(messages[middle:])]
        return []

    def _find_first(self, messages: Sequence[Message], why: StreamError) -> Bad:
        """The first that does not go with those before it."""

        def fails(size: int) -> bool:
            try:
                self._decode(messages[:size])
            except StreamError:
                return True
            return False

        at = first_failure(len(messages), fails)
        return messages[at], why.reason

    def _decode(self, messages: Sequence[Message]) -> tuple[pa.Table, Index]:
        values = [message.value() for message in messages]
        envelopes = self.source.envelopes if isinstance(self.source, RowSource) else None
        if envelopes is not None and self._form_of(messages) == ROWS:
            table, made_of = envelopes.read(values, self.topic)
        else:
            table, made_of = self._parse(messages, values), np.arange(len(values))
        for name, part in self.columns.items():
            column = self._column(name, part, messages).take(pa.array(made_of))
            at = table.schema.get_field_index(name)
            table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
        self._check(table)
        return table, made_of

    def _parse(self, messages: Sequence[Message], values: list[bytes]) -> pa.Table:
        for row, value in enumerate(values, 1):
            if not value.strip():
                raise FormatError("an empty message", file=self.topic, row=row)
        times, payload = self._times(self._form_of(messages)), self.source.columns
        own = pa.schema([column for column in payload if column.name not in self.columns])
        # Between the texts of JSON a line break is white space; inside of one it is escaped.
        text = b"\n".join(value.replace(b"\n", b" ") for value in values)
        rows = JsonRows(self.topic, times, own, text)
        if self.form is None:
            rows.refuse_absent(own)
        control = {*CONTROL, times.vs, times.ve} - {*self.columns}
        fields = [column for column in rows.schema if column.name in control]
        fields += [column for column in own if column.name not in control]
        batches = list(rows.batches(pa.schema(fields), _AT_ONCE))
        table = pa.Table.from_batches(batches).combine_chunks()
        return pa.table({f.name: self._typed(table[f.name], f, times, payload) for f in fields})

    def _typed(
        self, column: pa.ChunkedArray, read: pa.Field, times: TimeColumns, payload: pa.Schema
    ) -> pa.Array:
        """Times that were read as texts, in their types."""
        array = column.combine_chunks()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if read.name not in times.all or not is_text(array.type):
            return array
        if read.name in times.shown:
            kind = payload.field(read.name).type
            return self._convert(array, lambda cells: from_text(cells, kind), read.name)
        kind = TICKS if pa.types.is_null(read.type) else read.type
        ticks = self._convert(array, lambda cells: ticks_from_text(cells, kind_of_column(kind)), read.name)
        return ticks if pa.types.is_int64(kind) else ticks.view(kind)

    def _convert(self, column: pa.Array, convert: Callable[[pa.Array], pa.Array], name: str) -> pa.Array:
        return convert_column(column, convert, name=name, file=self.topic, first_row=1)

    def _column(self, name: str, part: str, messages: Sequence[Message]) -> pa.Array:
        """What each message has beside its value, in the type that the source has it in."""
        if part.startswith(HEADER):
            header = part.removeprefix(HEADER)
            found = [dict(message.headers() or ()).get(header) for message in messages]
            column = pa.array(found, pa.binary())
        else:
            get, kind = _PARTS[part]
            column = pa.array([get(message) for message in messages], kind)
        at = self.source.columns.get_field_index(name)
        own = FIXED_TYPES.get(name) if at < 0 else self.source.columns.field(at).type
        return self._convert(column, lambda cells: _to_type(cells, own), name)

    def _check(self, table: pa.Table) -> None:
        """Refuse rows of which no element can be made, whatever the policy of the source."""
        rows = table.combine_chunks().to_batches()
        times = self._times(ELEMENTS if KIND in table.column_names else ROWS)
        hidden = _places(self.source)
        shown = [c for c in table.column_names if c not in hidden or c in self.source.columns.names]
        layout = layout_of(pa.schema([table.schema.field(name) for name in shown]), times, self.topic)
        for batch in rows:
            Decoder(self.source.columns, "raise").judge(batch.select(shown), layout, self.topic, 1)

    def _times(self, form: str) -> TimeColumns:
        return TimeColumns() if form == ELEMENTS else self.source.time_columns

    def _form_of(self, messages: Sequence[Message]) -> str:
        """What the topic holds, as the first message that is an object says."""
        if self.form is not None:
            return self.form
        for message in messages:
            try:
                value = json.loads(message.value())
            except ValueError:
                continue
            if isinstance(value, dict):
                return ELEMENTS if KIND in value else ROWS
        return ROWS


def _places(source: Source) -> tuple[str, ...]:
    """The columns that say where rows stand in the source."""
    return () if source.sub_streams is None else source.sub_streams.names


def describe_message(message: Message) -> str:
    """Where a message is, for errors."""
    return describe_place((message.topic(), message.partition(), message.offset()))


def _timestamp_of(message: Message) -> int | None:
    _, milliseconds = message.timestamp()
    return milliseconds if milliseconds >= 0 else None


def _to_type(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    if kind is None:
        return column.cast(pa.string()) if pa.types.is_binary(column.type) else column
    if pa.types.is_binary(column.type) and not pa.types.is_binary(kind):
        return from_text(column.cast(pa.string()), kind)
    return cast_exactly(column, kind)


_PARTS: Final[dict[str, tuple[Callable[[Message], Any], pa.DataType]]] = {
    "topic": (lambda message: message.topic(), pa.string()),
    "partition": (lambda message: message.partition(), pa.int64()),
    "offset": (lambda message: message.offset(), pa.int64()),
    "timestamp": (_timestamp_of, _INSTANTS),
    "key": (lambda message: message.key(), pa.binary()),
}
_NUMBERS: Final = ("_run", "_batch", "_seq")
