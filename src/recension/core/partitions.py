"""Sub-streams: one input that is several ordered streams, such as the partitions of a topic.

    rows of a push ── PartitionColumns.read ──> Placement ── Partitions.judge ──> PlacedRows ── Checker ──>

    placement = PartitionColumns(("partition",), ("offset",)).read(rows, file, first_row)
    placed = partitions.judge(batch, placement, now)    # looks, and changes nothing
    valid = checker.check(placed.batch, placed=placed)  # each row by the CTI of its own partition
    partitions.note(placed)                             # takes over what was judged
    partitions.cti                                      # of the whole source, to be given once, last

Assumes     the rows of one partition come in pushes whose ``order`` rises. ``now`` is the caller's clock, in
            microseconds; a replay that gives the same times gets the same answers.
Guarantees  the rows of a partition stand by their order. The CTI before each row is the last one of its own
            partition, and not before that of the source. The CTI of the source is the least over the
            partitions that count, and never falls. All partitions of a push are known before a CTI counts.
            Who counts: all that have spoken and are not idle; with ``expected``, none until so many have
            spoken, or ``idle`` has passed since the start. Of idle ones alone the furthest decides. A new one
            joins at the source's CTI. One whose CTI is the end of time has ended and holds nobody back.
State       per partition: CTI, latest start, highest order, when it last spoke, what was dropped; per run and
            partition the highest sequence.
Cost        O(n) in the rows of a push that are in order, O(n log n) else; a few steps for each partition.
Source      issue on sub-streams; Flink's rule for inputs that are all idle; rulings P1 to P12.

A shard of many sees only some rows of a partition. What `summarize` says of the rows of all shards is given
to `judge` as ``heard``: so every shard knows every partition, how far it is and when it spoke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import FormatError, RecensionError, StreamError, suggest_name
from recension.core.rowhash import Hashes, column_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind

REPEATED: Final = "a repeat of an element that came before"
UNORDERED: Final = "does not come after what its partition has sent"
SEPARATOR: Final = "/"
PartitionName: TypeAlias = Any
"""A value, or a tuple of values where several columns tell partitions apart."""
_NOTHING: Final = np.zeros(0, np.int64)
_SMALL: Final = 1 << 16


def name_of(partition: PartitionName) -> str:
    """The name of a partition, as its columns would give it.

    >>> name_of(2), name_of(("eu", 2))
    ('2', 'eu/2')
    """
    values = partition if isinstance(partition, tuple) else (partition,)
    if not values or any(value is None for value in values):
        raise RecensionError("partition: null names no partition")
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
    return texts, code.to_numpy(zero_copy_only=False)


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
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    try:
        column = column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise FormatError(
            f"column {name} is {kind}, and one of its numbers is too great", file=file
        ) from None
    numbers: Index = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition is."""

    name: str
    cti: int
    """Its last CTI; it may be behind that of the source if it was idle then."""
    latest_start: int
    is_idle: bool
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What of it was dropped, moved or skipped, by reason."""

    @property
    def has_ended(self) -> bool:
        """Is nothing more to come of it?"""
        return self.cti == FOREVER


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows in the order of their partitions, and how each stands in its own; nothing has changed yet.

    ``before`` is the CTI before each row, ``salt`` tells equal events of two partitions apart, ``row`` is
    where each row stood among those that were given.
    """

    batch: EventBatch
    partition: Index
    before: Ticks
    row: Index
    names: Sequence[str]
    salts: Hashes
    cti: int
    """The CTI of the source after these rows."""
    next: _State
    sequences: Mapping[tuple[str, str], tuple[int, ...]]
    dropped: Sequence[tuple[str, EventBatch | None, Index]] = ()
    """By reason, what was left out here, and how many of each partition; repeats are counted only."""

    @property
    def salt(self) -> Hashes:
        """What to mix into the identity of each row's event."""
        return self.salts[self.partition]

    def take(self, rows: Mask) -> PlacedRows:
        """Without some of the rows; the batch is the caller's."""
        return replace(self, partition=self.partition[rows], before=self.before[rows], row=self.row[rows])

    def describe(self, at: int) -> str:
        """The partition of a row, for messages."""
        name = self.names[self.partition[at]]
        return f"partition {name}: " if name else ""


