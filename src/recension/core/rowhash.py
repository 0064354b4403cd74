"""One 64-bit hash per row of an Arrow payload, computed a column at a time; and a checksum of a table.

Equal rows have equal hashes: null equals null, NaN equals NaN, 0.0 equals -0.0, and the encoding of a
column (dictionary, large or small offsets) does not matter. Unequal rows collide with a chance of
2**-64 a pair; where that would change an answer, callers compare the rows themselves (`rows_equal`).
The hash is part of the state format: the same on every machine and in every session.

A checksum is of a table's content: names, types, values and their order, not how they are laid out. The same
table read back from Parquet, Arrow IPC or Feather has the same checksum. Values count to the bit: there 0.0
is not -0.0. A damaged table has another checksum, but for a chance of 2**-64; it is no protection against
somebody who means to deceive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index, Mask, is_plain
from recension.core.errors import SchemaError

Hashes: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ALL_BITS: Final = 2**64 - 1
_NULL: Final = np.uint64(0xD6E8FEB86659FD93)
_SEED: Final = np.uint64(0x243F6A8885A308D3)
_WORD: Final = 8
# Up to so many words are hashed one after the other; the words of longer values are hashed apart and added.
_FEW_WORDS: Final = 8
# Which bits of a word belong to a value that ends after so many bytes of it; 8 and more: all.
_KEPT: Final = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_AT_ONCE: Final = 1 << 15


def row_hash(payload: pa.RecordBatch, size: int | None = None) -> Hashes:
    """One hash per row; ``size`` gives the number of rows of a payload without columns."""
    return _hash_rows(payload.columns, payload.num_rows if size is None else size, by_bits=False)


def key_and_row_hash(payload: pa.RecordBatch, keys: Sequence[str], size: int) -> tuple[Hashes, Hashes]:
    """`row_hash` of some of the columns, and of all; each column is hashed once."""
    names = payload.schema.names
    if not keys:
        return np.full(size, _SEED), row_hash(payload, size)
    own = [column_hash(column) for column in payload.columns]
    of_keys = combine_all([own[names.index(key)] for key in keys], size)
    is_first = names[: len(keys)] == list(keys)
    return of_keys, combine_all(own[len(keys) :], size, of_keys) if is_first else combine_all(own, size)


def _hash_rows(columns: Sequence[pa.Array], size: int, *, by_bits: bool) -> Hashes:
    return combine_all([column_hash(column, by_bits=by_bits) for column in columns], size)


def combine_all(columns: Sequence[Hashes], size: int, begin: Hashes | None = None) -> Hashes:
    """The hashes of rows from those of their columns; ``begin`` are those of the columns before."""
    if not columns:
        return np.full(size, _SEED) if begin is None else begin
    hashes = np.full(1, _SEED) if begin is None else begin
    for column in columns:
        hashes = combine(hashes, column)
    return hashes


def combine(left: Hashes, right: npt.NDArray[np.uint64] | npt.NDArray[np.int64]) -> Hashes:
    """A hash of the pair; the order matters."""
    return _mix_in_place(left * _GOLDEN ^ right.view(np.uint64))


def _mix(words: Hashes) -> Hashes:
    """The finalizer of SplitMix64: a bijection in which every input bit reaches every output bit."""
    return _mix_in_place(words.copy())


def _mix_in_place(words: Hashes) -> Hashes:
    """The same, in the memory of the words: a long column takes longer to allocate than to compute."""
    shifted = words >> _30
    words ^= shifted
    words *= _MIX_1
    words ^= np.right_shift(words, _27, out=shifted)
    words *= _MIX_2
    words ^= np.right_shift(words, _31, out=shifted)
    return words


def column_hash(column: pa.Array, *, by_bits: bool = False) -> Hashes:
    """One hash per value of a column; with ``by_bits`` floats are equal only if their bits are."""
    hashes = _hash_values(column, by_bits)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _hash_values(column: pa.Array, by_bits: bool) -> Hashes:
    """Hashes of the values; what stands under a null is arbitrary."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _hash_values(column.storage, by_bits)
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_dictionary(kind):
        codes: Index = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return np.append(column_hash(column.dictionary, by_bits=by_bits), _NULL)[codes]
    if pa.types.is_boolean(kind):
        return _mix(column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_floating(kind):
        return _hash_fixed(column) if by_bits else _mix(_float_words(column))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _hash_bytes(column.cast(pa.large_binary()), np.int64)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _hash_bytes(column, np.int32)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _hash_bytes(column, np.int64)
    if pa.types.is_struct(kind):
        return _hash_rows(column.flatten(), len(column), by_bits=by_bits)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        return _hash_lists(pa.ListArray.from_arrays(column.offsets, entries), by_bits)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(column, by_bits)
    if pa.types.is_fixed_size_list(kind):
        return _hash_lists(column.cast(pa.list_(kind.value_type)), by_bits)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_fixed(column)
    raise SchemaError(f"payload columns of type {kind} are not supported")


def _float_words(column: pa.Array) -> Hashes:
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    return np.where(np.isnan(values), np.nan, values).view(np.uint64)


def _hash_fixed(column: pa.Array) -> Hashes:
    """Fixed-width values, one or more 64-bit words each; narrower ones are widened by value."""
    width = column.type.bit_width // 8
    raw = _raw_bytes(column, width)
    if width > _WORD or pa.types.is_fixed_size_binary(column.type):
        starts = np.arange(len(column), dtype=np.int64) * width
        return _hash_bytes_at(starts, np.full(len(column), width), raw)
    signed = raw[: len(column) * width].view(f"<i{width}").astype(np.int64)
    return _mix(signed.view(np.uint64))


def _raw_bytes(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column) * width, np.uint8)
    return np.frombuffer(data, np.uint8)[column.offset * width :]


