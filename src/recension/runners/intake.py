"""What comes in at a source: any tabular data or list of elements, as checked batches.

The same rules as for files hold (control columns, plain tables, policies), and messages count rows from
the first one ever pushed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core import frames
from recension.core.batch import (
    CTI,
    RETRACT,
    EventBatch,
    Index,
    concat,
    cti,
    empty,
    from_elements,
    null_payload,
)
from recension.core.errors import (
    FormatError,
    RecensionError,
    StreamError,
    TimeError,
    first_line,
    suggest_name,
)
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract, kind_of_element
from recension.core.formats.columns import KIND, VE, VS, Layout, TimeColumns, describe_missing, layout_of
from recension.core.formats.decode import DecodedRows, Decoder
from recension.core.formats.reader import StreamReader
from recension.core.formats.stream_files import sort_rows
from recension.core.history import History
from recension.core.openclose import OpenClose, TranslatedBatch
from recension.core.partitions import PartitionProgress, PlacedRows
from recension.core.placement import Placement, join_placements
from recension.core.records import record
from recension.core.ticks import BEGINNING, TICKS_PER, TimeUnit
from recension.core.time_kind import NAIVE, TICKS, OneKind, TimeKind, describe_time
from recension.core.validity import Checker, counts_from_table, counts_to_table
from recension.core.values import MISFITS, describe_misfit
from recension.operators.base import Chunks
from recension.operators.state.chunks import take_prefix
from recension.plan.consistency import AdvanceTime
from recension.plan.source import Source, describe_unknown_source
from recension.runners.paced_partitions import PacedPartitions
from recension.runners.result import Position, Reading, Result
from recension.runners.sub_streams import Arrival, SiftedRows, SubStreams

# An Arrow table or batch, a pandas or polars frame, a History, a Result, or elements such as Insert(...).
Data: TypeAlias = Any
NO_PARTITION: Final = Arrival()
_EPOCHS: Final[tuple[tuple[TimeUnit, str, int], ...]] = (
    ("s", "seconds", 10**9),
    ("ms", "milliseconds", 10**12),
)
_WITH_PAYLOAD: Final = (Insert, Retract)
_ELEMENTS: Final = (*_WITH_PAYLOAD, Cti, ExternalCti)


@record
class ReadRows:
    """The elements of data, what they were made of, and where they stand if columns say that."""

    batch: EventBatch
    rows: int
    decoded: list[DecodedRows] = field(default_factory=list)
    layout: Layout | None = None
    kind: TimeKind = None
    placement: Placement | None = None


@record
class Push:
    """Data that was looked at and could be taken in; nothing has changed yet."""

    translated: TranslatedBatch
    rows: int
    first_row: int
    decoded: list[DecodedRows] = field(default_factory=list)
    layout: Layout | None = None
    kind: TimeKind = None
    reading: Reading | None = None
    sifted: SiftedRows | None = None
    arrival: Arrival = NO_PARTITION

    @property
    def batch(self) -> EventBatch:
        """The elements, without opens and closes."""
        return self.translated.batch

    @property
    def placed(self) -> PlacedRows | None:
        """How they stand in sub-streams, if there are any."""
        placed, kept = None if self.sifted is None else self.sifted.placed, self.translated.kept
        return placed if placed is None or kept is None else placed.take(kept)

    @property
    def cti(self) -> int:
        """The last CTI that it brings to the source."""
        if (placed := self.placed) is not None:
            return placed.cti
        if self.batch.last_kind < CTI:
            return BEGINNING
        return int(self.batch.vs[self.batch.kind == CTI].max(initial=BEGINNING))

    @property
    def stream(self) -> EventBatch:
        """The elements, with the one CTI of the source in the place of those of its sub-streams."""
        if (placed := self.placed) is None:
            return self.batch
        return concat([self.batch.filter(self.batch.kind != CTI), cti(placed.cti, self.batch.schema)])

    @property
    def is_only_ctis(self) -> bool:
        """Are there CTIs and nothing else?"""
        if not len(self.batch):
            return self.arrival.promise is not None
        return self.batch.last_kind >= CTI and bool((self.batch.kind == CTI).all())


class Intake:
    """Turns what is pushed to one source into valid elements, all of a push or nothing of it."""

    def __init__(
        self,
        source: Source,
        *,
        check_orphans: bool = True,
        times: OneKind | None = None,
        in_units: bool = False,
    ) -> None:
        """``in_units``: the query measures time in units; then its times must be what they look like."""
        self._source, self._times = source, times or OneKind()
        # Only what the user's own column of starts holds can be of another unit in silence.
        self._must_be_ticks = in_units and source.start is not None and source.times is None
        self._decoder = Decoder(source.columns, source.on_violation)
        self._openclose = OpenClose(source.on_violation, once=source.closes_once)
        # A source declared free of retractions needs no memory of what could be retracted.
        self._takes_retractions = not (source.declared.is_insert_only or source.are_rows)
        orphans = check_orphans and self._takes_retractions
        self._checker = Checker(source.on_violation, orphans=orphans, lateness=not source.are_rows)
        self._sub_streams = SubStreams(source)
        self._paced: dict[int, PacedPartitions] = {}
        self._given: dict[int, EventBatch] = {}
        # How far the answers are here whose readings were pushed; None where that is not known or needed.
        self._reached: set[Position] | None = set() if check_orphans else None
        self.rows = 0
        self._counted_before: Counter[str] = Counter()
        self._reader: StreamReader | None = None
        self.is_table = False

    @property
    def columns(self) -> pa.Schema:
        """The columns of the source."""
        return self._source.columns

    @property
    def counts(self) -> Counter[str]:
        """Elements left out, moved or ignored so far, by reason."""
        own = self._counted_before + self._decoder.counts + self._openclose.counts + self._checker.counts
        own += self._sub_streams.counts
        return own if self._reader is None else own + self._reader.counts

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking, with the reason; forgets them."""
        self._decoder.dropped.clear()  # rows of which no element could be made: counted only
        read = [] if self._reader is None else self._reader.take_dropped()
        own = (self._sub_streams, self._openclose, self._checker)
        return [dropped for part in own if part.dropped for dropped in part.take_dropped()] + read

    @property
    def takes_all(self) -> bool:
        """Is a push taken in as it is, or else refused?"""
        return self._source.on_violation == "raise"

    @property
    def is_closed(self) -> bool:
        """Is nothing to come any more?"""
        return self._checker.is_closed

    @property
    def cti(self) -> int:
        """The last CTI that came."""
        return self._checker.frontier

    def forget_before(self, t: int) -> None:
        """Changes to events that ended before ``t`` come to nothing: they need not be checked."""
        self._checker.forget_before(t)
        self._openclose.forget_before(t)
        if self._reader is not None:
            self._reader.forget_before(t)

    def state_rows(self) -> int:
        """How many events the checks remember."""
        own = self._checker.state_rows() + len(self._openclose)
        return own if self._reader is None else own + self._reader.check_rows()

    def state_bytes(self) -> int:
        """How much memory they take."""
        own = self._checker.state_bytes() + self._openclose.state_bytes()
        return own if self._reader is None else own + self._reader.check_bytes()

    def adopt(self, reader: StreamReader) -> None:
        """Elements come from a reader with checks of its own: take over what it knows of them."""
        self._times.note(reader.kind, self._source.name)
        self.is_table = reader.is_table
        if self._reader is not None and self._reader is not reader:
            self._counted_before += self._reader.counts
        self._reader, self._reached = reader, None

    def refuse_counts(self, batch: EventBatch, kind: TimeKind) -> None:
        """Refuse ticks that look like seconds or milliseconds since 1970, if the query counts on ticks."""
        if not (self._must_be_ticks and kind == TICKS and len(batch)):
            return
        starts = batch.vs[batch.is_data()]
        for unit, units, least in _EPOCHS:
            if len(starts) and least <= int(starts.min()) and int(starts.max()) < 10 * least:
                first, name = int(starts[0]), self._source.start
                readings = [
                    f"{describe_time(first * factor, NAIVE)} if it counts {what}"
                    for what, factor in (("microseconds", 1), (units, TICKS_PER[unit]))
                ]
                raise TimeError(
                    f"{self._source.name}: column {name}: {first} is {' and '.join(readings)}, and the query "
                    f"measures time in units: say times={unit!r} or times='us', or 'ticks' if it is neither"
                )

    def judge(self, data: Data, arrival: Arrival = NO_PARTITION) -> Push:
        """Look at the whole of the next data; what cannot be taken in is an error. Nothing changes."""
        if not isinstance(data, Result):
            return self._judge(data, arrival)
        self._require_earlier(data.reading)
        return replace(self._judge(data, arrival), reading=data.reading)

    def _judge(self, data: Data, arrival: Arrival) -> Push:
        if isinstance(data, Mapping):
            return self._judge_parts(data, arrival)
        read = self._read(data, arrival, self.rows + 1)
        placement = self._sub_streams.name_rows(len(read.batch), read.placement, arrival.partition)
        return self._make_push(read, placement, arrival)

    def _judge_parts(self, parts: Mapping[Any, Data], arrival: Arrival) -> Push:
        """Data by partition."""
        if arrival.partition is not None:
            raise RecensionError(
                f"{self._source.name}: give the data by partition, or pass partition=, not both"
            )
        first, found, places = self.rows + 1, list[ReadRows](), list[Placement]()
        for partition, data in parts.items():
            read = self._read(data, replace(arrival, partition=partition), first)
            placement = self._sub_streams.name_rows(len(read.batch), read.placement, partition)
            if placement is not None:
                places.append(placement)
            found.append(read)
            first += read.rows
        joined = self._join_parts(found)
        return self._make_push(joined, join_placements(places) if places else None, arrival)

    def _join_parts(self, parts: list[ReadRows]) -> ReadRows:
        times = self._times.copy()
        for part in parts:
            times.note(part.kind, self._source.name)
        batch = self._concat([part.batch for part in parts]) if parts else empty(self._source.columns)
        layouts = [part.layout for part in parts if part.layout is not None]
        if len({layout.is_table for layout in layouts}) > 1:
            raise RecensionError(f"{self._source.name}: one part has a column _kind and another has none")
        layout = layouts[0] if len(layouts) == len(parts) and layouts else None
        decoded = [rows for part in parts for rows in part.decoded]
        return ReadRows(batch, sum(part.rows for part in parts), decoded, layout, times.seen)

    def _read(self, data: Data, arrival: Arrival, first: int) -> ReadRows:
        """The elements of data whose first row is number ``first``."""
        data = to_readable(data, self._source.name)
        if isinstance(data, pa.Table):
            return self._read_table(data, arrival, first)
        if not isinstance(data, EventBatch):
            times = self._times.copy()
            data = read_elements(data, self._source.columns, self._source.name, first, times)
            return ReadRows(data, len(data), kind=times.seen)
        if not data.schema.equals(self._source.columns):
            raise RecensionError(
                f"{self._source.name}: the elements' columns are {data.schema.names}, "
                f"the source's are {self._source.columns.names}"
            )
        return ReadRows(data, len(data))

    def _require_earlier(self, reading: Reading) -> None:
        """Refuse a later reading of a session where those before it were not pushed."""
        if self._reached is not None and not reading.is_whole and reading.begin not in self._reached:
            raise RecensionError(
                f"{self._source.name}: {reading} does not follow what was pushed here: push the results of "
                "a session in order, or session.history()"
            )

    def _note_reading(self, push: Push) -> None:
        """Other data may be earlier readings in another form: then nothing is known."""
        begin, end = push.reading or Reading()
        if end is None:
            self._reached = self._reached if push.rows == 0 else None
        elif self._reached is not None:
            self._reached = {*self._reached - {begin}, end}

    def advance(self, t: int, arrival: Arrival = NO_PARTITION) -> Push:
        """A CTI, as if it had been pushed; it is no row of anybody's data.

        Without a partition it holds for all.
        """
        columns, partition = self._source.columns, arrival.partition
        if self._sub_streams.partitions is not None and partition is None:
            return self._make_push(ReadRows(empty(columns), 0), None, replace(arrival, promise=t))
        placement = self._sub_streams.name_rows(1, None, partition)
        return self._make_push(ReadRows(cti(t, columns), 0), placement, arrival)

    def expect_partitions(self, number: int) -> None:
        """How many partitions there are, where the source does not say it."""
        if self._sub_streams.partitions is not None:
            self._sub_streams.partitions.expect(number)
        for paced in self._paced.values():
            paced.partitions.expect(number)

    @property
    def is_clocked(self) -> bool:
        """Can time alone move its CTI?"""
        return self._sub_streams.is_clocked

    def tick(self, now: int) -> EventBatch | None:
        """The CTI of the source by the clock, if it has advanced: who is idle holds nobody back."""
        partitions = self._sub_streams.partitions
        self._given = {at: paced.tick(now) for at, paced in self._paced.items()}
        if partitions is None or partitions.tick(now) <= self._checker.frontier:
            return None
        self._checker.advance(partitions.cti)
        return cti(partitions.cti, self._source.columns)

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is."""
        return self._sub_streams.progress()

    def held_back_by(self) -> str | None:
        """The partition that the others wait for."""
        return self._sub_streams.held_back_by()

    def feed_paced(self, steps: Mapping[int, AdvanceTime]) -> None:
        """These steps, by vertex, go by the partitions of the source and are fed from here."""
        self._paced = {
            at: self._paced.get(at) or PacedPartitions(self._source, step) for at, step in steps.items()
        }

    @property
    def has_paced(self) -> bool:
        """Have steps that go by partitions given something that was not taken yet?"""
        return any(len(batch) for batch in self._given.values())

    def take_paced(self) -> dict[int, EventBatch]:
        """By vertex, what the steps that go by partitions give for what was taken in last; forgets it."""
        given, self._given = self._given, {}
        return {at: batch for at, batch in given.items() if len(batch)}

    def paced_steps(self) -> dict[int, PacedPartitions]:
        """By vertex, the steps that go by partitions."""
        return self._paced

    def take(self, push: Push) -> EventBatch:
        """The valid elements of what was judged last, which is taken in; or an error, and nothing is."""
        name = self._source.name
        # Looks before it changes anything, and is the last that may refuse.
        placed = push.placed
        batch = self._checker.check(
            push.batch, first_row=push.first_row, file=name, kind=self._kind(push.kind), placed=placed
        )
        if push.sifted is not None:
            self._sub_streams.note(push.sifted, [*_count_faults(push), *self._checker.take_by_partition()])
        if placed is not None:
            batch = self._take_placed(batch, placed, push)
        self._openclose.note(push.translated)
        for decoded in push.decoded:
            self._decoder.note(decoded)
        self._times.note(push.kind, name)
        if not push.is_only_ctis:
            self.is_table = push.layout is not None and push.layout.is_table
        self.rows += push.rows
        self._note_reading(push)
        return batch

    def _take_placed(self, batch: EventBatch, placed: PlacedRows, push: Push) -> EventBatch:
        """Valid rows, with the CTI of the source; the steps that go by partitions get them too."""
        if self._paced:
            kept, rows = self._checker.kept, self._checker.checked
            places = Placement(placed.names, placed.partition[kept])
            valid = rows.filter(kept)
            self._given = {
                at: paced.take(valid, places, push.arrival, placed.spoke) for at, paced in self._paced.items()
            }
        if placed.cti > self._checker.frontier:
            self._checker.advance(placed.cti)
            batch = concat([batch, cti(placed.cti, batch.schema)])
        return batch

    def _read_table(self, table: pa.Table, arrival: Arrival, first: int) -> ReadRows:
        name, columns = self._source.name, self._sub_streams.columns_in(table.schema, arrival)
        layout = layout_of(table.schema, self._time_columns(table.schema), name)
        self._times.require(layout.kind, name)
        if (reason := describe_missing(self._source.columns, layout.payload)) is not None:
            raise FormatError(reason, file=name)
        decoded, places = list[DecodedRows](), list[Placement]()
        table = table if columns is not None and columns.order else sort_rows(table)
        for rows in _combined_batches(table):
            decoded.append(self._decoder.judge(rows, layout, name, first))
            if columns is not None:
                places.append(columns.read(rows, name, first).take(decoded[-1].kept))
            first += len(rows)
        batch = self._concat([part.batch for part in decoded])
        if layout.times.start is not None:
            self.refuse_counts(batch, layout.kind)
        placement = join_placements(places) if places else None
        return ReadRows(batch, table.num_rows, decoded, layout, layout.kind, placement)

    def _make_push(self, read: ReadRows, placement: Placement | None, arrival: Arrival) -> Push:
        first, name, kind = self.rows + 1, self._source.name, self._kind(read.kind)
        sifted = self._sub_streams.place(read.batch, placement, arrival, first, kind)
        translated = self._openclose.judge(
            sifted.batch, first_row=first, file=name, kind=kind, placed=sifted.placed
        )
        self._refuse_undeclared(translated.batch, first)
        return Push(
            *(translated, read.rows, first, read.decoded, read.layout, read.kind),
            sifted=sifted,
            arrival=arrival,
        )

    def _concat(self, batches: list[EventBatch]) -> EventBatch:
        try:
            return concat(batches)
        except pa.ArrowInvalid as why:  # texts of more than 2 GiB in all
            reason = f"too much for one push ({first_line(why)}): push it in parts"
            raise RecensionError(f"{self._source.name}: {reason}") from None

    def _time_columns(self, schema: pa.Schema) -> TimeColumns:
        """A stream or a history has control columns; another table those that the source names."""
        named = self._source.time_columns
        if named.is_timeless:
            return named
        own = {*schema.names}.difference(named.shown)
        is_history = named.vs not in own and {VS, VE} <= own
        return named.ours if KIND in schema.names or is_history else named

    def _kind(self, kind: TimeKind) -> TimeKind:
        """The kind of times to write in messages: that of the data, or what is known so far."""
        return self._times.kind if kind is None else kind

    def _refuse_undeclared(self, batch: EventBatch, first_row: int) -> None:
        if not self._takes_retractions and batch.has_retractions():
            row = first_row + int((batch.kind == RETRACT).argmax())
            kind = "keyed: it takes rows and ctis" if self._source.are_rows else "declared insert-only"
            reason = f"a retraction, but the source is {kind}"
            raise StreamError(reason, file=self._source.name, row=row)

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember, and what they have counted."""
        own = {"progress": pa.table({"rows": [self.rows]}), "dropped": counts_to_table(self.counts)}
        return {
            **own,
            **self._checker.snapshot(),
            **self._openclose.snapshot(),
            **self._sub_streams.snapshot(),
            **self._snapshot_paced(),
        }

    def _snapshot_paced(self) -> dict[str, pa.Table]:
        """The steps that go by partitions, numbered in their order."""
        return {
            f"paced/{number}/{name}": table
            for number, paced in enumerate(self._paced.values())
            for name, table in paced.snapshot().items()
        }

    def restore(self, chunks: Chunks) -> None:
        """Remember what the snapshot remembers."""
        self.rows = chunks["progress"]["rows"][0].as_py()
        self._checker.restore(chunks)
        self._openclose.restore(chunks)
        self._sub_streams.restore(chunks)
        for number, paced in enumerate(self._paced.values()):
            paced.restore(take_prefix(f"paced/{number}", chunks))
        self._counted_before = counts_from_table(chunks["dropped"])
        for part in (self._decoder, self._openclose, self._checker, self._sub_streams):
            part.counts.clear()
        self.take_dropped()
        self._reader = self._reached = None


