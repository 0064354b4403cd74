"""Rows of keyed sources from what databases send: envelopes of Debezium, changes of Delta, SCD type 2 tables.

Each function gives a plain table with the payload columns and a few more, whose names are below. What it
cannot make a row of is an error that names the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core import frames
from recension.core.batch import Index, Mask
from recension.core.errors import FormatError, RecensionError, first_failure, first_line
from recension.core.formats.columns import KIND, VE, VS, describe_missing_column
from recension.core.formats.files import format_errors
from recension.core.formats.json_lines import whole_lines
from recension.core.ticks import from_arrow
from recension.core.values import cast_exactly

LOG_TIME: Final = "log_time"
LOG_VERSION: Final = "log_version"
LOG_DELETED: Final = "log_deleted"
ROW_FROM: Final = "row_from"
LOG_COLUMNS: Final = (LOG_TIME, LOG_VERSION, LOG_DELETED)
STATES: Final = ("c", "r", "u")
DELETES: Final = "d"
NO_OP: Final = "a message without op is no change of a row"
POST_IMAGES: Final = ("insert", "update_postimage")
PRE_IMAGES: Final = ("delete", "update_preimage")
_TIMES: Final = pa.timestamp("us", "UTC")
_MIXED: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


@dataclass(frozen=True)
class Envelopes:
    """How the envelopes of Debezium are read: ``op``, ``before``, ``after``, ``source``.

    ``version`` is a field of ``source``. A row that lacks a column of the payload is refused, since the name
    may be misspelt, unless it is ``optional``: so are columns that a table was given later.
    """

    payload: pa.Schema
    key: tuple[str, ...]
    version: str
    optional: tuple[str, ...] = ()

    def rows(self, data: Any, name: str) -> pa.Table:
        """The rows of envelopes, in the order they came.

        An update that changes the key deletes the row of the old one. Tombstones, which are null, say
        nothing.
        """
        return self.read(data, name)[0]

    def read(self, data: Any, name: str, first_row: int = 1) -> tuple[pa.Table, Index]:
        """The same, with the envelope that each row was made of."""
        try:
            return self._read(data, name)
        except FormatError as why:
            row = None if why.row is None else why.row + first_row - 1
            raise FormatError(why.reason, file=why.file, row=row) from None

    def _read(self, data: Any, name: str) -> tuple[pa.Table, Index]:
        if isinstance(data, list):
            messages = [
                _unwrap_message(message, name, row) for row, message in enumerate(_parse_all(data, name), 1)
            ]
            self._require_columns(messages, name)
            return self._rows_of(_with_absent(_to_table(messages, name), ("before", "after")), name)
        parts = [(self._read_part(part, at, name), at) for part, at in _unwrap(frames.table_of(data, name))]
        came = np.concatenate([at[numbers] for (_, numbers), at in parts])
        order = np.argsort(came, kind="stable")
        return pa.concat_tables([rows for (rows, _), _ in parts]).take(pa.array(order)), came[order]

    def _read_part(self, part: pa.Table, at: Index, name: str) -> tuple[pa.Table, Index]:
        """The rows of envelopes that are the rows ``at`` of all that came."""
        try:
            return self._rows_of(part, name)
        except FormatError as why:
            row = None if why.row is None else int(at[why.row - 1]) + 1
            raise FormatError(why.reason, file=why.file, row=row) from None

    def _rows_of(self, table: pa.Table, name: str) -> tuple[pa.Table, Index]:
        if not table.num_rows or not table.num_columns:
            return _no_log_rows(self.payload), np.zeros(0, np.int64)
        op = _texts(table, "op", name)
        kinds = op.to_pylist()
        for row, kind in enumerate(kinds, 1):
            if kind not in (None, DELETES, *STATES):
                raise FormatError(f"op {kind!r} is not the change of a row", file=name, row=row)
        _refuse_without_op(table, op, name)
        before, after, source = (
            _require_column(table, column, name) for column in ("before", "after", "source")
        )
        states = _mask(pc.is_in(op, pa.array(STATES)))
        deletes = _mask(pc.equal(op, DELETES)) | (states & _has_moved(before, after, self.key, name))
        gone, there = np.flatnonzero(deletes), np.flatnonzero(states)
        for image, at, which in ((before, gone, "before"), (after, there, "after")):
            missing = at[_mask(image.is_null())[at]]
            if len(missing):
                reason = (
                    f"op {kinds[missing[0]]!r} without {which!r}: the log must carry whole rows or their keys"
                )
                raise FormatError(reason, file=name, row=int(missing[0]) + 1)
        needed = [column for column in self.payload.names if column not in self.optional]
        parts = [
            _fields(before.take(pa.array(gone)), self.payload, name, self.key),
            _fields(after.take(pa.array(there)), self.payload, name, needed),
        ]
        milliseconds = _whole_numbers(_field(source, "ts_ms", name), "source.ts_ms", name)
        time = _times_of(milliseconds, name)
        advice = "; name another field of source with version="
        versions = _whole_numbers(_field(source, self.version, name), f"source.{self.version}", name, advice)
        came = np.sort(np.append(gone, there))
        return _log_rows(parts, self.payload, gone, there, time, versions), came

    def _require_columns(self, messages: Sequence[Mapping[str, Any]], name: str) -> None:
        """Refuse rows that lack a column: Arrow would make nulls of what only some of them have."""
        needed = {column for column in self.payload.names if column not in self.optional}
        for row, message in enumerate(messages, 1):
            after = message.get("after")
            if isinstance(after, Mapping) and not needed <= after.keys():
                missing = next(column for column in self.payload.names if column in needed - after.keys())
                advice = "; if it was added later, name it in optional="
                reason = describe_missing_column(missing, list(after)) + advice
                raise FormatError(reason, file=name, row=row)


class EnvelopeRows:
    """The rows of a JSON Lines file of envelopes; ``null`` is a tombstone. Errors name the line."""

    is_typed = True
    may_lack_columns = False

    def __init__(self, path: Path, envelopes: Envelopes) -> None:
        self._path, self._envelopes = path, envelopes
        self.schema: pa.Schema = _no_log_rows(envelopes.payload).schema

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, of at most ``size`` envelopes at a time."""
        line = 1
        for lines in _lines(self._path):
            for start in range(0, len(lines), size):
                part = lines[start : start + size]
                rows, _ = self._envelopes.read(part, str(self._path), line)
                line += len(part)
                yield from rows.select(wanted.names).combine_chunks().to_batches()


