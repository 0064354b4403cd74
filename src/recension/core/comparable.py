"""Columns of two sides as plain numbers that are equal exactly where the values are.

A column is of any type, and need not be of the same type on both sides: what is compared is the value.
Numbers of all widths and scales are one kind of values, so are texts in all encodings, dates, times of day,
durations, timestamps with a zone and timestamps without one. Values of two kinds cannot be compared: that is
an error. Timestamps are instants, exactly, whatever their unit. A field that is missing in a struct is null.

Floats are kept apart from all other values, at any depth, for those who compare them within a tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index
from recension.core.errors import SchemaError
from recension.core.netting import expand

Floats: TypeAlias = npt.NDArray[np.float64]

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST_DIGITS: Final = 76
_IS_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IS_BYTES: Final = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)
_IS_LIST: Final = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_map),
)
_IS_NUMBER: Final = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating)


@dataclass(frozen=True)
class FloatLists:
    """Some floats in each row, one row's after the other's."""

    lengths: Index
    values: Floats

    @property
    def starts(self) -> Index:
        """Where the floats of each row begin."""
        starts: Index = np.cumsum(self.lengths) - self.lengths
        return starts

    def take(self, rows: Index) -> FloatLists:
        starts, lengths = self.starts[rows], self.lengths[rows]
        return FloatLists(lengths, self.values[expand(starts, starts + lengths)[1]])

    def nth(self, n: int) -> Floats:
        """The n-th of each row, NaN where there is none."""
        found = np.full(len(self.lengths), np.nan)
        there = np.flatnonzero(self.lengths > n)
        found[there] = self.values[self.starts[there] + n]
        return found


@dataclass
class Comparable:
    """Rows of two sides, the second's after the first's.

    Two rows are equal if they have the same ``words``, ``floats`` and ``lists``. Where they have the same
    words, they have as many floats, and nulls in the same places; a null among the floats is 0.0.
    """

    words: list[Index] = field(default_factory=list)
    floats: list[Floats] = field(default_factory=list)
    lists: list[FloatLists] = field(default_factory=list)

    def add(self, other: Comparable) -> None:
        self.words += other.words
        self.floats += other.floats
        self.lists += other.lists

    def take(self, rows: Index) -> Comparable:
        return Comparable(
            [word[rows] for word in self.words],
            [one[rows] for one in self.floats],
            [one.take(rows) for one in self.lists],
        )

    def exact_words(self) -> list[Index]:
        """The words, and the floats as such: -0.0 is 0.0, and NaN is NaN."""
        own = [_float_bits(one) for one in self.floats]
        packed = [_pack([_float_bits(one.values)], one.lengths) for one in self.lists]
        return [*self.words, *own, *packed]


def compare_tables(left: pa.Table, right: pa.Table) -> Comparable:
    """The rows of two tables with columns of the same names."""
    found = Comparable()
    for name in left.schema.names:
        found.add(compare_columns(left[name], right[name], name))
    return found


def compare_columns(left: pa.ChunkedArray, right: pa.ChunkedArray, name: str) -> Comparable:
    """The values of two columns. Values of two kinds are a ``SchemaError``, which names the column."""
    sides = [_combine(column) for column in (left, right)]
    try:
        return _compare(*sides)
    except _OtherKindError:
        raise SchemaError(f"column {name} is {left.type} on one side and {right.type} on the other") from None


class _OtherKindError(Exception):
    """Values of two kinds."""


def _combine(column: pa.ChunkedArray) -> pa.Array:
    """One array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        return column.unify_dictionaries().combine_chunks()
    return _with_room(column).combine_chunks()


def _with_room(column: Any) -> Any:
    """Texts with room for more than 2 GiB of them."""
    if _is(column.type, _IS_TEXT):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if _is(column.type, _IS_BYTES) else column


def _is(kind: pa.DataType, checks: Sequence[Any]) -> bool:
    return any(check(kind) for check in checks)


def _compare(left: pa.Array, right: pa.Array) -> Comparable:
    left, right = (_plain(side) for side in (left, right))
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        if left.type != right.type:
            typed = right.type if pa.types.is_null(left.type) else left.type
            typed = typed.value_type if pa.types.is_dictionary(typed) else typed
            left, right = (
                pa.nulls(len(side), typed) if pa.types.is_null(side.type) else side for side in (left, right)
            )
        else:
            return Comparable([np.zeros(len(left) + len(right), np.int64)])
    if pa.types.is_dictionary(left.type) or pa.types.is_dictionary(right.type):
        return _compare_encoded(left, right)
    found = _compare_values(left, right)
    if left.null_count or right.null_count:
        is_null = np.concatenate([_mask(side.is_null()) for side in (left, right)])
        found = Comparable([np.where(is_null, 0, word) for word in found.words], found.floats, found.lists)
        found.words.append(is_null.astype(np.int64))
        found.floats = [np.where(is_null, 0.0, one) for one in found.floats]
    return found