@dataclass(frozen=True, slots=True)
class _State:
    """The partitions, in the order in which they spoke first."""

    names: tuple[str, ...] = ()
    cti: Ticks = field(default_factory=lambda: _NOTHING)
    latest: Ticks = field(default_factory=lambda: _NOTHING)
    spoke: Ticks = field(default_factory=lambda: _NOTHING)
    order: tuple[Index, ...] = ()
    has_order: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    source_cti: int = BEGINNING
    promised: int = BEGINNING
    """What was promised of all partitions, also those that have not spoken."""
    began: int | None = None
    now: int = BEGINNING

    def join(self, names: Sequence[str]) -> _State:
        """With partitions that are new: they join at the source's CTI."""
        if not names:
            return self
        more = len(names)
        return replace(
            self,
            names=(*self.names, *names),
            cti=np.append(self.cti, np.full(more, self.source_cti)),
            latest=np.append(self.latest, np.full(more, BEGINNING)),
            spoke=np.append(self.spoke, np.full(more, self.now)),
            order=tuple(np.append(column, np.zeros(more, np.int64)) for column in self.order),
            has_order=np.append(self.has_order, np.zeros(more, np.bool_)),
        )

    def at(self, now: int) -> _State:
        """The same, at a later time: a clock that is put back does not count."""
        now = max(now, self.now)
        return replace(self, now=now, began=now if self.began is None else self.began)