def has_envelopes(path: Path) -> bool:
    """Is the first object of a JSON Lines file an envelope, by itself or beside its schema?"""
    for line in (line for lines in _lines(path) for line in lines):
        try:
            message = json.loads(line)
        except ValueError:
            return False
        if message is not None:
            inner = message.get("payload", message) if isinstance(message, dict) else None
            return isinstance(inner, dict) and {"op", "source"} <= inner.keys()
    return False


def _lines(path: Path) -> Iterator[list[bytes]]:
    with format_errors(str(path)):
        for text in whole_lines(path):
            yield [line for line in text.split(b"\n") if line.strip()]


def _has_moved(before: pa.Array, after: pa.Array, key: Sequence[str], name: str) -> Mask:
    """Where the key before is another than the key after."""
    moved = np.zeros(len(after), np.bool_)
    if any(image.null_count == len(image) for image in (before, after)):
        return moved
    for column in key:
        differs = pc.not_equal(_field(before, column, name), _field(after, column, name))
        moved |= _mask(pc.fill_null(differs, False))
    return moved


def delta_rows(data: Any, payload: pa.Schema, name: str) -> pa.Table:
    """The rows of Delta's change feed (``_change_type``, ``_commit_version``, ``_commit_timestamp``).

    Within a commit what a row is comes after what it was: a row that is deleted and inserted is there, and
    one whose key was updated is gone under the old one.
    """
    table = _read(data, name)
    if not table.num_rows:
        return _no_log_rows(payload)
    is_state = _post_images(table, name)
    gone, there = np.flatnonzero(~is_state), np.flatnonzero(is_state)
    columns = [_cast(_require_column(table, field.name, name), field, name) for field in payload]
    parts = [[column.take(pa.array(at)) for column in columns] for at in (gone, there)]
    return _log_rows(
        parts, payload, gone, there, _commit_times(table, name), _versions(table, is_state, name)
    )


