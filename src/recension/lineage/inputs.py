"""What came in at the sources of a query, of which parts can be had without looking at the rest.

A part is whole chains: an event with all its retractions. Rows keep their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EventBatch, Index, Mask, concat, empty, inserts, new_end
from recension.core.errors import StreamError
from recension.core.formats.decode import OPEN
from recension.core.formats.reader import StreamFiles
from recension.core.formats.stream_parts import FoundElements, StreamParts
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.rowhash import combine, row_hash
from recension.core.rows import Rows
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TICKS, OneKind, TimeKind, merge_kinds
from recension.core.validity import frontier_before
from recension.core.values import values_of
from recension.denote.lineage import Region
from recension.denote.order import value_order
from recension.gate.decode import Data, open_source
from recension.gate.gate import Gate
from recension.plan.node import Node, rebuild
from recension.plan.nodes import Finalize, Source, Table
from recension.plan.source import require_one_kind, sources_of
from recension.runners.finite import is_files, require_inputs, slices
from recension.runners.local import BATCH_SIZE, Session

SMALL: Final = 20_000
"""So many elements run whole: to find out what matters would take longer."""


@dataclass(frozen=True)
class SourceInput:
    """The valid elements of one source, in the order they came."""

    source: Source
    batch: EventBatch
    kind: TimeKind
    is_closed: bool = False
    """Does it end with a CTI at the end of time, as a plain table does?"""
    is_mended: bool = False
    """Does a step above mend its retractions? Then elements alone have no history."""
    places: Index | None = None
    """Of a part: where each element is in the whole, and then how long that is."""
    turns: Index | None = None
    """In which of its batches a run reads each element, and then how many batches there are."""

    def __len__(self) -> int:
        return len(self.batch)

    def part(self, region: Region) -> SourceInput:
        """An input that has all of a region: it is all here."""
        return self

    def place(self, row: int) -> int:
        """Where an element, or the end, is in the whole."""
        return row if self.places is None else int(self.places[row])

    def turn(self, row: int) -> int:
        """In which of its batches a run reads an element; after all of them the end."""
        return 0 if self.turns is None else int(self.turns[row])

    @cached_property
    def ctis(self) -> Index:
        """The rows that are CTIs."""
        return np.flatnonzero(self.batch.kind == CTI)

    def rows(self, region: Region) -> Index:
        """The rows of all events that were ever in a region."""
        batch, rows = self.batch, self._rows_where(region.where)
        rows = rows[batch.vs[rows] <= region.end]
        if region.start == BEGINNING or self.source.are_rows:
            return rows
        touches = new_end(batch)[rows] >= region.start
        if bool((batch.kind[rows] != 0).any()):
            part = batch.take(rows)
            chains = combine(row_hash(part.payload, len(part)), part.vs)
            touches = np.isin(chains, chains[touches])
        return rows[touches]

    def _rows_where(self, where: tuple[tuple[str, Any], ...]) -> Index:
        """The rows with these values, at all times: they are asked for again when more time is needed."""
        key = _key_of(where)
        if key not in self._found:
            keep = self.batch.is_data()
            for name, value in where:
                keep &= equal_rows(self.batch.payload.column(name), value)
            self._found[key] = np.flatnonzero(keep)
        return self._found[key]

    @cached_property
    def _found(self) -> dict[tuple[Any, ...], Index]:
        return {}

    def history(self, region: Region) -> History:
        """The events of a region as they are in the end; of rows with keys, the rows as they came."""
        part = self.batch.take(self.rows(region))
        if self.source.are_rows:
            return History(part.vs, part.ve, pa.Table.from_batches([part.payload]))
        if self.is_mended:
            return _touching(self._mended(part), region)
        return _touching(reconstitute([part], self.source.columns), region)

    def _mended(self, part: EventBatch) -> History:
        """What Finalize makes of elements that may be orphans or repeats."""
        try:
            return reconstitute([part], self.source.columns)
        except StreamError:
            plain = replace(self.source, external_ctis=False, since=0)
            session = Session({"mended": Finalize(plain, 2**63 - 1)}, history_limit=None)
            session.feed(plain.name, part)
            return replace(session.history(), time_type=TICKS)


def _key_of(where: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    return tuple((name, value_order(value)) for name, value in where)


def _touching(history: History, region: Region) -> History:
    return history.filter((history.vs <= region.end) & (history.ve >= region.start))


@dataclass(frozen=True)
class FileInput:
    """A source in files that are too large to read whole: of each region its part, and all CTIs."""

    source: Source
    stream: StreamParts
    read_all: Callable[[], tuple[EventBatch, Index, TimeKind, bool]]
    kind: TimeKind
    is_closed: bool
    batch_size: int

    def __len__(self) -> int:
        return len(self.stream)

    def history(self, region: Region) -> History:
        """The events of a region as they are in the end; of rows with keys, the rows as they came."""
        return self.part(region).history(region)

    def part(self, region: Region) -> SourceInput:
        """An input that has all of a region."""
        key = region.start, region.end, _key_of(region.where)
        if key not in self._parts:
            found = self._find(region.where)
            self._parts[key] = self._whole if found is None else self._read(found, region)
        return self._parts[key]

    def _read(self, found: FoundElements, region: Region) -> SourceInput:
        batch = found.batch
        near = batch.is_data() & (batch.vs <= region.end)
        if region.start > BEGINNING and not self.source.are_rows:
            # The elements of an event have one start, wherever it ends.
            starts = batch.vs[near & (new_end(batch) >= region.start)]
            near &= np.isin(batch.vs, starts)
        is_new = (batch.kind == CTI) & (batch.vs > frontier_before(batch, BEGINNING))
        # A CTI that does not advance is not counted as an element.
        stale = found.places[(batch.kind == CTI) & ~is_new]
        part = found.filter(near | is_new)
        places = np.append(part.places, len(self.stream))
        turns = self.stream.turns(places, self.batch_size)
        places -= np.searchsorted(stale, places)
        batch = self.stream.read(part)
        return SourceInput(self.source, batch, self.kind, self.is_closed, places=places, turns=turns)

    def _find(self, where: tuple[tuple[str, Any], ...]) -> FoundElements | None:
        """Times and places of the elements with these values, and of CTIs; None if some open and close."""
        key = _key_of(where)
        if key not in self._found:

            def keep(batch: EventBatch) -> Mask:
                wanted: Mask = batch.is_data()
                for name, value in where:
                    wanted &= equal_rows(batch.payload.column(name), value)
                wanted |= (batch.kind == CTI) | (batch.kind >= OPEN)
                return wanted

            found = self.stream.find([name for name, _ in where], keep)
            self._found[key] = None if bool((found.batch.kind >= OPEN).any()) else found
        return self._found[key]

    @cached_property
    def _found(self) -> dict[tuple[Any, ...], FoundElements | None]:
        return {}

    @cached_property
    def _parts(self) -> dict[tuple[Any, ...], SourceInput]:
        return {}

    @cached_property
    def _whole(self) -> SourceInput:
        batch, turns, _, _ = self.read_all()
        return SourceInput(self.source, batch, self.kind, self.is_closed, turns=turns)


Input: TypeAlias = SourceInput | FileInput


def read_inputs(
    plan: Node,
    inputs: Mapping[str, Data],
    *,
    close: bool = False,
    small: int = SMALL,
    batch_size: int = BATCH_SIZE,
) -> dict[str, Input]:
    """All inputs of a query in their order, checked as a run checks them; with ``close`` they are closed.

    Of files with more than ``small`` elements parts are read, if that can be done, and checked.
    """
    sources = sources_of(plan)
    require_inputs(inputs, sources)
    unchecked = Session({"query": plan}, history_limit=0).unchecked_sources
    times, found = OneKind(), dict[str, Input]()
    for name, data in inputs.items():
        source = sources[name]
        one = _as_one_stream(source)
        data = open_source(source, data, batch_size) if is_files(data) else data
        if name not in unchecked and isinstance(data, StreamFiles) and (parts := _parts(source, data, small)):
            read_all = partial(_read, source, data, True, times, batch_size)
            is_closed = data.is_table or close
            found[name] = FileInput(one, parts, read_all, data.kind, is_closed, data.batch_size)
            continue
        batch, turns, kind, is_table = _read(source, data, name not in unchecked, times, batch_size)
        found[name] = SourceInput(one, batch, kind, is_table or close, name in unchecked, turns=turns)
    require_one_kind(plan, {name: one.kind for name, one in found.items()})
    return found


def _parts(source: Source, files: StreamFiles, small: int) -> StreamParts | None:
    """Parts of files; None if they are few, or if what is dropped or moved depends on the whole."""
    if isinstance(source, Table) or source.on_violation != "raise":
        return None

    def check(rows: Rows) -> EventBatch:
        gate = Gate(source)
        return gate.admit(gate.judge(rows))

    parts = files.parts(check)
    return parts if parts is not None and len(parts) > small else None


def without_partitions(plan: Node) -> Node:
    """The same query over sources that are one stream each: what has been read is that."""

    def step(node: Node) -> Node:
        return _as_one_stream(node) if isinstance(node, Source) else node

    (new,) = rebuild([plan], step)
    return new


def _as_one_stream(source: Source) -> Source:
    if not (source.partition or source.sequence):
        return source
    return replace(source, partition=(), order=(), partitions=None, idle=None, run=None, sequence=())


def common_kind(inputs: Mapping[str, Input]) -> pa.DataType:
    """The type of the times of all inputs."""
    kind = reduce(merge_kinds, (one.kind for one in inputs.values()), None)
    return TICKS if kind is None else kind


def _read(
    source: Source, data: Data, checks: bool, times: OneKind, batch_size: int
) -> tuple[EventBatch, Index, TimeKind, bool]:
    """The elements, in which batch a run reads each, the kind of their times, and whether that is all."""
    gate = Gate(source, check_orphans=checks, times=times)
    if isinstance(data, StreamFiles):
        pieces: Iterable[Data] = data.rows(source.on_violation)
    else:
        # All partitions are known before a CTI counts.
        pieces = [data] if source.partition else slices(data, batch_size, source.name)
    parts, kind = list[EventBatch](), None
    for piece in pieces:
        admission = gate.judge(piece)
        parts.append(gate.admit(admission))
        kind = merge_kinds(kind, admission.given.kind)
    is_table = isinstance(source, Table) or gate.is_table
    turns = np.append(np.repeat(np.arange(len(parts)), [len(part) for part in parts]), len(parts))
    return (concat(parts) if parts else empty(source.columns)), turns, kind, is_table


def to_inserts(history: History) -> EventBatch:
    """A history as a stream in order."""
    order = np.lexsort((history.ve, history.vs))
    table = history.payload.combine_chunks()
    (payload,) = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    payload = payload.take(pa.array(order)) if payload.num_columns else payload
    return inserts(history.vs[order], history.ve[order], payload)


def equal_rows(column: Any, value: Any) -> Mask:
    """Where a column has a value; null equals null, NaN equals NaN."""
    if value is None:
        return _mask(pc.is_null(column))
    try:
        if value != value:
            return _mask(pc.is_nan(column))
        return _mask(pc.equal(column, pa.scalar(value, column.type)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError):
        wanted = value_order(value)
        return np.array([value_order(each) == wanted for each in values_of(column)], np.bool_)


def _mask(truth: Any) -> Mask:
    return np.asarray(pc.fill_null(truth, False).to_numpy(zero_copy_only=False), np.bool_)
