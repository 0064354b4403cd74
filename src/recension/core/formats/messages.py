"""Rows in the values of messages, such as Kafka's: JSON, Avro, Arrow and Parquet.

Assumes     the payload's columns and types are known: nothing is guessed from the messages that happen to
            come together. So a message means the same, whatever others are read with it.
Guarantees  rows of one fixed schema, in the order of the messages; a message that cannot be read is named
            with the reason, and the others are read nevertheless.
Cost        JSON, Arrow and Parquet go through Arrow; Avro through one Python call a message. Of messages read
            together a faulty one is searched by halves.

A JSON or Avro message is one row. An Arrow or Parquet message is a table, of any number of rows.
A row without ``_kind`` is an insert, and names that are not asked for are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recension.core.batch import INSERT, KIND_NAMES, Index, Mask
from recension.core.errors import (
    FormatError,
    RecensionError,
    SchemaError,
    TimeError,
    describe_error,
    first_line,
)
from recension.core.formats.arrow_ipc import ArrowRows
from recension.core.formats.columns import (
    COUNT,
    FIXED_TYPES,
    KIND,
    TimeColumns,
    describe_missing,
    is_text,
    layout_of,
    plain_type,
    require_readable,
)
from recension.core.formats.files import format_errors, validate_batch
from recension.core.formats.json_blocks import MOST_CELLS, Block, parse_with_arrow
from recension.core.formats.json_lines import JsonRows, JsonSink
from recension.core.formats.json_schema import carrier, from_carrier, has_json_form
from recension.core.formats.stream_files import StreamFile
from recension.core.formats.text import ticks_from_text
from recension.core.ticks import ticks_from_column
from recension.core.time_kind import TICKS, TimeKind, merge_kinds
from recension.core.values import cast_exactly, exact_array

MessageFormat: TypeAlias = Literal["json", "avro", "confluent-avro", "arrow", "parquet"]
FORMATS: Final = get_args(MessageFormat)
TOMBSTONE: Final = "a message without a value"
# What headers and the record around them add to a message, at most, if its user adds none; and the times.
AROUND: Final = 512
# So much of a value stands in an error.
_SHOWN: Final = 40
# Confluent's registry: a zero byte and the number of the schema, of four bytes, stand before the record.
_REGISTRY: Final = 5
_ROWS: Final = 1 << 16
_HERE: Final = "the message"
# Rows, and before them the number of the message that each was in.
_Read: TypeAlias = tuple[Index, pa.RecordBatch]
_FAILURES: Final = (TypeError, ValueError, KeyError, IndexError, OverflowError, EOFError)


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows, the number of the message that each was in, and what cannot be read: number and reason."""

    rows: pa.RecordBatch
    message: Index
    bad: list[tuple[int, str]]