def delta_elements(data: Any, payload: pa.Schema, name: str) -> pa.Table:
    """The elements of a change feed without a key: rows open, and close, at the time of their commit.

    Within a commit rows close first. Times never go back: a commit is not before the last one here. After
    the last commit nothing before it changes any more, and a CTI says so.
    """
    table = _read(data, name)
    schema = pa.schema([(KIND, pa.string()), (VS, _TIMES), (VE, _TIMES), *payload])
    if not table.num_rows:
        return schema.empty_table()
    is_state = _post_images(table, name)
    order = np.argsort(_versions(table, is_state, name).to_numpy(), kind="stable")
    times = np.maximum.accumulate(_commit_times(table, name).cast(pa.int64()).to_numpy()[order])
    opens, at = is_state[order], pa.array(order)
    columns = [_cast(_require_column(table, field.name, name), field, name).take(at) for field in payload]
    rows = pa.table(
        [
            pc.if_else(pa.array(opens), "open", "close"),
            pa.array(times, mask=~opens).cast(_TIMES),
            pa.array(times, mask=opens).cast(_TIMES),
            *columns,
        ],
        schema=schema,
    )
    last = {KIND: "cti", VS: pa.scalar(int(times[-1])).cast(_TIMES).as_py()}
    return pa.concat_tables([rows, pa.Table.from_pylist([last], schema=schema)])


def _post_images(table: pa.Table, name: str) -> Mask:
    """Which rows of a change feed say what is there; the others say what was."""
    change = _texts(table, "_change_type", name)
    is_state, is_gone = (_mask(pc.is_in(change, pa.array(names))) for names in (POST_IMAGES, PRE_IMAGES))
    if (other := np.flatnonzero(~(is_state | is_gone))).size:
        at = int(other[0])
        raise FormatError(f"_change_type {change[at].as_py()!r} is not known", file=name, row=at + 1)
    return is_state


def _versions(table: pa.Table, is_state: Mask, name: str) -> pa.Array:
    """An order of a feed's rows: by commit, and in it what was before what is."""
    commit = _whole_numbers(_require_column(table, "_commit_version", name), "_commit_version", name)
    return pc.add(pc.multiply(commit, 2), pa.array(is_state.astype(np.int64)))


def _commit_times(table: pa.Table, name: str) -> pa.Array:
    return pa.array(from_arrow(_require_column(table, "_commit_timestamp", name), "_commit_timestamp")).cast(
        _TIMES
    )


@dataclass(frozen=True)
class Scd2Columns:
    """How the rows of an SCD type 2 table are read; ``extra`` are columns beside the payload."""

    payload: pa.Schema
    start: str
    end: str
    current: str | None
    deleted: str | None
    extra: tuple[str, ...]


def scd2_rows(data: Any, columns: Scd2Columns, name: str) -> pa.Table:
    """The rows of an SCD type 2 table, with their starts as a column of its own; current ones have no end.

    A row whose end is its start was never true, and is left out; if it says that it is deleted, it stays.
    """
    payload, start, end, current, extra = (
        columns.payload,
        columns.start,
        columns.end,
        columns.current,
        columns.extra,
    )
    table = _read(data, name)
    if not table.num_rows:
        # The types of the other columns are not known here: none.
        others = dict.fromkeys([*(column for column in extra if column not in payload.names), start, end])
        return pa.schema(
            [*payload, *((one, pa.null()) for one in others), (ROW_FROM, pa.int64())]
        ).empty_table()
    since, until = _require_column(table, start, name), _require_column(table, end, name)
    if current is not None:
        is_current = pc.fill_null(_require_column(table, current, name), False)
        until = pc.if_else(is_current, pa.scalar(None, until.type), until)
    found = {field.name: _cast(_require_column(table, field.name, name), field, name) for field in payload}
    found |= {column: _require_column(table, column, name) for column in extra if column not in found}
    row_from = from_arrow(since, start)
    keeps = ~_mask(pc.equal(row_from, from_arrow(until, end)))
    if columns.deleted is not None:
        keeps |= _mask(_require_column(table, columns.deleted, name))
    return pa.table({**found, start: since, end: until, ROW_FROM: row_from}).filter(pa.array(keeps))