class Partitions:
    """The sub-streams of one source.

    ``expected`` partitions must have spoken before a CTI counts. A partition that has not spoken for ``idle``
    microseconds holds the others back no more. With ``delay`` each one's CTI stays so far behind its latest
    start.
    """

    def __init__(
        self, *, expected: int | None = None, idle: int | None = None, delay: int | None = None
    ) -> None:
        self._expected, self._idle, self._delay = expected, idle, delay
        self._state = _State()
        self._number: dict[str, int] = {}
        self._salts: Hashes = np.zeros(0, np.uint64)
        self._sequences: dict[tuple[str, str], tuple[int, ...]] = {}
        self._dropped: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._state.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions that have spoken, in the order in which they did."""
        return self._state.names

    @property
    def cti(self) -> int:
        """The CTI of the source."""
        return self._state.source_cti

    @property
    def is_clocked(self) -> bool:
        """Can time alone move the CTI?"""
        return self._idle is not None

    def begin(self, now: int) -> None:
        """The source is there from now on, though nothing has come yet."""
        self._state = self._state.at(now)

    def judge(
        self,
        batch: EventBatch,
        placement: Placement,
        now: int = 0,
        *,
        heard: pa.Table | None = None,
        is_strict: bool = True,
        first_row: int = 1,
        file: str | None = None,
        kind: TimeKind = None,
    ) -> PlacedRows:
        """Put rows in their places; repeats are left out. Nothing changes.

        With ``is_strict`` a row that does not come after what its partition has sent is an error; else it is
        left out as well. ``heard`` is what `summarize` says of the rows of all shards, these included.
        """
        state, placement = self._state.at(now), placement.without_unused()
        rows = _Rows.of(batch, placement, self._numbers(placement.names, state))
        state = state.join([name for name in placement.names if name not in self._number])
        rows = rows.in_order()
        repeats, sequences = self._find_repeats(rows, state)
        disordered = _find_disordered(rows, repeats, state)
        if is_strict and bool(disordered.any()):
            raise _describe_disorder(rows, disordered, state, first_row, file, kind)
        after = _advance(state, rows, repeats | disordered, heard, self._delay)
        dropped = _leave_out(rows, repeats, disordered, len(after.names))
        rows = rows.filter(~(repeats | disordered))
        after = replace(after, source_cti=self._source_cti(after))
        before = np.maximum(rows.ctis_before(state.cti), state.source_cti)
        salts = self._salts_of(after.names)
        return PlacedRows(
            *(rows.batch, rows.partition, before, rows.row, after.names, salts),
            *(after.source_cti, after, sequences, dropped),
        )

    def note(self, placed: PlacedRows) -> None:
        """Take over what was judged last."""
        self._sequences |= placed.sequences
        self._take(placed.next)
        for reason, _, counts in placed.dropped:
            self.count(reason, counts)

    def count(self, reason: str, counts: Index) -> None:
        """Count what was dropped or moved, by partition."""
        for number in np.flatnonzero(counts):
            name = self._state.names[number]
            self._dropped.setdefault(name, Counter())[reason] += int(counts[number])

    def tick(self, now: int) -> int:
        """The CTI of the source when it is so late: who has been idle for long does not count."""
        state = self._state.at(now)
        self._take(replace(state, source_cti=self._source_cti(state)))
        return self.cti

    def advance(self, t: int, partition: str | None = None, now: int = 0) -> int:
        """The CTI of the source after a promise for one partition, or for all, those to come included."""
        state = self._state.at(now)
        if partition is None:
            state = replace(state, cti=np.maximum(state.cti, t), promised=max(state.promised, t))
        else:
            state = state.join([] if partition in self._number else [partition])
            at = np.array([name == partition for name in state.names])
            state = replace(
                state,
                cti=np.where(at, np.maximum(state.cti, t), state.cti),
                spoke=np.where(at, state.now, state.spoke),
            )
        self._take(replace(state, source_cti=self._source_cti(state)))
        return self.cti

    def cti_of(self, partition: str) -> int:
        """How far a partition is: its own CTI, but not before that of the source."""
        number = self._number.get(partition)
        own = BEGINNING if number is None else int(self._state.cti[number])
        return max(own, self._state.source_cti)

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is, by name."""
        state, idle = self._state, self._is_idle(self._state)
        rows = zip(state.names, state.cti.tolist(), state.latest.tolist(), idle.tolist(), strict=True)
        found = [PartitionProgress(*row, dict(self._dropped.get(row[0], {}))) for row in rows]
        return sorted(found, key=lambda one: (len(one.name), one.name))

    def held_back_by(self) -> str | None:
        """The partition whose CTI is the source's, while another is further; or what the source waits for."""
        state = self._state
        if state.source_cti == FOREVER:
            return None
        if (missing := self._missing(state)) > 0:
            return f"{missing} more to speak"
        counts = ~self._is_idle(state) & (state.cti < FOREVER)
        if not counts.any():
            return None
        least = np.flatnonzero(counts & (state.cti == state.cti[counts].min()))
        is_alone = bool((state.cti == state.cti[least[0]]).all())
        return None if is_alone else state.names[int(least[0])]

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as small tables."""
        state = self._state
        order = {f"order_{i}": column for i, column in enumerate(state.order)}
        partitions = {
            "name": pa.array(state.names, pa.string()),
            "cti": state.cti,
            "latest_start": state.latest,
            "spoke": state.spoke,
            "has_order": state.has_order,
        }
        source = {"cti": [state.source_cti], "promised": [state.promised], "now": [state.now]}
        counted = [(name, reason, n) for name, of in self._dropped.items() for reason, n in of.items()]
        return {
            "partitions": pa.table(partitions | order),
            "partitions_source": pa.table({**source, "began": pa.array([state.began], pa.int64())}),
            "partitions_dropped": pa.table(
                {
                    "name": pa.array([name for name, _, _ in counted], pa.string()),
                    "reason": pa.array([reason for _, reason, _ in counted], pa.string()),
                    "n": pa.array([n for _, _, n in counted], pa.int64()),
                }
            ),
            "sequences": pa.table(
                {
                    "run": pa.array([run for run, _ in self._sequences], pa.string()),
                    "partition": pa.array([name for _, name in self._sequences], pa.string()),
                    "sequence": pa.array(list(self._sequences.values()), pa.list_(pa.int64())),
                }
            ),
        }

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        table, source = chunks["partitions"], chunks["partitions_source"].to_pylist()[0]
        orders = [name for name in table.column_names if name.startswith("order_")]
        self._take(
            _State(
                names=tuple(table["name"].to_pylist()),
                cti=table["cti"].to_numpy(),
                latest=table["latest_start"].to_numpy(),
                spoke=table["spoke"].to_numpy(),
                order=tuple(table[name].to_numpy() for name in orders),
                has_order=table["has_order"].to_numpy(),
                source_cti=source["cti"],
                promised=source["promised"],
                began=source["began"],
                now=source["now"],
            )
        )
        self._dropped = {}
        for row in chunks["partitions_dropped"].to_pylist():
            self._dropped.setdefault(row["name"], Counter())[row["reason"]] = row["n"]
        rows = chunks["sequences"].to_pylist()
        self._sequences = {(row["run"], row["partition"]): tuple(row["sequence"]) for row in rows}

    def _take(self, state: _State) -> None:
        if state.names != self._state.names:
            self._number = {name: number for number, name in enumerate(state.names)}
            self._salts = self._salts_of(state.names)
        self._state = state

    def _salts_of(self, names: Sequence[str]) -> Hashes:
        if len(names) == len(self._salts) and tuple(names) == self._state.names:
            return self._salts
        return column_hash(pa.array(names, pa.string()))

    def _numbers(self, names: Sequence[str], state: _State) -> Index:
        """The numbers of partitions; new ones are numbered on."""
        following = len(state.names)
        numbers = []
        for name in names:
            number = self._number.get(name)
            numbers.append(following if number is None else number)
            following += number is None
        return np.array(numbers, np.int64)

    def _find_repeats(
        self, rows: _Rows, state: _State
    ) -> tuple[Mask, dict[tuple[str, str], tuple[int, ...]]]:
        """Which rows have a sequence not above all before it of their run and partition; and the highest."""
        placement, is_repeat = rows.placement, np.zeros(len(rows), np.bool_)
        if not placement.sequence or not len(rows):
            return is_repeat, {}
        runs = np.zeros(len(rows), np.int64) if placement.run is None else placement.run
        group = runs * len(state.names) + rows.partition
        at = _stable_order(group, int(group.max()) + 1)
        if placement.numbered is not None:
            at = at[placement.numbered[at]]
        if not len(at):
            return is_repeat, {}
        first = _firsts(group[at])
        keys = [
            (placement.runs[g // len(state.names)], state.names[g % len(state.names)])
            for g in group[at[first]].tolist()
        ]
        width = len(placement.sequence)
        known = [self._sequences.get(key) for key in keys]
        for key, values in zip(keys, known, strict=True):
            if values is not None and len(values) != width:
                raise RecensionError(
                    f"the sequence of run {key[0]!r} had {len(values)} numbers before, and has {width} now"
                )
        floor = np.array([values or (np.iinfo(np.int64).min,) * width for values in known], np.int64)
        columns = tuple(column[at] for column in placement.sequence)
        rank, least = _rank(columns, tuple(floor.T), np.array([values is not None for values in known]))
        top = _running_max(rank, first)
        sizes = np.diff(np.append(first, len(at)))
        before = np.append(np.int64(-1), top)[:-1]
        before[first] = -1
        before = np.maximum(before, np.repeat(least, sizes))
        is_repeat[at] = rank <= before
        last = np.append(first[1:], len(at)) - 1
        highest = {}
        for key, values, end, start in zip(keys, known, last.tolist(), first.tolist(), strict=True):
            best = start + int(np.argmax(rank[start : end + 1]))
            mine = tuple(int(column[best]) for column in columns)
            highest[key] = mine if values is None else max(mine, values)
        return is_repeat, highest

    def _missing(self, state: _State) -> int:
        """How many partitions are still waited for."""
        if self._expected is None:
            return 0
        has_waited = self._idle is not None and state.now - (state.began or 0) >= self._idle
        return 0 if has_waited else self._expected - len(state.names)

    def _is_idle(self, state: _State) -> Mask:
        if self._idle is None:
            return np.zeros(len(state.names), np.bool_)
        idle: Mask = state.now - state.spoke >= self._idle
        return idle

    def _source_cti(self, state: _State) -> int:
        least = max(state.source_cti, state.promised)
        if not len(state.names) or self._missing(state) > 0:
            return least
        is_open = state.cti < FOREVER
        if not is_open.any():
            # All that spoke have ended; who has not spoken yet still may.
            is_complete = self._expected is None or len(state.names) >= self._expected
            return FOREVER if is_complete else least
        counts = is_open & ~self._is_idle(state)
        found = state.cti[counts].min() if counts.any() else state.cti[is_open].max()
        return max(least, int(found))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with their partitions, and where they stood among those that were given.

    ``at`` lists them partition by partition, in the order in which they stand; ``first`` is where each
    partition begins there.
    """

    batch: EventBatch
    placement: Placement
    partition: Index
    row: Index
    at: Index
    first: Index

    @staticmethod
    def of(batch: EventBatch, placement: Placement, numbers: Index) -> _Rows:
        if len(batch) != len(placement):
            raise RecensionError(f"{len(batch)} rows, but places of {len(placement)}")
        return _Rows.make(batch, placement, numbers[placement.code], np.arange(len(batch)))

    @staticmethod
    def make(batch: EventBatch, placement: Placement, partition: Index, row: Index) -> _Rows:
        at = _stable_order(partition, int(partition.max(initial=0)) + 1)
        return _Rows(batch, placement, partition, row, at, _firsts(partition[at]))

    def __len__(self) -> int:
        return len(self.partition)

    def filter(self, keep: Mask) -> _Rows:
        if bool(keep.all()):
            return self
        batch, places = self.batch.filter(keep), self.placement.take(keep)
        return _Rows.make(batch, places, self.partition[keep], self.row[keep])

    def in_order(self) -> _Rows:
        """Each partition's rows by its order, in the very places that its rows have among all."""
        columns = [column[self.at] for column in self.placement.order]
        if not columns or _are_sorted(columns, self.first):
            return self
        order = np.lexsort((*reversed(self.placement.order), self.partition))
        rows = np.empty(len(self), np.int64)
        rows[self.at] = order
        return replace(
            self, batch=self.batch.take(rows), placement=self.placement.take(rows), row=self.row[rows]
        )

    def sizes(self) -> Index:
        """How many rows each partition has that is there."""
        return np.diff(np.append(self.first, len(self)))

    def ctis_before(self, known: Ticks) -> Ticks:
        """The last CTI of its partition before each row."""
        before = _padded(known, self.partition, BEGINNING)
        is_cti = (self.batch.kind == CTI)[self.at]
        at = np.flatnonzero(is_cti)
        if not len(at):
            return before
        group = np.repeat(np.arange(len(self.first)), self.sizes())
        top = _running_max(self.batch.vs[self.at[at]], _firsts(group[at]))
        # The number of CTIs before each row, in the order of partitions; the last must be of the same one.
        last = np.searchsorted(at, np.arange(len(self))) - 1
        is_own = (last >= 0) & (group[at[last]] == group)
        found = np.where(is_own, top[last], np.int64(BEGINNING))
        before[self.at] = np.maximum(before[self.at], found)
        return before