class MessageReader:
    """Reads the values of messages as rows of ``schema``: the control columns, then the payload."""

    def __init__(
        self,
        form: MessageFormat,
        payload: pa.Schema,
        times: TimeColumns,
        kind: TimeKind = None,
        avro_schema: Any = None,
    ) -> None:
        self._payload, self._times = payload, times
        self._kind: pa.DataType = TICKS if kind is None else kind
        self.schema = self._columns()
        self.layout = layout_of(self.schema, times, _HERE)
        self._read = self._reader(form, avro_schema)

    def read(self, values: pa.Array) -> MessageRows:
        """The rows of values, which are bytes. A null is a message that cannot be read: see `TOMBSTONE`."""
        found, bad = list[_Read](), list[tuple[int, str]]()
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if len(there) < len(values):
            gone = np.setdiff1d(np.arange(len(values)), there)
            bad += [(int(at), TOMBSTONE) for at in gone]
        self._read_some(values.cast(pa.binary()), there, found, bad)
        batches = [rows for _, rows in found]
        rows = pa.concat_batches(batches) if batches else self._none()
        numbers = np.concatenate([at for at, _ in found]) if found else np.zeros(0, np.int64)
        return MessageRows(rows, numbers, sorted(bad))

    def _read_some(
        self,
        values: pa.Array,
        at: Index,
        found: list[_Read],
        bad: list[tuple[int, str]],
    ) -> None:
        """Read the values at these places; if that fails, each half by itself."""
        if not len(at):
            return
        try:
            message, rows = self._read(values.take(pa.array(at)) if len(at) < len(values) else values)
            found.append((at[message], rows))
        except FormatError as why:
            if len(at) == 1:
                bad.append((int(at[0]), why.reason))
                return
            for half in np.array_split(at, 2):
                self._read_some(values, half, found, bad)

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def _reader(self, form: MessageFormat, avro_schema: Any) -> Callable[[pa.Array], _Read]:
        if form in ("avro", "confluent-avro"):
            return _AvroReader(avro_schema, _REGISTRY if form == "confluent-avro" else 0, self).read
        if avro_schema is not None:
            raise RecensionError(f"a schema= is for messages of Avro, and these are {form}")
        if form not in FORMATS:
            raise RecensionError(f"messages are of {', '.join(FORMATS)}, not {form!r}")
        if form != "json":
            return self._read_tables
        for field in (field for field in self._payload if not has_json_form(field.type)):
            raise SchemaError(f"column {field.name}: {field.type} cannot be read from JSON")
        return self._read_json

    def _columns(self) -> pa.Schema:
        """Of a plain table the columns that its user named, of a stream all control columns."""
        times, kind = self._times, self._kind
        fields: list[pa.Field] = []
        if times.start is not None:
            named = [name for name in (times.start, times.end) if name is not None]
            fields = [pa.field(name, kind) for name in named if name not in times.shown]
        elif not times.is_timeless:
            fields = [pa.field(KIND, pa.string()), *(pa.field(name, kind) for name in times.all)]
            fields.append(pa.field(COUNT, pa.int64()))
        return pa.schema([*fields, *(pa.field(f.name, plain_type(f.type)) for f in self._payload)])

    def _read_json(self, values: pa.Array) -> _Read:
        text = _join_lines(values)
        if (straight := self._parse_json(text, len(values))) is not None:
            return np.arange(len(values)), straight
        rows = JsonRows(_HERE, self._times, self._payload, text)
        layout = layout_of(rows.schema, self._times, _HERE)
        wanted = StreamFile(_HERE, rows, layout).columns_to_read(self._payload)
        batches = list(rows.batches(wanted, _ROWS))
        if sum(map(len, batches)) != len(values):
            raise FormatError("not one JSON object")
        conformed = [self.conform(batch, layout.kind) for batch in batches]
        return np.arange(len(values)), pa.concat_batches(conformed)

    def _parse_json(self, text: bytes, size: int) -> pa.RecordBatch | None:
        """The rows, if all values are what the columns say: then no types need be looked for first."""
        wanted = [pa.field(KIND, pa.string()), *(field for field in self.schema if field.name != KIND)]
        explicit = pa.schema([pa.field(field.name, self._carrier(field)) for field in wanted])
        block = Block.parse(text, _HERE, 1)
        if len(explicit) * block.size > MOST_CELLS or block.size != size:
            return None
        parsed = parse_with_arrow(block, explicit, self._times)
        if parsed is None or (self._are_plain and parsed.column(KIND).null_count < size):
            return None
        return self.conform(parsed.select(self.schema.names), None)

    @property
    def _are_plain(self) -> bool:
        """Have the rows no kinds?"""
        return self._times.start is not None or self._times.is_timeless

    def _carrier(self, field: pa.Field) -> pa.DataType:
        if field.name in self._times.all:
            return TICKS if field.type == TICKS else pa.string()
        return carrier(field.type)

    def _read_tables(self, values: pa.Array) -> _Read:
        messages, batches = list[Index](), list[pa.RecordBatch]()
        for number, value in enumerate(values):
            for batch in _tables(value.as_buffer()):
                reason = describe_missing(self._payload, batch.schema)
                if reason is not None:
                    raise FormatError(reason)
                layout = layout_of(batch.schema, self._times, _HERE)
                batches.append(self.conform(batch, layout.kind))
                messages.append(np.full(len(batch), number))
        if not batches:
            return np.zeros(0, np.int64), self._none()
        return np.concatenate(messages), pa.concat_batches(batches)

    def conform(self, batch: pa.RecordBatch, kind: TimeKind) -> pa.RecordBatch:
        """The rows in the columns and types of `schema`."""
        if self._are_plain and KIND in batch.schema.names:
            raise FormatError(f"a column {KIND}, but the source names start= and takes plain rows")
        try:
            # Nulls alone have no kind of time.
            merge_kinds(self._kind, kind)
            columns = [self._conform_column(batch, field) for field in self.schema]
        except (*_FAILURES, pa.ArrowException, TimeError, SchemaError) as why:
            raise FormatError(first_line(why)) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _conform_column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if batch.schema.get_field_index(field.name) < 0:
            column = pa.nulls(len(batch), field.type)
        else:
            column = batch.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if field.name == KIND:
            return column.cast(pa.string()).fill_null(KIND_NAMES[INSERT])
        if column.type == field.type:
            return column
        if field.name in self._times.all and field.name not in self._times.shown:
            ticks = (
                ticks_from_text(column, self._kind, self._times)
                if is_text(column.type)
                else ticks_from_column(column, field.name, self._times.unit)
            )
            return ticks if field.type == TICKS else ticks.view(field.type)
        try:
            if column.type == carrier(field.type):
                return from_carrier(column, field.type)
            return cast_exactly(column, field.type)
        except pa.ArrowException as why:
            raise FormatError(f"column {field.name}: {first_line(why)}") from None