def _hash_bytes(column: pa.Array, offset_type: npt.DTypeLike) -> Hashes:
    if len(column) == 1 and (value := column[0].as_buffer()) is not None and value.size <= _FEW_WORDS * _WORD:
        return np.array([_hash_once(value.to_pybytes())], np.uint64)
    _, offsets_buffer, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint64)
    # By count: a buffer may be longer than its offsets, and end in the middle of another.
    count = column.offset + len(column) + 1
    offsets = np.frombuffer(offsets_buffer, offset_type, count)[column.offset :].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return _hash_bytes_at(offsets[:-1], np.diff(offsets), raw)


def _hash_once(value: bytes) -> int:
    """What `_hash_bytes_at` gives for one short value; for a single one arrays take far longer."""
    found = _mix_once((len(value) + int(_GOLDEN)) & _ALL_BITS)
    for at in range(0, len(value), _WORD):
        word = int.from_bytes(value[at : at + _WORD], "little")
        found = _mix_once((found * int(_GOLDEN) & _ALL_BITS) ^ word)
    return found


def _mix_once(word: int) -> int:
    """`_mix` of one word."""
    word = (word ^ word >> 30) * int(_MIX_1) & _ALL_BITS
    word = (word ^ word >> 27) * int(_MIX_2) & _ALL_BITS
    return word ^ word >> 31