def _padded(values: Index, numbers: Index, default: int) -> Index:
    """The values at the given numbers, or the default where they do not go so far."""
    more = int(numbers.max(initial=-1)) + 1 - len(values)
    found: Index = (np.append(values, np.full(more, default)) if more > 0 else values)[numbers]
    return found


def _find_disordered(rows: _Rows, repeats: Mask, state: _State) -> Mask:
    """Which rows do not come after what their partition has sent, or are not alone in their place."""
    wrong = np.zeros(len(rows), np.bool_)
    if not rows.placement.order or not len(rows):
        return wrong
    at = rows.at[~repeats[rows.at]]
    columns, partition = [column[at] for column in rows.placement.order], rows.partition[at]
    same = np.append(False, partition[1:] == partition[:-1])[: len(at)]
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    if state.order:
        if len(state.order) != len(columns):
            raise RecensionError(
                f"the order had {len(state.order)} columns before, and has {len(columns)} now"
            )
        known = [column[partition] for column in state.order]
        same |= state.has_order[partition] & ~_is_greater(columns, known)
    wrong[at] = same
    return wrong


def _describe_disorder(
    rows: _Rows, wrong: Mask, state: _State, first_row: int, file: str | None, kind: TimeKind
) -> StreamError:
    at = int(np.flatnonzero(wrong)[np.argmin(rows.row[wrong])])
    number = int(rows.partition[at])
    name, own = state.names[number], "/".join(str(column[at]) for column in rows.placement.order)
    after = "/".join(str(column[number]) for column in state.order) if state.has_order[number] else None
    known = f"order {own} after {after}" if after is not None else f"order {own} twice"
    if (
        after is not None
        and _is_greater(
            [column[[at]] for column in rows.placement.order], [column[[number]] for column in state.order]
        ).all()
    ):
        known = f"order {own} twice"
    element = rows.batch.slice(at, at + 1).to_elements(kind)[0] if rows.batch.kind[at] <= CTI + 1 else ""
    place = f"partition {name}: " if name else ""
    return StreamError(
        f"{place}{UNORDERED}: {known}{f': {element}' if element != '' else ''}",
        file=file,
        row=first_row + int(rows.row[at]),
    )