def scd2_table(history: Any, key: Sequence[str], start: str, end: str, current: str) -> pa.Table:
    """A history (``_vs``, ``_ve``, payload) as an SCD type 2 table, by key and start."""
    if not isinstance(history, pa.Table):
        kinds = "a History, a Result, or an Arrow table or Spark DataFrame of a history"
        raise RecensionError(f"to_scd2 takes {kinds}, not a {type(history).__name__}")
    names = [column for column in history.column_names if column not in ("_vs", "_ve")]
    for column in (start, end, current):
        if column in names:
            raise FormatError(f"the payload has a column {column!r} already: name another")
    for column in ("_vs", "_ve"):
        if column not in history.column_names:
            raise FormatError(f"to_scd2 takes a history: {describe_missing_column(column, names)}")
    for column in key:
        if column not in names:
            raise FormatError(describe_missing_column(column, names))
    table = history.select([*names, "_vs", "_ve"]).rename_columns([*names, start, end])
    table = table.append_column(current, pc.is_null(table[end]))
    return table.sort_by([(column, "ascending") for column in (*key, start)])


def _log_rows(
    parts: Sequence[Sequence[pa.Array]],
    payload: pa.Schema,
    gone: Index,
    there: Index,
    time: pa.Array,
    version: pa.Array,
) -> pa.Table:
    """Rows that delete and rows that state, as they came; of one change that which deletes comes first."""
    came = np.append(gone, there)
    order = pa.array(np.argsort(came, kind="stable"))
    columns = [pa.concat_arrays([one, other]) for one, other in zip(*parts, strict=True)]
    deleted = pa.array(np.arange(len(came)) < len(gone))
    at = pa.array(came)
    extra = [time.take(at), version.take(at), deleted]
    rows = pa.table([*columns, *extra], names=[*payload.names, *LOG_COLUMNS])
    return rows.take(order)


def _read(data: Any, name: str) -> pa.Table:
    """A table of what came. Messages in a list may be JSON text; one that is null is a row of nulls."""
    return _to_table(_parse_all(data, name), name) if isinstance(data, list) else frames.table_of(data, name)


def _parse_all(data: list[Any], name: str) -> list[Mapping[str, Any]]:
    return [_parse(message, name, row) for row, message in enumerate(data, 1)]


def _to_table(messages: list[Mapping[str, Any]], name: str) -> pa.Table:
    # A message may leave out what is null, the first one too.
    names = dict.fromkeys(column for message in messages for column in message)
    return pa.table(
        {column: _column(column, [one.get(column) for one in messages], name) for column in names}
    )


def _parse(message: Any, name: str, row: int) -> Mapping[str, Any]:
    if isinstance(message, str | bytes):
        try:
            message = json.loads(message)
        except ValueError as why:
            raise FormatError(f"a message that is no JSON: {first_line(why)}", file=name, row=row) from None
    if message is None:
        return {}
    if not isinstance(message, Mapping) or not message:
        raise FormatError(f"{message!r} is no message: give dicts, or JSON of objects", file=name, row=row)
    return message