def _join_lines(values: pa.Array) -> bytes:
    """The texts, a line each. In JSON a line break can only stand between the parts of a value."""
    for sign in ("\n", "\r"):
        if bool(pc.any(pc.match_substring(values, sign)).as_py()):
            values = pc.replace_substring(values, pattern=sign, replacement=" ")
    lines = pc.binary_join_element_wise(values, pa.scalar(b"\n"), pa.scalar(b""))
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :][: len(lines) + 1]
    return memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]].tobytes()


def _tables(value: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The record batches of a message: Parquet by its first bytes, else a stream or file of Arrow."""
    if bytes(value[:4]) != b"PAR1":
        rows = ArrowRows(_HERE, value)
        yield from rows.batches(rows.schema, _ROWS)
        return
    with (
        format_errors(_HERE),
        pq.ParquetFile(
            pa.BufferReader(value), coerce_int96_timestamp_unit="us", page_checksum_verification=True
        ) as file,
    ):
        require_readable(file.schema_arrow)
        yield from map(validate_batch, file.iter_batches(_ROWS, use_threads=False))


class _AvroReader:
    """One record a message, by a schema that is given: a message does not say its own."""

    def __init__(self, schema: Any, header: int, reader: MessageReader) -> None:
        if schema is None:
            raise RecensionError("messages of Avro need their schema, as JSON text or a dict: schema=...")
        try:
            avro = import_module("fastavro")
        except ImportError:
            raise RecensionError("messages of Avro need fastavro: pip install 'recension[avro]'") from None
        self._parse, self._header, self._reader = avro.schemaless_reader, header, reader
        try:
            self._schema = avro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
        except Exception as why:  # each fault of a schema has a class of its own
            raise RecensionError(f"the schema of Avro cannot be used: {first_line(why)}") from None

    def read(self, values: pa.Array) -> _Read:
        records = [self._record(value) for value in values.to_pylist()]
        columns, names = [], self._reader.schema.names
        for name in dict.fromkeys(chain.from_iterable(records)):
            if name in names:
                given = [record.get(name) for record in records]
                columns.append((name, self._column(name, given)))
        batch = pa.RecordBatch.from_arrays([c for _, c in columns], names=[name for name, _ in columns])
        kind = layout_of(batch.schema, self._reader.layout.times, _HERE).kind
        return np.arange(len(records)), self._reader.conform(batch, kind)

    def _record(self, value: bytes) -> dict[str, Any]:
        body = BytesIO(value)
        if self._header and body.read(self._header)[:1] != b"\0":
            raise FormatError("no schema id before the record, as clients of a schema registry write it")
        try:
            record = self._parse(body, self._schema, None)
        except Exception as why:  # what a reader meets in bytes that are something else
            raise FormatError(f"not a record of the schema: {describe_error(why)}") from None
        if body.read(1):
            raise FormatError("not a record of the schema: bytes follow it")
        if not isinstance(record, dict):
            raise FormatError("not a record of the schema: it has no fields")
        return record

    def _column(self, name: str, values: Sequence[Any]) -> pa.Array:
        kind = self._reader.schema.field(name).type
        try:
            if name in self._reader.layout.times.all or name in FIXED_TYPES:
                return pa.array(values)
            return exact_array(values, kind)
        except (*_FAILURES, pa.ArrowException, SchemaError) as why:
            raise FormatError(f"column {name}: {first_line(why)}") from None


def encode_rows(rows: pa.RecordBatch) -> pa.Array:
    """Rows as JSON objects, as the files of JSON have them."""
    return JsonSink(Path(_HERE), rows.schema, BytesIO()).encode_rows(rows)


def find_too_long(payload: pa.RecordBatch, values: pa.Array, keys: pa.Array, most: int) -> Mask:
    """Which rows have a payload that, with the key, is longer than ``most`` bytes.

    The lifetime does not count, nor what stands around a message: ``most`` leaves room for them. So an event
    and its retractions are all too long, or none of them is. ``values`` are the rows' whole messages.
    """
    key = pc.binary_length(keys).fill_null(0).to_numpy().astype(np.int64)
    found: Mask = pc.binary_length(values).to_numpy() + key > most
    if bool(found.any()):
        at = np.flatnonzero(found)
        bare = encode_rows(payload.take(pa.array(at))).cast(pa.binary())
        found[at] = pc.binary_length(bare).to_numpy() + key[at] > most
    return found


def refuse_too_long(where: str, row: pa.RecordBatch, size: int, limit: int, advice: str) -> NoReturn:
    """Raise what says which row is longer than a topic takes, and what to do."""
    (told,) = row.to_pylist()
    text = ", ".join(f"{name}={_shorten(value)}" for name, value in told.items() if value is not None)
    raise RecensionError(
        f"{where}: an answer is a message of {size} bytes, and the topic takes {limit} with headers: {text}; "
        f"raise the topic's max.message.bytes or {advice}"
    )


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def spread(is_cti: Mask, home: Index, partitions: int) -> tuple[Index, Index]:
    """The partition of each message and the row that it has: a CTI goes to all, an event to its home."""
    times = np.where(is_cti, partitions, 1)
    row = np.repeat(np.arange(len(is_cti)), times)
    copy = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    return np.where(is_cti[row], copy, home[row]), row


def header_columns(headers: pa.Array, names: Sequence[str]) -> list[pa.Array]:
    """Of each message the last header of each name, as text; null where it has none.

    ``headers`` are lists of a key and a value, as Spark gives them.
    """
    size = len(headers)
    if pa.types.is_null(headers.type) or headers.null_count == size:
        return [pa.nulls(size, pa.string()) for _ in names]
    owner, items = pc.list_parent_indices(headers), pc.list_flatten(headers)
    keys, values = items.field(0), items.field(1)
    columns = []
    for name in names:
        at = np.flatnonzero(pc.equal(keys, name).fill_null(False).to_numpy(zero_copy_only=False))
        place = np.full(size, -1)
        place[owner.to_numpy()[at]] = at
        columns.append(values.take(pa.array(place, mask=place < 0)).cast(pa.string()))
    return columns