def _leave_out(
    rows: _Rows, repeats: Mask, disordered: Mask, partitions: int
) -> list[tuple[str, EventBatch | None, Index]]:
    found: list[tuple[str, EventBatch | None, Index]] = []
    for reason, mask in ((REPEATED, repeats), (UNORDERED, disordered)):
        if bool(mask.any()):
            kept = rows.batch.filter(mask) if reason == UNORDERED else None
            found.append((reason, kept, np.bincount(rows.partition[mask], minlength=partitions)))
    return found


def _advance(state: _State, rows: _Rows, ignored: Mask, heard: pa.Table | None, delay: int | None) -> _State:
    """The partitions after these rows, and after what is heard of others."""
    cti, latest, spoke = state.cti.copy(), state.latest.copy(), state.spoke.copy()
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if len(rows):
        present = rows.partition[rows.at[rows.first]]
        spoke[present] = state.now
        is_cti, counts = rows.batch.kind == CTI, ~ignored
        starts = np.where(is_cti | ignored, np.int64(BEGINNING), rows.batch.vs)[rows.at]
        latest[present] = np.maximum(latest[present], np.maximum.reduceat(starts, rows.first))
        at = np.flatnonzero(is_cti & counts)
        np.maximum.at(cti, rows.partition[at], rows.batch.vs[at])
        if rows.placement.order:
            last = rows.at[np.append(rows.first[1:], len(rows)) - 1]
            tops = [column[last] for column in rows.placement.order]
            order, has_order = _raise_orders(order, has_order, present, tops)
    after = replace(state, cti=cti, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)
    after = after if heard is None else _hear(after, heard)
    return (
        after if delay is None else replace(after, cti=np.maximum(after.cti, ticks.add(after.latest, -delay)))
    )


