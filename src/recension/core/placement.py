"""Where rows stand in sub-streams: their partitions, their order there, the numbers of their producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.errors import FormatError, RecensionError, suggest_name
from recension.core.records import record
from recension.core.rowhash import Hashes
from recension.core.ticks import Ticks

SEPARATOR: Final = "/"
PartitionName: TypeAlias = Any
"""A value, or a tuple of values where several columns tell partitions apart."""


def name_of(partition: PartitionName) -> str:
    """The name of a partition, as its columns would give it.

    >>> name_of(2), name_of(("eu", 2))
    ('2', 'eu/2')
    """
    values = partition if isinstance(partition, tuple) else (partition,)
    if not values or any(value is None for value in values):
        raise RecensionError("partition: null is not a partition")
    for value in values:
        if not isinstance(value, str | int | np.integer) or isinstance(value, bool):
            raise RecensionError(f"partition: it is a text or a whole number, not {value!r}")
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else SEPARATOR.join(map(_escape, texts))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace(SEPARATOR, "\\" + SEPARATOR)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a batch stand: partition, order in it, and the number that their producer gave them.

    ``order`` and ``sequence`` are columns of whole numbers. ``numbered`` says which rows have a sequence;
    ``run`` numbers the texts in ``runs``.
    """

    names: Sequence[str]
    code: Index
    order: tuple[Index, ...] = ()
    sequence: tuple[Index, ...] = ()
    runs: Sequence[str] = ("",)
    run: Index | None = None
    numbered: Mask | None = None

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: Index | Mask) -> Placement:
        """Some of the rows, or all of them in another order."""
        return replace(
            self,
            code=self.code[rows],
            order=tuple(column[rows] for column in self.order),
            sequence=tuple(column[rows] for column in self.sequence),
            run=None if self.run is None else self.run[rows],
            numbered=None if self.numbered is None else self.numbered[rows],
        )

    def without_unused(self) -> Placement:
        """The same without names that no row has."""
        is_used = np.bincount(self.code, minlength=len(self.names)) > 0
        if bool(is_used.all()):
            return self
        names = [name for name, there in zip(self.names, is_used.tolist(), strict=True) if there]
        return replace(self, names=names, code=(np.cumsum(is_used) - 1)[self.code])

    @staticmethod
    def of_one(name: str, size: int) -> Placement:
        """All rows in one partition, in the order in which they come."""
        return Placement((name,), np.zeros(size, np.int64))

    @staticmethod
    def of_names(names: Sequence[str]) -> Placement:
        """The partition of each row; they come in order."""
        known = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return Placement(tuple(known), np.array([known[name] for name in names], np.int64))


@record
class PlacedRows:
    """How the rows of a batch stand in their partitions, each of which has CTIs of its own.

    ``before`` is the CTI before each row in its partition, ``salts`` tell equal events of two of them apart.
    """

    names: Sequence[str]
    salts: Hashes
    partition: Index
    before: Ticks
    cti: int
    """The CTI of the source after these rows."""

    @property
    def salt(self) -> Hashes:
        """What to mix into the identity of each row's event."""
        return self.salts[self.partition]

    def take(self, rows: Mask) -> PlacedRows:
        """Without some of the rows."""
        return replace(self, partition=self.partition[rows], before=self.before[rows])

    def describe(self, at: int) -> str:
        """The partition of a row, for messages."""
        name = self.names[self.partition[at]]
        return f"partition {name}: " if name else ""

    def count(self, rows: Index | Mask) -> Index:
        """How many of some rows there are in each partition."""
        return np.bincount(self.partition[rows], minlength=len(self.names))