def _hash_bytes_at(starts: Index, lengths: Index, raw: npt.NDArray[np.uint8]) -> Hashes:
    """Hash ``raw[starts:starts+lengths]`` a 64-bit word at a time, all rows abreast."""
    longest = int(lengths.max(initial=0))
    is_short = longest <= _FEW_WORDS * _WORD < len(lengths)
    hashes = _hash_lengths(np.arange(longest + 1)).take(lengths) if is_short else _hash_lengths(lengths)
    if not longest:
        return hashes
    padded = np.concatenate([raw, np.zeros(_WORD, np.uint8)]) if _overruns(starts, lengths, raw) else raw
    # Overlapping 8-byte words, one starting at every byte.
    words: Hashes = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    if longest <= _FEW_WORDS * _WORD:
        return _chain_words(hashes, starts, lengths, words)
    long = np.flatnonzero(lengths > _FEW_WORDS * _WORD)
    hashes[long] = combine(hashes[long], _sum_words(starts[long], lengths[long], words))
    if len(long) < len(lengths):
        short = np.flatnonzero(lengths <= _FEW_WORDS * _WORD)
        hashes[short] = _chain_words(hashes[short], starts[short], lengths[short], words)
    return hashes


def _hash_lengths(lengths: Index) -> Hashes:
    return _mix_in_place(lengths.astype(np.uint64) + _GOLDEN)


def _chain_words(hashes: Hashes, starts: Index, lengths: Index, words: Hashes) -> Hashes:
    """The words of each value, one after the other."""
    shortest = int(lengths.min())
    for at in range(0, int(lengths.max()), _WORD):
        if at + _WORD <= shortest:
            hashes = combine(hashes, words[starts + at if at else starts])
        elif at < shortest:
            word = words[starts + at if at else starts]
            word &= _KEPT.take(lengths - at, mode="clip")
            hashes = combine(hashes, word)
        else:
            rows = np.flatnonzero(lengths > at)
            word = words[starts[rows] + at]
            word &= _KEPT.take(lengths[rows] - at, mode="clip")
            hashes[rows] = combine(hashes[rows], word)
    return hashes


def _sum_words(starts: Index, lengths: Index, words: Hashes) -> Hashes:
    """For each value the sum of hashes of its words, each by a multiplier of its place; part by part."""
    counts = (lengths + _WORD - 1) // _WORD
    multipliers = _mix(np.arange(int(counts.max()), dtype=np.uint64)) | np.uint64(1)
    parts = []
    ends = np.cumsum(counts)
    first = 0
    while first < len(starts):
        stop = max(first + 1, int(np.searchsorted(ends, (ends[first - 1] if first else 0) + _AT_ONCE)))
        parts.append(
            _sum_part(starts[first:stop], lengths[first:stop], counts[first:stop], multipliers, words)
        )
        first = stop
    return np.concatenate(parts)


