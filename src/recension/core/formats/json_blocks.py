"""JSON Lines in blocks of whole lines: each is checked, then parsed into columns.

Arrow's parser takes time with the square of the depth of an object and overruns the stack in the end; and it
makes a cell for every name of a block in every row of it. Both are bounded before it sees the text, in time
linear in the text.

Arrow's parser is some ten times faster than Python's, but it says little about what is wrong and wants one
type per column. Python's knows the row, and copes with times given as numbers in one row and as text in
another. So Arrow's comes first, and Python's where that one gives up.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from recension.core.batch import Index
from recension.core.errors import FormatError, first_failure
from recension.core.formats.columns import TimeColumns, parts_of, require_readable, unify_types
from recension.core.formats.files import describe_file_error
from recension.core.ticks import is_time
from recension.core.values import exact_array

Row: TypeAlias = dict[str, Any]
# What happens to names that were not asked for.
Others: TypeAlias = Literal["ignore", "error"]

DEEPEST: Final = 100
MOST_CELLS: Final = 1 << 24
_OPEN, _CLOSE, _QUOTE, _BACKSLASH = (ord(letter) for letter in '{}"\\')

_IS_SPACE: Final = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))
_FAILURES: Final = (TypeError, ValueError, OverflowError)  # what Arrow raises are kinds of these
# What a bracket does to the depth.
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file; ``size`` of them are not blank.

    In a block ``is_objects`` every line has an object's first and last bracket, and closes what it opens.
    """

    text: bytes
    file: str
    first_row: int
    size: int
    is_objects: bool

    @staticmethod
    def parse(text: bytes, file: str, first_row: int) -> Block:
        """A block, or an error if one of its objects is nested too deep."""
        raw = np.frombuffer(text, np.uint8)
        lines = _Lines(raw)
        opened, closed = (np.count_nonzero(raw == bracket) for bracket in (_OPEN, _CLOSE))
        is_flat = opened == closed == len(lines.starts) and b"[" not in text
        # A line with one bracket of each kind, at its ends, needs no closer look.
        is_objects = lines.are_braced() and (is_flat or lines.are_balanced())
        if not (is_objects and is_flat) and (row := lines.first_deep()) is not None:
            reason = f"nested more than {DEEPEST} levels deep"
            raise FormatError(reason, file=file, row=first_row + row)
        return Block(text, file, first_row, len(lines.starts), is_objects)

    def lines(self) -> list[bytes]:
        """The lines that are not blank."""
        return [line for line in self.text.split(b"\n") if line.strip()]

    def head(self, size: int) -> Block:
        """The first lines that are not blank."""
        return Block.parse(b"\n".join(self.lines()[:size]), self.file, self.first_row)

    def cut_after(self, length: int) -> list[Block]:
        """The lines of about the first ``length`` bytes, and the others if there are any."""
        cut = self.text.find(b"\n", length) + 1
        texts = [self.text[:cut], self.text[cut:]] if 0 < cut < len(self.text) else []
        if not all(map(bytes.strip, texts)) or not texts:
            return [self]
        head = Block.parse(texts[0], self.file, self.first_row)
        return [head, Block.parse(texts[1], self.file, self.first_row + head.size)]

    def parts(self, columns: int | None = None) -> Iterator[Block]:
        """Parts with a bounded number of cells. Without ``columns``, every colon may make a column."""
        names = self.text.count(b":") if columns is None else columns
        # Half of the lines with half of the names have a quarter of the cells.
        number = 1 + math.isqrt(2 * names * self.size // MOST_CELLS)
        texts = _split_text(self.text, number) if names * self.size > MOST_CELLS else []
        if len(texts) < 2:
            yield self
            return
        first_row = self.first_row
        for text in texts:
            part = Block.parse(text, self.file, first_row)
            first_row += part.size
            yield from part.parts(columns) if part.size else ()


def _split_text(text: bytes, parts: int) -> list[bytes]:
    """About so many parts of about one length, cut where lines end."""
    targets = range(len(text) // parts, len(text), max(1, len(text) // parts))
    cuts = dict.fromkeys(text.find(b"\n", target) + 1 or len(text) for target in targets)
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if a < b]


class _Lines:
    """Where the lines of a text start, after white space, and end; blank lines are left out."""

    def __init__(self, raw: npt.NDArray[np.uint8]) -> None:
        self._raw = raw
        breaks = np.flatnonzero(raw == ord("\n"))
        starts, ends = np.append(0, breaks + 1), np.append(breaks, len(raw))
        if starts[-1] == len(raw):
            starts, ends = starts[:-1], ends[:-1]
        # Only a line that begins with white space can be blank, and few do.
        doubtful = np.flatnonzero(raw[starts] <= ord(" "))
        if len(doubtful):
            letters = np.append(np.flatnonzero(~_IS_SPACE[raw]), len(raw))
            starts[doubtful] = letters[np.searchsorted(letters, starts[doubtful])]
        kept = starts < ends
        self.starts, self.ends = starts[kept], ends[kept]

    def are_braced(self) -> bool:
        """Does every line begin with { and end with }?"""
        raw, last = self._raw, self.ends - 1
        if not bool((raw[self.starts] == _OPEN).all()):
            return False
        trailing = np.flatnonzero(raw[last] != _CLOSE)
        if len(trailing):
            letters = np.flatnonzero(~_IS_SPACE[raw])
            last[trailing] = letters[np.searchsorted(letters, self.ends[trailing]) - 1]
        return bool((raw[last] == _CLOSE).all())

    def are_balanced(self) -> bool:
        """Does every line close what it opens? Brackets inside of texts do not count."""
        depth, at, quotes = self._depths
        return bool((quotes % 2 == 0).all() and (depth[at[:, 1]] == depth[at[:, 0]]).all())

    def first_deep(self) -> int | None:
        """The first line that is nested too deep."""
        depth, at, _ = self._depths
        if int(depth.max()) - int(depth.min()) <= DEEPEST:
            return None
        for line, (first, last) in enumerate(at.tolist()):
            if last - first > DEEPEST and int(depth[first : last + 1].max()) - int(depth[first]) > DEEPEST:
                return line
        return None

    @cached_property
    def _depths(self) -> tuple[Index, npt.NDArray[Any], Index]:
        """The depth after each bracket, where in that each line begins and ends, and its number of quotes."""
        quotes = self._quotes()
        at = np.searchsorted(quotes, np.stack([self.starts, self.ends], axis=1))
        brackets = np.flatnonzero(_STEP[self._raw])
        before = np.searchsorted(quotes, brackets)
        line = np.maximum(np.searchsorted(self.starts, brackets, side="right") - 1, 0)
        outside = brackets[(before - at[line, 0]) % 2 == 0] if len(at) else brackets
        depth = np.append(0, np.cumsum(_STEP[self._raw[outside]], dtype=np.int64))
        return (
            depth,
            np.searchsorted(outside, np.stack([self.starts, self.ends], axis=1)),
            at[:, 1] - at[:, 0],
        )

    def _quotes(self) -> Index:
        """The quotes that are not escaped: those after an even number of backslashes."""
        quotes = np.flatnonzero(self._raw == _QUOTE)
        slashes = np.flatnonzero(self._raw == _BACKSLASH)
        if not len(slashes):
            return quotes
        first = np.flatnonzero(np.append(True, np.diff(slashes) > 1))
        runs, lengths = slashes[first], np.diff(np.append(first, len(slashes)))
        escaped = (runs + lengths)[lengths % 2 == 1]
        return quotes[~np.isin(quotes, escaped)]


def parse_with_arrow(
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
        require_readable(table.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    # Arrow also takes two objects on a line; then rows and lines would no longer agree.
    is_sound = table.num_rows == block.size and all(
        is_time(table.schema.field(name).type) or pa.types.is_string(table.schema.field(name).type)
        for name in times.all
        if name in table.schema.names
    )
    return table.combine_chunks().to_batches()[0] if is_sound else None


def parse_with_python(block: Block) -> list[Row]:
    """The block's objects, or an error that names the row that is none."""
    return [_parse_object(line, block.file, block.first_row + i) for i, line in enumerate(block.lines())]


def _parse_object(line: bytes, file: str, row: int) -> Row:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_make_row)
    except json.JSONDecodeError as why:
        raise FormatError(f"not JSON: {why.msg} at character {why.pos + 1}", file=file, row=row) from None
    except ValueError as why:
        raise FormatError(f"not JSON: {describe_file_error(why)}", file=file, row=row) from None
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", file=file, row=row)
    return value


def _make_row(pairs: list[tuple[str, Any]]) -> Row:
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


def find_absent(names: Iterable[str], blocks: Iterable[Block]) -> set[str]:
    """Those of the names that no object has. It ends with the block that has the last of them."""
    absent = set(names)
    for block in blocks if absent else ():
        parsed: set[int] = set()
        for name in sorted(absent):
            pattern = rb'"%b"[ \t\r]*:' % re.escape(name.encode())
            for there in _names_in_lines(block.text, pattern, parsed) if name in absent else ():
                absent -= there
                if name not in absent:
                    break
        # With a backslash a name can be spelled in many ways.
        for there in _names_in_lines(block.text, rb"\\", parsed) if absent else ():
            absent -= there
        if not absent:
            break
    return absent


def _names_in_lines(text: bytes, pattern: bytes, parsed: set[int]) -> Iterator[set[str]]:
    """The names in each line in which the pattern is; lines that were parsed before are passed over."""
    search, at = re.compile(pattern).search, 0
    while found := search(text, at):
        start = text.rfind(b"\n", 0, found.start()) + 1
        at = text.find(b"\n", found.start()) + 1 or len(text)
        if start not in parsed:
            parsed.add(start)
            yield _names_of(text[start:at])


def _names_of(line: bytes) -> set[str]:
    """The names of an object; none if it is not sound, which is told when the line is read."""
    try:
        value = json.loads(line)
    except ValueError:
        return set()
    return set(value) if isinstance(value, dict) else set()


_EXACT_DIGITS: Final = 15
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def column_from_rows(rows: list[Row], field: pa.Field, block: Block) -> pa.Array:
    """One column of Python values as Arrow, or an error that names the row that does not fit."""
    values = [row.get(field.name) for row in rows]
    is_truth = pa.types.is_boolean(field.type)
    for at, value in enumerate(values):
        # Python's True is a number, JSON's is not.
        if isinstance(value, bool) and not is_truth:
            raise _misfit(field, value, block, at)
    has_decimals = any(map(is_json_decimal, parts_of(field.type)))

    def convert(part: list[Any]) -> pa.Array:
        read = [_read_decimals(value, field.type) for value in part] if has_decimals else part
        return exact_array(read, field.type, may_lack_fields=True)

    return _convert_values(values, convert, field, block)


def is_json_decimal(kind: pa.DataType) -> bool:
    """A decimal that Arrow reads from texts and numbers of JSON alike."""
    return bool(pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind))


def _read_decimals(value: Any, kind: pa.DataType) -> Any:
    """A JSON value with decimals for texts and numbers, where its type has them."""
    if value is None:
        return None
    if is_json_decimal(kind):
        text = repr(value) if isinstance(value, float) else value
        # Python has read a number as a float: of more digits it may have lost some.
        if isinstance(value, float) and sum(map(str.isdigit, text.partition("e")[0])) > _EXACT_DIGITS:
            raise ValueError(f"{text} has more digits than a float holds: write it as text")
        if isinstance(text, str) and _DECIMAL.fullmatch(text) is None:
            raise ValueError(f"{text!r} is no decimal")
        return Decimal(text) if isinstance(text, str) else value
    if isinstance(value, list) and kind.num_fields == 1:
        return [_read_decimals(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        types = {field.name: field.type for field in kind}
        return type(value)(
            {name: _read_decimals(v, types[name]) if name in types else v for name, v in value.items()}
        )
    return value


def guess_column_type(rows: list[Row], name: str, block: Block, known: pa.DataType) -> pa.DataType:
    """The type that fits one column of Python values and what is known of it from earlier blocks."""
    values = [row.get(name) for row in rows]
    return _convert_values(
        values, lambda part: unify_types(known, pa.array(part).type), pa.field(name, pa.null()), block
    )


def time_texts(rows: list[Row], name: str, block: Block) -> pa.Array:
    """A column of times, which may be numbers of ticks or ISO 8601 texts, as texts."""
    values = [row.get(name) for row in rows]
    for at, value in enumerate(values):
        is_odd = isinstance(value, bool) or (isinstance(value, str) and not _is_text(value))
        if is_odd or not isinstance(value, int | str | None):
            reason = (
                f"column {name}: {_describe_value(value)} is neither an integer nor an ISO 8601 timestamp"
            )
            raise FormatError(reason, file=block.file, row=block.first_row + at)
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _convert_values(
    values: list[Any], convert: Callable[[list[Any]], Any], field: pa.Field, block: Block
) -> Any:
    try:
        return convert(values)
    except _FAILURES:
        pass
    good = first_failure(len(values), lambda n: not _fits(values[:n], convert))
    raise _misfit(field, values[good], block, good)


def _fits(values: list[Any], convert: Callable[[list[Any]], Any]) -> bool:
    try:
        convert(values)
    except _FAILURES:
        return False
    return True


def _misfit(field: pa.Field, value: Any, block: Block, at: int) -> FormatError:
    if not pa.types.is_null(field.type):
        fault = f"is not {field.type}"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        fault = "is too large for int64; declare the column's type"
    else:
        fault = "does not fit the values before it"
    reason = f"column {field.name}: {_describe_value(value)} {fault}"
    return FormatError(reason, file=block.file, row=block.first_row + at)


def _describe_value(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