def _raise_orders(
    order: list[Index], has_order: Mask, numbers: Index, tops: list[Index]
) -> tuple[list[Index], Mask]:
    """The highest order of each partition, where these numbers have got to these."""
    order = order or [np.zeros(len(has_order), np.int64) for _ in tops]
    is_higher = ~has_order[numbers] | _is_greater(tops, [column[numbers] for column in order])
    for column, top in zip(order, tops, strict=True):
        column[numbers[is_higher]] = top[is_higher]
    has_order[numbers] = True
    return order, has_order


def summarize(batch: EventBatch, placement: Placement) -> pa.Table:
    """What other shards must know of rows: a row a partition; tables of several tasks are put together."""
    rows = _Rows.of(batch, placement, np.arange(len(placement.names))).in_order()
    present = rows.partition[rows.at[rows.first]] if len(rows) else _NOTHING
    starts = np.where(batch.kind == CTI, np.int64(BEGINNING), batch.vs) if len(rows) else _NOTHING
    starts = starts[rows.row][rows.at]
    last = rows.at[np.append(rows.first[1:], len(rows)) - 1] if len(rows) else _NOTHING
    order = {f"order_{i}": column[last] for i, column in enumerate(rows.placement.order)}
    latest = np.maximum.reduceat(starts, rows.first) if len(rows) else _NOTHING
    names = pa.array([placement.names[number] for number in present], pa.string())
    return pa.table({"name": names, "latest_start": latest, **order})