def _column(column: str, values: list[Any], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except _MIXED as why:
        row = _first_failing(len(values), lambda size: pa.array(values[:size])) + 1
        reason = f"column {column} is of another type than in the rows before: {first_line(why)}"
        raise FormatError(reason, file=name, row=row) from None


def _no_log_rows(payload: pa.Schema) -> pa.Table:
    """Nothing came, as in an empty poll."""
    types = (_TIMES, pa.int64(), pa.bool_())
    return pa.schema([*payload, *zip(LOG_COLUMNS, types, strict=True)]).empty_table()


def _with_absent(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns that no message has are null."""
    for column in names:
        if column not in table.column_names:
            table = table.append_column(column, pa.nulls(table.num_rows))
    return table


def _texts(table: pa.Table, column: str, name: str) -> pa.Array:
    found = _require_column(table, column, name)
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found


def _whole_numbers(column: pa.Array, called: str, name: str, advice: str = "") -> pa.Array:
    """As int64; what is no whole number is an error that names the first row that has none."""
    try:
        return column.cast(pa.int64())
    except _MIXED:
        at = _first_failing(len(column), lambda size: column.slice(0, size).cast(pa.int64()))
        reason = f"{called} {column[at].as_py()!r} is no whole number{advice}"
        raise FormatError(reason, file=name, row=at + 1) from None


def _times_of(milliseconds: pa.Array, name: str) -> pa.Array:
    try:
        return pc.multiply_checked(milliseconds, 1000).cast(_TIMES)
    except pa.ArrowInvalid:
        raise FormatError("source.ts_ms is more than a time in milliseconds can be", file=name) from None


def _first_failing(size: int, attempt: Callable[[int], Any]) -> int:
    """The first row with which an attempt at that many rows fails."""

    def fails(rows: int) -> bool:
        try:
            attempt(rows)
        except _MIXED:
            return True
        return False

    return first_failure(size, fails)


def _unwrap_message(message: Mapping[str, Any], name: str, row: int) -> Mapping[str, Any]:
    """An envelope, by itself or under ``payload`` beside its schema; one that is null is empty."""
    inner = message["payload"] if "op" not in message and "payload" in message else message
    if inner is None or not message:
        return {}
    if not isinstance(inner, Mapping) or inner.get("op") is None:
        raise FormatError(NO_OP, file=name, row=row)
    return inner


def _refuse_without_op(table: pa.Table, op: pa.Array, name: str) -> None:
    """A row that says something is no tombstone."""
    for column in ("before", "after", "source", "payload"):
        if column in table.column_names:
            bad = np.flatnonzero(_mask(op.is_null()) & _mask(table[column].combine_chunks().is_valid()))
            if len(bad):
                raise FormatError(NO_OP, file=name, row=int(bad[0]) + 1)


def _unwrap(table: pa.Table) -> Iterator[tuple[pa.Table, Index]]:
    """Envelopes by themselves, and those under ``payload`` beside their schema; and which rows they are."""
    rows = np.arange(table.num_rows)
    if "payload" not in table.column_names:
        yield table, rows
        return
    inner = table["payload"].combine_chunks()
    is_envelope = pa.types.is_struct(inner.type) and inner.type.get_field_index("op") >= 0
    if "op" in table.column_names:
        alone = _mask(pc.is_valid(table["op"])) | (not is_envelope)
        yield table.filter(pa.array(alone)), rows[alone]
        rows = rows[~alone]
    if len(rows):
        names = [field.name for field in inner.type] if pa.types.is_struct(inner.type) else []
        wrapped = inner.take(pa.array(rows))
        yield pa.table([pc.struct_field(wrapped, [column]) for column in names], names=names), rows


def _require_column(table: pa.Table, column: str, name: str) -> pa.Array:
    if column not in table.column_names:
        raise FormatError(describe_missing_column(column, table.column_names), file=name)
    found = table[column].combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _mask(values: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def _field(struct: pa.Array, field: str, name: str) -> pa.Array:
    names = [one.name for one in struct.type] if pa.types.is_struct(struct.type) else []
    if field not in names:
        raise FormatError(describe_missing_column(field, names), file=name)
    return pc.struct_field(struct, [field])


def _fields(
    struct: pa.Array, payload: pa.Schema, name: str, needed: Sequence[str] | None = None
) -> list[pa.Array]:
    """The payload in a struct. What was before may have no more than its key, which is ``needed``."""
    names = [one.name for one in struct.type] if pa.types.is_struct(struct.type) else []
    found = []
    for field in payload:
        if not len(struct) or (needed is not None and field.name not in needed and field.name not in names):
            found.append(pa.nulls(len(struct), field.type))
        else:
            found.append(_cast(_field(struct, field.name, name), field, name))
    return found


def _cast(column: pa.Array, field: pa.Field, name: str) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return cast_exactly(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as why:
        raise FormatError(
            f"column {field.name} is {column.type}, not {field.type}: {why}", file=name
        ) from None