def _count_faults(push: Push) -> list[tuple[str, Index]]:
    """Opens and closes that were dropped, by reason and partition."""
    placed = None if push.sifted is None else push.sifted.placed
    if placed is None:
        return []
    size = len(placed.names)
    return [
        (why, np.bincount(placed.partition[rows], minlength=size)) for why, rows in push.translated.faults
    ]


def require_inputs(given: Collection[str], sources: Collection[str]) -> None:
    """Every source has an input, and every input a source."""
    for name in given:
        if name not in sources:
            raise RecensionError(describe_unknown_source(name, sources))
    for name in sources:
        if name not in given:
            raise RecensionError(f"no input for source {name!r}; the query reads {', '.join(sources)}")


def to_readable(data: Data, name: str | None = None) -> pa.Table | EventBatch | Sequence[Any]:
    """What data can be had from: a table, a batch, or elements."""
    if isinstance(data, EventBatch) or (isinstance(data, Sequence) and not isinstance(data, str)):
        return data
    return data.to_arrow() if isinstance(data, History | Result) else frames.table_of(data, name)


def slices(data: Data, size: int, name: str | None = None) -> Iterator[Data]:
    """Data in parts of so many rows; one empty part of data that has none."""
    data = to_readable(data, name)
    data = sort_rows(data) if isinstance(data, pa.Table) else data
    for start in range(0, max(len(data), 1), size):
        end = min(start + size, len(data))
        yield (
            data.slice(start, size)
            if isinstance(data, pa.Table)
            else (data.slice(start, end) if isinstance(data, EventBatch) else data[start:end])
        )