def _hear(state: _State, heard: pa.Table) -> _State:
    """After what is heard of the rows of all shards: their partitions have spoken."""
    names: list[str] = heard["name"].to_pylist()
    known = {name: number for number, name in enumerate(state.names)}
    state = state.join([name for name in dict.fromkeys(names) if name not in known])
    known = {name: number for number, name in enumerate(state.names)}
    numbers = np.array([known[name] for name in names], np.int64)
    latest, spoke = state.latest.copy(), state.spoke.copy()
    np.maximum.at(latest, numbers, heard["latest_start"].to_numpy())
    spoke[numbers] = state.now
    columns = [name for name in heard.column_names if name.startswith("order_")]
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if columns and len(names):
        tops = [heard[name].to_numpy() for name in columns]
        # Several tasks may have had rows of one partition: the highest is put in last.
        sort = np.lexsort((*reversed(tops), numbers))
        last = np.append(numbers[sort][1:] != numbers[sort][:-1], True)
        chosen = sort[last]
        order, has_order = _raise_orders(order, has_order, numbers[chosen], [top[chosen] for top in tops])
    return replace(state, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)


def _stable_order(numbers: Index, count: int) -> Index:
    """As a stable `argsort` of numbers below ``count``."""
    if len(numbers) == 0 or bool((numbers[1:] >= numbers[:-1]).all()):
        return np.arange(len(numbers))
    small = numbers.astype(np.uint16) if count <= _SMALL else numbers
    order: Index = np.argsort(small, kind="stable")
    return order


def _firsts(sorted_numbers: Index) -> Index:
    """Where each run of equal numbers begins."""
    if not len(sorted_numbers):
        return _NOTHING
    return np.flatnonzero(np.append(True, sorted_numbers[1:] != sorted_numbers[:-1]))


def _is_greater(left: Sequence[Index], right: Sequence[Index]) -> Mask:
    """Where the one is greater than the other; the first of several columns that differ decides."""
    greater = np.zeros(len(left[0]), np.bool_)
    for one, other in zip(reversed(left), reversed(right), strict=True):
        greater = (one > other) | ((one == other) & greater)
    return greater


def _are_sorted(columns: Sequence[Index], first: Index) -> bool:
    """Do rows never fall within a group?"""
    falls = _is_greater([column[:-1] for column in columns], [column[1:] for column in columns])
    falls[first[1:] - 1] = False
    return not bool(falls.any())


def _rank(columns: tuple[Index, ...], floors: tuple[Index, ...], has_floor: Mask) -> tuple[Index, Index]:
    """Numbers from 0 by which rows and floors compare as their columns do; -1 for a floor that is none."""
    if len(columns) == 1:
        values, order = np.unique(np.concatenate([columns[0], floors[0]]), return_inverse=True)
        del values
    else:
        both = [np.concatenate([column, floor]) for column, floor in zip(columns, floors, strict=True)]
        sort = np.lexsort(tuple(reversed(both)))
        is_new = np.zeros(len(sort), np.bool_)
        for column in both:
            is_new[1:] |= column[sort][1:] != column[sort][:-1]
        order = np.empty(len(sort), np.int64)
        order[sort] = np.cumsum(is_new)
    size = len(columns[0])
    return order[:size], np.where(has_floor, order[size:], -1)


def _running_max(values: Index, first: Index) -> Index:
    """The largest value so far in each group; ``first`` is where the groups begin."""
    if len(first) <= 1:
        return np.maximum.accumulate(values) if len(values) else values
    low, high = int(values.min()), int(values.max())
    sizes = np.diff(np.append(first, len(values)))
    if (high - low + 1) * len(first) >= 1 << 62:
        distinct, rank = np.unique(values, return_inverse=True)
        found: Index = distinct[_running_max(rank, first)]
        return found
    # One running maximum serves all groups: each is lifted above all that the groups before it reached.
    lift = np.repeat(np.arange(len(first)) * (high - low + 1), sizes)
    top: Index = np.maximum.accumulate(values - low + lift) - lift + low
    return top