def _plain(column: pa.Array) -> pa.Array:
    """Without names of types and runs."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def _compare_encoded(left: pa.Array, right: pa.Array) -> Comparable:
    """Values are compared once each; a long one that stands in many rows takes no more room than one."""
    values, places, before = [], [], 0
    for side in (left, right):
        if pa.types.is_dictionary(side.type):
            at = side.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            own = _with_room(side.dictionary)
        else:
            at, own = np.arange(len(side)), _with_room(side)
        # The null that all null rows stand for is the last value of its side.
        values.append(pa.concat_arrays([own, pa.nulls(1, own.type)]))
        places.append(np.where(at < 0, len(own), at) + before)
        before += len(own) + 1
    return _compare(*values).take(np.concatenate(places))


def _compare_values(left: pa.Array, right: pa.Array) -> Comparable:
    """Both without dictionaries; what stands for a null is arbitrary."""
    kinds = [left.type, right.type]
    if all(_is(kind, _IS_NUMBER) for kind in kinds):
        return _compare_numbers(left, right)
    for checks in (_IS_TEXT, _IS_BYTES):
        if all(_is(kind, checks) for kind in kinds):
            return Comparable([_number_values(*(side.cast(pa.large_binary()) for side in (left, right)))])
    if all(_is(kind, _IS_LIST) for kind in kinds):
        return _compare_lists(left, right)
    if all(pa.types.is_struct(kind) for kind in kinds):
        return _compare_structs(left, right)
    if all(pa.types.is_boolean(kind) for kind in kinds):
        return _words([_mask(side.fill_null(False)).astype(np.int64) for side in (left, right)])
    return Comparable(_compare_times(left, right))


def _compare_times(left: pa.Array, right: pa.Array) -> list[Index]:
    kinds = [left.type, right.type]
    if all(map(pa.types.is_date, kinds)):
        unit = pa.date32() if kinds[0] == kinds[1] == pa.date32() else pa.date64()
        return _words([_raw(side.cast(unit)) for side in (left, right)]).words
    if all(map(pa.types.is_time, kinds)):
        return _compare_units(left, right)
    if all(map(pa.types.is_duration, kinds)):
        return _compare_units(left, right)
    if all(map(pa.types.is_timestamp, kinds)) and (kinds[0].tz is None) == (kinds[1].tz is None):
        return _compare_units(left, right)
    if kinds[0] == kinds[1] and pa.types.is_interval(kinds[0]):
        return _words_of_bytes(left, right)
    raise _OtherKindError


def _compare_units(left: pa.Array, right: pa.Array) -> list[Index]:
    """Counts of units: whole ones of the coarser, and what is left of the finer. Nothing is multiplied."""
    scales = [_PER_SECOND[side.type.unit] for side in (left, right)]
    whole, rest = [], []
    for side, scale in zip((left, right), scales, strict=True):
        parts = np.divmod(_raw(side), scale // min(scales))
        whole.append(parts[0])
        rest.append(parts[1])
    words = _words(whole).words
    return words if scales[0] == scales[1] else [*words, *_words(rest).words]


def _compare_numbers(left: pa.Array, right: pa.Array) -> Comparable:
    kinds = [left.type, right.type]
    if any(map(pa.types.is_floating, kinds)):
        return Comparable(floats=[np.concatenate([_to_floats(side) for side in (left, right)])])
    if any(map(pa.types.is_decimal, kinds)):
        return Comparable(_compare_decimals(left, right))
    words = _words([_raw(side) for side in (left, right)])
    if sum(map(pa.types.is_uint64, kinds)) == 1:
        # Both are 64 bits: those that are negative on the signed side have no equal.
        signs = [np.zeros(len(side), np.int64) for side in (left, right)]
        signed = 0 if pa.types.is_uint64(kinds[1]) else 1
        signs[signed] = (_raw((left, right)[signed]) < 0).astype(np.int64)
        words.add(_words(signs))
    return words


def _to_floats(column: pa.Array) -> Floats:
    if pa.types.is_integer(column.type):
        found: Floats = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        return found
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    column = column.cast(pa.float64(), safe=False)
    floats: Floats = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    return floats


def _compare_decimals(left: pa.Array, right: pa.Array) -> list[Index]:
    """All of one scale, as wide as it takes; if no width is enough, as texts."""
    forms = [_digits(side.type) for side in (left, right)]
    scale = max(form[1] for form in forms)
    width = max(before for before, _ in forms) + scale
    if width > _MOST_DIGITS:
        return [_number_values(*(pa.array(_shortest(side), pa.large_binary()) for side in (left, right)))]
    kind = pa.decimal128(38, scale) if width <= 38 else pa.decimal256(_MOST_DIGITS, scale)
    return _words_of_bytes(*(_widen(side).cast(kind) for side in (left, right)))


def _widen(column: pa.Array) -> pa.Array:
    """Integers as decimals, narrow decimals in the form that all casts take."""
    before, scale = _digits(column.type)
    is_wide = pa.types.is_decimal128(column.type) or pa.types.is_decimal256(column.type)
    return column if is_wide else column.cast(pa.decimal128(before + scale, scale))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """How many digits there are before the point at most, and behind it."""
    if pa.types.is_integer(kind):
        return 20, 0
    return kind.precision - kind.scale, max(kind.scale, 0)


def _shortest(column: pa.Array) -> list[bytes | None]:
    """Each number in the one form without zeros at its ends."""
    found: list[bytes | None] = []
    for value in column.to_pylist():
        if value is None:
            found.append(None)
            continue
        is_negative, digits, exponent = value.as_tuple() if hasattr(value, "as_tuple") else _parts(value)
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        sign = "-" if is_negative and short else ""
        found.append(f"{sign}{short}e{exponent + len(text) - len(short) if short else 0}".encode())
    return found


def _parts(value: int) -> tuple[bool, tuple[int, ...], int]:
    return value < 0, tuple(map(int, str(abs(value)))), 0


def _compare_structs(left: pa.Array, right: pa.Array) -> Comparable:
    """Field by field; one that a side lacks is null there."""
    found = Comparable([np.zeros(len(left) + len(right), np.int64)])
    names = list(dict.fromkeys([*(f.name for f in left.type), *(f.name for f in right.type)]))
    for name in names:
        sides = [_field(side, name) for side in (left, right)]
        found.add(_compare(*sides))
    return found


def _field(column: pa.Array, name: str) -> pa.Array:
    at = column.type.get_field_index(name)
    if at >= 0:
        return pc.struct_field(column, [at])
    if any(field.name == name for field in column.type):
        raise SchemaError(f"a struct has two fields {name}: such columns cannot be compared")
    return pa.nulls(len(column))


def _compare_lists(left: pa.Array, right: pa.Array) -> Comparable:
    """How many items there are, and all of them in their order."""
    if {pa.types.is_map(side.type) for side in (left, right)} == {True, False}:
        raise _OtherKindError
    sides = [_entries(side) if pa.types.is_map(side.type) else side for side in (left, right)]
    lengths = np.concatenate([_raw(pc.list_value_length(side)) for side in sides])
    items = _compare(*(pc.list_flatten(side) for side in sides))
    found = Comparable([lengths, _pack(items.words, lengths)] if items.words else [lengths])
    found.lists += [FloatLists(lengths, values) for values in items.floats]
    for inner in items.lists:
        before = np.append(0, np.cumsum(inner.lengths))[np.append(0, np.cumsum(lengths))]
        found.lists.append(FloatLists(np.diff(before), inner.values))
    return found


def _entries(column: pa.Array) -> pa.Array:
    """A map as a list of its entries."""
    entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    lists = pa.ListArray.from_arrays(column.offsets, entries)
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, lists.type)) if column.null_count else lists


def _pack(words: list[Index], lengths: Index) -> Index:
    """Rows of so many items each, whose words these are, as one word a row."""
    items = np.stack(words, axis=1)
    offsets = np.append(0, np.cumsum(lengths)) * (8 * len(words))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(items))]
    return _codes(pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers))


def _words(sides: list[Index]) -> Comparable:
    return Comparable([np.concatenate(sides)])


def _number_values(left: pa.Array, right: pa.Array) -> Index:
    """Equal values have equal numbers."""
    return _codes(pa.concat_arrays([left, right]))


def _codes(column: pa.Array) -> Index:
    codes = column.dictionary_encode().indices.cast(pa.int64())
    found: Index = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    return found


def _words_of_bytes(left: pa.Array, right: pa.Array) -> list[Index]:
    """Values of a fixed width, eight bytes of them each."""
    width = left.type.bit_width // 64
    raw = [
        np.frombuffer(data, np.int64, (side.offset + len(side)) * width)[side.offset * width :]
        if len(side) and (data := side.buffers()[1]) is not None
        else np.zeros(len(side) * width, np.int64)
        for side in (left, right)
    ]
    both = np.concatenate(raw).reshape(-1, width)
    return [np.ascontiguousarray(both[:, at]) for at in range(width)]


def _raw(column: pa.Array) -> Index:
    """Integers and counts of units as they are stored, nulls as 0."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    found: Index = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
    return found


def _mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found


def _float_bits(values: Floats) -> Index:
    plain = values + 0.0
    return np.where(np.isnan(plain), np.nan, plain).view(np.int64)
