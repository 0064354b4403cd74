"""Messages of a topic as a table that a session takes, and those of which none can be made.

A value is an element or a row (`core.formats.messages`), or what a database sent of a change. What a message
has beside its value, such as its key or offset, is a column if the source asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import INSERT, KIND_NAMES, Index
from recension.core.errors import FormatError, RecensionError, suggest_name
from recension.core.formats.change_feeds import Envelopes
from recension.core.formats.columns import (
    BATCH,
    CONTROL,
    FIXED_TYPES,
    KIND,
    RUN,
    SEQ,
    TimeColumns,
    layout_of,
)
from recension.core.formats.decode import Decoder
from recension.core.formats.files import convert_column
from recension.core.formats.json_lines import JsonRows
from recension.core.formats.messages import MessageFormat, MessageReader
from recension.core.formats.text import from_text
from recension.core.values import cast_exactly
from recension.plan.keyed import envelopes_of
from recension.plan.source import Source
from recension.runners.kafka.client import Message, describe_place

HEADER: Final = "headers."
_NUMBERS: Final = (RUN, BATCH, SEQ)
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

    def message_at(self, row: int) -> Message:
        """The message that a row was made of."""
        return self.messages[self.made_of[row]]


class TopicReader:
    """Reads the messages of a topic for one source.

    ``columns`` are those that the source gets of a message beside its value, by its own names for them.
    ``is_known`` says that messages were read before: later ones may lack columns that those had.
    """

    def __init__(
        self,
        source: Source,
        topic: str,
        columns: Mapping[str, str],
        form: MessageFormat = "json",
        avro_schema: Any = None,
    ) -> None:
        self.source, self.topic, self.is_known = source, topic, False
        self._columns = _find_columns(source, topic, columns)
        self._form = form
        self._own = pa.schema([column for column in source.columns if column.name not in self._columns])
        self._envelopes = envelopes_of(source)
        self._times = self._find_times()
        self._values = MessageReader(form, self._own, self._times, source.kind, avro_schema)

    def _find_times(self) -> TimeColumns:
        """The columns of times in the values; those that a message has beside its value are not there."""
        named = [name for name in (self.source.start, self.source.end) if name is not None]
        beside = [name for name in named if name in self._columns]
        if beside and len(beside) < len(named):
            raise RecensionError(
                f"topic {self.topic}: {beside[0]} comes from beside the value, and the other time does not: "
                "name both in columns=, or none"
            )
        return TimeColumns() if beside else self.source.time_columns

    def read(self, messages: Sequence[Message]) -> TopicRows:
        """The rows of messages that have values."""
        values = [message.value() for message in messages]
        if self._envelopes is None:
            table, made_of, bad = self._read_values(values)
        else:
            table, made_of, bad = self._read_envelopes(values, self._envelopes)
        found = [(messages[at], reason) for at, reason in bad]
        made = [messages[at] for at in made_of]
        for name, part in self._find_parts(made).items() if made else ():
            column = self._make_column(name, part, made)
            at = table.schema.get_field_index(name)
            table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
        while len(made_of) and (fault := self._find_fault(table)) is not None:
            row, reason = fault
            found.append((messages[made_of[row]], reason))
            kept = made_of != made_of[row]
            table, made_of = table.filter(pa.array(kept)), made_of[kept]
        self.is_known |= bool(len(made_of))
        return TopicRows(table, messages, made_of, found)

    def _find_parts(self, messages: Sequence[Message]) -> dict[str, str]:
        """What comes from beside the values; the numbers of their producer, if any message has them."""
        if any(name == RUN for message in messages for name, _ in message.headers() or ()):
            return {name: HEADER + name for name in _NUMBERS} | self._columns
        return self._columns

    def _read_values(self, values: list[bytes]) -> tuple[pa.Table, Index, list[tuple[int, str]]]:
        if not self.is_known and self._form == "json":
            self._refuse_absent(values)
        read = self._values.read(pa.array(values, pa.binary()))
        table, bad, made_of = pa.Table.from_batches([read.rows]), read.bad, read.message
        if self._times.start is None and self.source.start is not None:  # which comes from beside the value
            is_row = pc.equal(table[KIND], KIND_NAMES[INSERT]).to_numpy()
            others = np.unique(made_of[~is_row]).tolist()
            bad = [*bad, *((at, f"a {KIND} that is no insert") for at in others)]
            table, made_of = table.select(self._own.names).filter(pa.array(is_row)), made_of[is_row]
        return table, made_of, bad

    def _refuse_absent(self, values: list[bytes]) -> None:
        """Refuse a column that none of the first messages has, if they have others: it may be misspelt."""
        text = b"\n".join(value.replace(b"\n", b" ") for value in values)
        try:
            rows = JsonRows(f"topic {self.topic}", self._times, self._own, text)
        except FormatError:  # one that cannot be read, which is told when they are read
            return
        rows.refuse_absent(self._own)

    def _read_envelopes(
        self, values: list[bytes], envelopes: Envelopes
    ) -> tuple[pa.Table, Index, list[tuple[int, str]]]:
        """Changes that a database sent; one that cannot be read is searched by halves."""
        parts, bad = list[tuple[pa.Table, Index]](), list[tuple[int, str]]()

        def read_some(at: Index) -> None:
            try:
                table, made_of = envelopes.read([values[i] for i in at], self.topic)
                parts.append((table, at[made_of]))
            except FormatError as why:
                if len(at) == 1:
                    bad.append((int(at[0]), why.reason))
                    return
                for half in np.array_split(at, 2):
                    read_some(half)

        read_some(np.arange(len(values)))
        if not parts:
            return pa.table({}), np.zeros(0, np.int64), bad
        table = pa.concat_tables(table for table, _ in parts)
        return table, np.concatenate([made_of for _, made_of in parts]), bad

    def _make_column(self, name: str, part: str, messages: Sequence[Message]) -> pa.Array:
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
        return convert_column(
            column, lambda cells: _to_type(cells, own), name=name, file=f"topic {self.topic}", first_row=1
        )

    def _find_fault(self, table: pa.Table) -> tuple[int, str] | None:
        """The first row of which no element can be made, whatever the policy of the source."""
        hidden = {*_NUMBERS, *(() if self.source.sub_streams is None else self.source.sub_streams.names)}
        shown = [c for c in table.column_names if c not in hidden or c in self.source.columns.names]
        times = TimeColumns() if KIND in table.column_names else self.source.time_columns
        layout = layout_of(pa.schema([table.schema.field(name) for name in shown]), times, self.topic)
        (batch,) = table.select(shown).combine_chunks().to_batches()
        try:
            Decoder(self.source.columns, "raise").judge(batch, layout, self.topic, 0)
        except FormatError as why:
            if why.row is None:
                raise
            return why.row, why.reason
        return None


def _find_columns(source: Source, topic: str, columns: Mapping[str, str]) -> dict[str, str]:
    """What the source gets from beside the value: what it was told, and where its rows stand."""
    found, places = dict(columns), () if source.sub_streams is None else source.sub_streams.names
    for name in places:
        if name not in found and (name in _PARTS or name in _NUMBERS):
            found[name] = HEADER + name if name in _NUMBERS else name
    for name, part in found.items():
        if part not in _PARTS and not part.startswith(HEADER):
            raise RecensionError(
                f"topic {topic}: columns={{{name!r}: {part!r}}}{suggest_name(part, list(_PARTS))}: a message "
                f"has {', '.join(_PARTS)} and {HEADER}NAME"
            )
        if name not in source.columns.names and name not in (*places, source.start, source.end):
            there = ", ".join(source.columns.names)
            raise RecensionError(
                f"topic {topic}: columns= names {name!r}{suggest_name(name, source.columns.names)}, and the "
                f"source {source.name!r} has {there}"
            )
        if name in CONTROL and name not in _NUMBERS:
            raise RecensionError(f"topic {topic}: columns= cannot name {name!r}, which is in the value")
    return found


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