def _sum_part(starts: Index, lengths: Index, counts: Index, multipliers: Hashes, words: Hashes) -> Hashes:
    width = int(lengths[0])
    if width % _WORD == 0 and bool((lengths == width).all()) and bool((np.diff(starts) == width).all()):
        at = int(starts[0])
        found = words[at : at + width * len(starts) : _WORD].reshape(len(starts), -1)
        total: Hashes = _scatter(found, multipliers[: width // _WORD]).sum(axis=1)
        return total
    ends = np.cumsum(counts)
    place = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    found = words[np.repeat(starts, counts) + place * _WORD]
    spare = (counts * _WORD - lengths).astype(np.uint64) * np.uint64(8)
    found[ends - 1] &= np.uint64(0xFFFFFFFFFFFFFFFF) >> spare
    sums: Hashes = np.add.reduceat(_scatter(found, multipliers[place]), ends - counts)
    return sums


def _scatter(words: Hashes, multipliers: Hashes) -> Hashes:
    """High bits reach low ones before the product, and the product's low ones after it."""
    scattered = words ^ (words >> np.uint64(32))
    scattered *= multipliers
    scattered ^= scattered >> np.uint64(29)
    return scattered


def _overruns(starts: Index, lengths: Index, raw: npt.NDArray[np.uint8]) -> bool:
    """Would reading whole words run past the end of the buffer?"""
    rounded = starts + (lengths + _WORD - 1) // _WORD * _WORD
    return bool(rounded.max(initial=0) > len(raw))


def _hash_lists(column: pa.Array, by_bits: bool) -> Hashes:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    items = column_hash(pc.list_flatten(column), by_bits=by_bits)
    ends = np.cumsum(lengths)
    position = np.arange(len(items), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    # A sum of position-dependent hashes: order matters, and empty lists need no special case.
    totals = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(combine(_mix(position.view(np.uint64)), items))]
    )
    return combine(totals[ends] - totals[ends - lengths], lengths)


def rows_equal(left: pa.RecordBatch, right: pa.RecordBatch, size: int) -> Mask:
    """Row by row: are the payloads equal (null equals null, NaN equals NaN)?"""
    same = np.ones(size, np.bool_)
    if left.equals(right):
        return same
    for a, b in zip(left.columns, right.columns, strict=True):
        same &= columns_equal(a, b)
    return same


def rows_equal_at(columns: Sequence[pa.Array], left: Index, right: Index) -> Mask:
    """The same of pairs of rows of one payload; plain numbers are compared where they stand."""
    same = np.ones(len(left), np.bool_)
    for place, column in enumerate(columns):
        if place:  # of those that differ nothing more need be looked at
            at = same.nonzero()[0]
            if not len(at):
                return same
            same[at] = _equal_at(column, left.take(at), right.take(at))
        else:
            same = _equal_at(column, left, right)
    return same


def _equal_at(column: pa.Array, left: Index, right: Index) -> Mask:
    if not is_plain(column):
        return columns_equal(column.take(pa.array(left)), column.take(pa.array(right)))
    values = column.to_numpy()
    x, y = values.take(left), values.take(right)
    same: Mask = x == y
    return same if values.dtype.kind != "f" else same | (np.isnan(x) & np.isnan(y))


def _to_comparable(column: pa.Array) -> pa.Array:
    """Without encodings and names of types that Arrow cannot compare."""
    if isinstance(column, pa.ExtensionArray):
        return _to_comparable(column.storage)
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def columns_equal(left: pa.Array, right: pa.Array) -> Mask:
    """Value by value: are they equal (null equals null, NaN equals NaN)?"""
    left, right = _to_comparable(left), _to_comparable(right)
    if pa.types.is_nested(left.type) or pa.types.is_null(left.type):
        # No equality kernel for nested values: their hashes stand for them.
        same: Mask = column_hash(left) == column_hash(right)
        return same
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if left.null_count or right.null_count:
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        equal = pc.or_(pc.fill_null(equal, False), both_null)
    result: Mask = equal.to_numpy(zero_copy_only=False)
    return result


def checksum(table: pa.Table) -> int:
    """A number that every change of the content changes."""
    content = _describe_fields(table.schema), table.num_rows, [_column_sum(c) for c in table.columns]
    return int.from_bytes(blake2b(repr(content).encode(), digest_size=8).digest(), "little")


def _column_sum(column: pa.ChunkedArray) -> int:
    """The sum of hashes of its values, each with its position."""
    total = first = 0
    for chunk in column.chunks:
        if len(chunk):
            position = np.arange(first, first + len(chunk), dtype=np.uint64)
            total += int(combine(position, column_hash(chunk, by_bits=True)).sum(dtype=np.uint64))
            first += len(chunk)
    return total % 2**64


def _describe_fields(fields: Iterable[pa.Field]) -> str:
    return ", ".join(f"{field.name!r} {_describe_type(field.type)}" for field in fields)


def _describe_type(kind: pa.DataType) -> str:
    """The type as text, without the names that file formats give to the items of lists and maps."""
    if pa.types.is_struct(kind):
        return f"struct({_describe_fields(kind)})"
    if pa.types.is_map(kind):
        return f"map({_describe_type(kind.key_type)}, {_describe_type(kind.item_type)})"
    if pa.types.is_fixed_size_list(kind):
        return f"list({_describe_type(kind.value_type)}, {kind.list_size})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{'large ' * pa.types.is_large_list(kind)}list({_describe_type(kind.value_type)})"
    return str(kind)