def _combined_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows in as few batches as can be, one at the least."""
    is_one = all(column.num_chunks == 1 for column in table.columns)
    batches = (table if is_one else table.combine_chunks()).to_batches()
    return batches or [null_payload(0, table.schema)]


def read_elements(
    elements: Sequence[Any], columns: pa.Schema, source: str, first_row: int, times: OneKind
) -> EventBatch:
    """The elements as a batch; the first is number ``first_row`` of ``source``; ``times`` learns the kind."""
    names = set(columns.names)
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, _ELEMENTS):
            raise StreamError(f"{element!r} is not a stream element", file=source, row=row)
        if (kind := kind_of_element(element)) not in (None, times.seen):
            times.note(kind, f"{source}: row {row}: {element}")
        if isinstance(element, _WITH_PAYLOAD) and element.payload.keys() != names:
            raise StreamError(_describe_columns(element, columns.names), file=source, row=row)
    try:
        return from_elements(elements, columns)
    except MISFITS as why:
        raise _locate_misfit(elements, columns, source, first_row, why) from None


def _describe_columns(element: Insert | Retract, names: list[str]) -> str:
    given = list(element.payload)
    if unknown := [name for name in given if name not in names]:
        return f"no column {unknown[0]!r}{suggest_name(unknown[0], names)}; the source has {', '.join(names)}"
    missing = next(name for name in names if name not in given)
    return (
        f"no value for column {missing!r}, only for {', '.join(given) or 'none'}: write None if it has none"
    )


def _locate_misfit(
    elements: Sequence[Element], columns: pa.Schema, source: str, first_row: int, why: Exception
) -> StreamError:
    """The first value that does not fit its column."""
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, Insert | Retract):
            continue
        for column in columns:
            value = element.payload[column.name]
            if (gist := describe_misfit(value, column.type)) is not None:
                reason = f"column {column.name!r} is {column.type}, not {value!r}: {gist}"
                return StreamError(reason, file=source, row=row)
    return StreamError(first_line(why) or type(why).__name__, file=source)
