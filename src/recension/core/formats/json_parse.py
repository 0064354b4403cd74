"""One block of JSON lines into columns: Arrow's parser first, Python's where that one gives up.

Arrow's parser is some ten times faster, but it says little about what is wrong and wants one type per
column. Python's knows the row, and copes with times given as numbers in one row and as text in another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.json as pj

from recension.core.errors import FormatError
from recension.core.formats.columns import TimeColumns, readable
from recension.core.formats.json_blocks import Block
from recension.core.formats.place import one_line
from recension.core.ticks import is_time
from recension.core.values import exact_array

Row = dict[str, Any]
# What happens to names that were not asked for.
Others = Literal["ignore", "error"]


def parse_fast(
    block: Block, explicit: pa.Schema | None, times: TimeColumns, others: Others = "ignore"
) -> pa.RecordBatch | None:
    """The columns of ``explicit`` in their types, or all that the block has; None if Arrow cannot."""
    if not block.is_objects:
        return None
    read = pj.ReadOptions(use_threads=False, block_size=len(block.text) + 1)
    behavior = "infer" if explicit is None else others
    parse = pj.ParseOptions(explicit, newlines_in_values=False, unexpected_field_behavior=behavior)
    try:
        table = pj.read_json(pa.BufferReader(block.text), read, parse)
        # It would let bytes through that are not UTF-8, in names as well.
        table.validate(full=True)
        readable(table.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    # Arrow also takes two objects on a line; then rows and lines would no longer agree.
    is_sound = table.num_rows == block.size and all(
        is_time(table.schema.field(name).type) or pa.types.is_string(table.schema.field(name).type)
        for name in times.all
        if name in table.schema.names
    )
    return table.combine_chunks().to_batches()[0] if is_sound else None


def parse_rows(block: Block) -> list[Row]:
    """The block's objects, or an error that names the row that is none."""
    return [_object(line, block.file, block.first_row + i) for i, line in enumerate(block.lines())]


def _object(line: bytes, file: str, row: int) -> Row:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_unique)
    except json.JSONDecodeError as why:
        raise FormatError(f"not JSON: {why.msg} at character {why.pos + 1}", file=file, row=row) from None
    except ValueError as why:
        raise FormatError(f"not JSON: {one_line(why)}", file=file, row=row) from None
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", file=file, row=row)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    for name in row:
        if not _is_text(name):
            raise ValueError(f"the name {name!r} has half of a surrogate pair")
    if len(row) != len(pairs):
        twin = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the name {twin!r} is there twice")
    return row


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def column_of(rows: list[Row], field: pa.Field, block: Block) -> pa.Array:
    """One column of Python values as Arrow, or an error that names the row that does not fit."""
    values = [row.get(field.name) for row in rows]
    is_truth = pa.types.is_boolean(field.type)
    for at, value in enumerate(values):
        # Python's True is a number, JSON's is not.
        if isinstance(value, bool) and not is_truth:
            raise _misfit(field, value, block, at)
    convert = partial(exact_array, kind=field.type, may_lack_fields=True)
    return _first_misfit(values, convert, field, block)


def guess_type(rows: list[Row], name: str, block: Block, known: pa.DataType) -> pa.DataType:
    """The type that fits one column of Python values and what is known of it from earlier blocks."""
    values = [row.get(name) for row in rows]
    return _first_misfit(
        values, lambda part: unified(known, pa.array(part).type), pa.field(name, pa.null()), block
    )


def unified(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that holds values of both; ``ArrowTypeError`` if there is none."""
    if left == right:
        return left
    schemas = [pa.schema([("", left)]), pa.schema([("", right)])]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def time_texts(rows: list[Row], name: str, block: Block) -> pa.Array:
    """A column of times, which may be numbers of ticks or ISO 8601 texts, as texts."""
    values = [row.get(name) for row in rows]
    for at, value in enumerate(values):
        is_odd = isinstance(value, bool) or (isinstance(value, str) and not _is_text(value))
        if is_odd or not isinstance(value, int | str | None):
            reason = f"column {name}: {_shown(value)} is neither an integer nor an ISO 8601 timestamp"
            raise FormatError(reason, file=block.file, row=block.first_row + at)
    return pa.array([None if value is None else str(value) for value in values], pa.string())


_FAILURES = (TypeError, ValueError, OverflowError)  # what Arrow raises are kinds of these


def _first_misfit(
    values: list[Any], convert: Callable[[list[Any]], Any], field: pa.Field, block: Block
) -> Any:
    try:
        return convert(values)
    except _FAILURES:
        pass
    good, bad = 0, len(values)  # the first `good` values fit, the first `bad` do not
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(values[:middle])
            good = middle
        except _FAILURES:
            bad = middle
    raise _misfit(field, values[good], block, good)


def _misfit(field: pa.Field, value: Any, block: Block, at: int) -> FormatError:
    if not pa.types.is_null(field.type):
        fault = f"is not {field.type}"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        fault = "is too large for int64; declare the column's type"
    else:
        fault = "does not fit the values before it"
    reason = f"column {field.name}: {_shown(value)} {fault}"
    return FormatError(reason, file=block.file, row=block.first_row + at)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