def join_placements(parts: Sequence[Placement]) -> Placement:
    """The rows of several parts, one after the other; they have the same columns."""
    if len(parts) == 1:
        return parts[0]
    names = {name: n for n, name in enumerate(dict.fromkeys(name for part in parts for name in part.names))}
    runs = {run: n for n, run in enumerate(dict.fromkeys(run for part in parts for run in part.runs))}

    def renumber(codes: Index, own: Sequence[str], known: Mapping[str, int]) -> Index:
        return np.array([known[name] for name in own], np.int64)[codes]

    def join(columns: Iterable[tuple[Index, ...]]) -> tuple[Index, ...]:
        return tuple(np.concatenate(column) for column in zip(*columns, strict=True))

    is_run = any(part.run is not None for part in parts)
    is_numbered = any(part.numbered is not None for part in parts)
    nobody = [np.zeros(len(part), np.int64) for part in parts]
    run = [nothing if p.run is None else p.run for p, nothing in zip(parts, nobody, strict=True)]
    numbered = [np.ones(len(part), np.bool_) if part.numbered is None else part.numbered for part in parts]
    return Placement(
        tuple(names),
        np.concatenate([renumber(part.code, part.names, names) for part in parts]),
        join(part.order for part in parts),
        join(part.sequence for part in parts),
        tuple(runs),
        np.concatenate([renumber(codes, p.runs, runs) for codes, p in zip(run, parts, strict=True)])
        if is_run
        else None,
        np.concatenate(numbered) if is_numbered else None,
    )


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The columns that say where rows stand. Without ``partition`` there is one, called ``""``."""

    partition: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    run: str | None = None
    sequence: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        run = () if self.run is None else (self.run,)
        return tuple(dict.fromkeys((*self.partition, *self.order, *run, *self.sequence)))

    def read(self, rows: pa.RecordBatch | pa.Table, file: str | None = None, first_row: int = 1) -> Placement:
        """The places of rows; an error that names the column, and the row if there is one to name."""
        columns = {name: self._column(rows, name, file) for name in self.names}

        def numbers(names: tuple[str, ...], role: str) -> tuple[Index, ...]:
            return tuple(_to_numbers(columns[name], name, role, file) for name in names)

        for role, names in (("partition", self.partition), ("order", self.order)):
            for name in names:
                if columns[name].null_count:
                    row = first_row + int(columns[name].is_null().index(True).as_py())
                    raise FormatError(f"{name} is null, the {role} of the row", file=file, row=row)
        known, code = _name_rows([columns[name] for name in self.partition], self.partition, len(rows), file)
        runs, run = (("",), None) if self.run is None else _texts_of(columns[self.run], self.run, file)
        missing = [columns[name].is_null() for name in self.sequence if columns[name].null_count]
        numbered = None
        if missing:
            numbered = ~np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in missing])
        order, sequence = numbers(self.order, "order"), numbers(self.sequence, "sequence")
        return Placement(known, code, order, sequence, runs, run, numbered)

    def _column(self, rows: pa.RecordBatch | pa.Table, name: str, file: str | None) -> pa.Array:
        if name not in rows.schema.names:
            raise FormatError(self._describe_missing(name, rows.schema.names), file=file)
        column = rows.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return column

    def _describe_missing(self, name: str, there: list[str]) -> str:
        roles = {"partition": self.partition, "order": self.order, "sequence": self.sequence}
        role = next((role for role, names in roles.items() if name in names), "run")
        return f"no column {name}{suggest_name(name, there)}, which the source names as its {role}"


def _name_rows(
    columns: list[pa.Array], names: tuple[str, ...], size: int, file: str | None
) -> tuple[Sequence[str], Index]:
    if not columns:
        return ("",), np.zeros(size, np.int64)
    parts = [_texts_of(column, name, file) for column, name in zip(columns, names, strict=True)]
    if len(parts) == 1:
        return parts[0]
    code = np.zeros(size, np.int64)
    for texts, number in parts:
        code = code * len(texts) + number
        distinct, code = np.unique(code, return_inverse=True)
        del distinct
    _, first = np.unique(code, return_index=True)
    rows = zip(*([_escape(texts[number[at]]) for at in first] for texts, number in parts), strict=True)
    return [SEPARATOR.join(row) for row in rows], code


def _texts_of(column: pa.Array, name: str, file: str | None) -> tuple[Sequence[str], Index]:
    """The values of a column as texts, each once, and which of them each row has."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    kind = column.type.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_null(kind) or pa.types.is_temporal(kind)):
        raise FormatError(
            f"column {name} is {kind}; a name is a text, a whole number, a date or a timestamp", file=file
        )
    texts = ["" if text is None else text for text in column.dictionary.cast(pa.string()).to_pylist()]
    code = column.indices.cast(pa.int64())
    if code.null_count:
        texts, code = [*texts, ""], code.fill_null(len(texts))
    numbers: Index = code.to_numpy(zero_copy_only=False)
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if len(known) == len(texts):
        return texts, numbers
    # A dictionary that somebody made may have a value twice.
    return list(known), np.array([known[text] for text in texts], np.int64)[numbers]


def _to_numbers(column: pa.Array, name: str, role: str, file: str | None) -> Index:
    """A column that puts rows in order; what is null is 0."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        if pa.types.is_null(kind):
            return np.zeros(len(column), np.int64)
        raise FormatError(
            f"column {name} is {kind}; {role} is a whole number, a timestamp or a date (texts would be "
            "compared letter by letter)",
            file=file,
        )
    try:
        if pa.types.is_temporal(kind):
            # One unit for all: what comes later may be in another.
            column = column.cast(pa.timestamp("ns", getattr(kind, "tz", None)))
        column = column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise FormatError(
            f"column {name} is {kind}, and one of its numbers is too great", file=file
        ) from None
    numbers: Index = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers
