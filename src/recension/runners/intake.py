"""What comes in at a source: any tabular data or list of elements, as checked batches.

The same rules as for files hold (control columns, plain tables, policies), and messages count rows from
the first one ever pushed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core import frames
from recension.core.batch import CTI, RETRACT, EventBatch, concat, cti, from_elements, null_payload
from recension.core.errors import FormatError, RecensionError, StreamError, first_line, suggest_name
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract, kind_of_element
from recension.core.formats.columns import KIND, VE, VS, Layout, TimeColumns, describe_missing, layout_of
from recension.core.formats.decode import DecodedRows, Decoder
from recension.core.formats.reader import StreamReader
from recension.core.formats.stream_files import sort_rows
from recension.core.history import History
from recension.core.openclose import OpenClose, TranslatedBatch
from recension.core.time_kind import OneKind, TimeKind
from recension.core.validity import Checker, counts_from_table, counts_to_table
from recension.core.values import MISFITS, describe_misfit
from recension.operators.base import Chunks
from recension.plan.source import Source, describe_unknown_source
from recension.runners.result import Position, Reading, Result

# An Arrow table or batch, a pandas or polars frame, a History, a Result, or elements such as Insert(...).
Data: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Push:
    """Data that was looked at and could be taken in; nothing has changed yet."""

    translated: TranslatedBatch
    rows: int
    first_row: int
    decoded: list[DecodedRows] = field(default_factory=list)
    layout: Layout | None = None
    kind: TimeKind = None
    reading: Reading | None = None

    @property
    def batch(self) -> EventBatch:
        """The elements, without opens and closes."""
        return self.translated.batch

    @property
    def is_only_ctis(self) -> bool:
        """Are there CTIs and nothing else?"""
        return bool(len(self.batch)) and bool((self.batch.kind == CTI).all())


class Intake:
    """Turns what is pushed to one source into valid elements, all of a push or nothing of it."""

    def __init__(self, source: Source, *, check_orphans: bool = True, times: OneKind | None = None) -> None:
        self._source, self._times = source, times or OneKind()
        self._decoder = Decoder(source.columns, source.on_violation)
        self._openclose = OpenClose(source.on_violation)
        # A source declared free of retractions needs no memory of what could be retracted.
        self._takes_retractions = not (source.declared.is_insert_only or source.are_rows)
        orphans = check_orphans and self._takes_retractions
        self._checker = Checker(source.on_violation, orphans=orphans, lateness=not source.are_rows)
        # How far the answers are here whose readings were pushed; None where that is not known or needed.
        self._reached: set[Position] | None = set() if check_orphans else None
        self.rows = 0
        self._counted_before: Counter[str] = Counter()
        self._reader: StreamReader | None = None
        self.is_table = False

    @property
    def counts(self) -> Counter[str]:
        """Elements left out, moved or ignored so far, by reason."""
        own = self._counted_before + self._decoder.counts + self._openclose.counts + self._checker.counts
        return own if self._reader is None else own + self._reader.counts

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking, with the reason; forgets them."""
        self._decoder.dropped.clear()  # rows of which no element could be made: counted only
        read = [] if self._reader is None else self._reader.take_dropped()
        return [*self._openclose.take_dropped(), *self._checker.take_dropped(), *read]

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

    def judge(self, data: Data) -> Push:
        """Look at the whole of the next data; what cannot be taken in is an error. Nothing changes."""
        if not isinstance(data, Result):
            return self._judge(data)
        self._require_earlier(data.reading)
        return replace(self._judge(data), reading=data.reading)

    def _judge(self, data: Data) -> Push:
        data = to_readable(data, self._source.name)
        if isinstance(data, pa.Table):
            return self._judge_table(data)
        if not isinstance(data, EventBatch):
            first, times = self.rows + 1, self._times.copy()
            data = read_elements(data, self._source.columns, self._source.name, first, times)
            return self._make_push(data, [], len(data), kind=times.seen)
        if not data.schema.equals(self._source.columns):
            raise RecensionError(
                f"{self._source.name}: the elements' columns are {data.schema.names}, "
                f"the source's are {self._source.columns.names}"
            )
        return self._make_push(data, [], len(data))

    def _require_earlier(self, reading: Reading) -> None:
        """Refuse a later reading of a session where those before it were not pushed."""
        if self._reached is not None and not reading.is_whole and reading.begin not in self._reached:
            raise RecensionError(
                f"{self._source.name}: {reading} does not follow what was pushed here: push the readings of "
                "a session in order, or session.history()"
            )

    def _note_reading(self, push: Push) -> None:
        """Other data may be earlier readings in another form: then nothing is known."""
        begin, end = push.reading or Reading()
        if end is None:
            self._reached = self._reached if push.rows == 0 else None
        elif self._reached is not None:
            self._reached = {*self._reached - {begin}, end}

    def advance(self, t: int) -> Push:
        """A CTI, as if it had been pushed; it is no row of anybody's data."""
        return self._make_push(cti(t, self._source.columns), [], 0)

    def take(self, push: Push) -> EventBatch:
        """The valid elements of what was judged last, which is taken in; or an error, and nothing is."""
        name = self._source.name
        # Looks before it changes anything, and is the last that may refuse.
        batch = self._checker.check(
            push.batch, first_row=push.first_row, file=name, kind=self._kind(push.kind)
        )
        self._openclose.note(push.translated)
        for decoded in push.decoded:
            self._decoder.note(decoded)
        self._times.note(push.kind, name)
        if not push.is_only_ctis:
            self.is_table = push.layout is not None and push.layout.is_table
        self.rows += push.rows
        self._note_reading(push)
        return batch

    def _judge_table(self, table: pa.Table) -> Push:
        name = self._source.name
        layout = layout_of(table.schema, self._time_columns(table.schema), name)
        self._times.require(layout.kind, name)
        if (reason := describe_missing(self._source.columns, layout.payload)) is not None:
            raise FormatError(reason, file=name)
        first, decoded = self.rows + 1, list[DecodedRows]()
        for rows in _combined_batches(sort_rows(table)):
            decoded.append(self._decoder.judge(rows, layout, name, first))
            first += len(rows)
        batch = self._concat([part.batch for part in decoded])
        return self._make_push(batch, decoded, table.num_rows, layout, layout.kind)

    def _make_push(
        self,
        batch: EventBatch,
        decoded: list[DecodedRows],
        rows: int,
        layout: Layout | None = None,
        kind: TimeKind = None,
    ) -> Push:
        first, name = self.rows + 1, self._source.name
        translated = self._openclose.judge(batch, first_row=first, file=name, kind=self._kind(kind))
        self._refuse_undeclared(translated.batch, first)
        return Push(translated, rows, first, decoded, layout, kind)

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
        return TimeColumns() if KIND in schema.names or is_history else named

    def _kind(self, kind: TimeKind) -> TimeKind:
        """The kind of times to write in messages: that of the data, or what is known so far."""
        return self._times.kind if kind is None else kind

    def _refuse_undeclared(self, batch: EventBatch, first_row: int) -> None:
        if not self._takes_retractions and bool((batch.kind == RETRACT).any()):
            row = first_row + int((batch.kind == RETRACT).argmax())
            kind = "keyed: it takes rows and ctis" if self._source.are_rows else "declared insert-only"
            reason = f"a retraction, but the source is {kind}"
            raise StreamError(reason, file=self._source.name, row=row)

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember, and what they have counted."""
        own = {"progress": pa.table({"rows": [self.rows]}), "dropped": counts_to_table(self.counts)}
        return {**own, **self._checker.snapshot(), **self._openclose.snapshot()}

    def restore(self, chunks: Chunks) -> None:
        """Remember what the snapshot remembers."""
        self.rows = chunks["progress"]["rows"][0].as_py()
        self._checker.restore(chunks)
        self._openclose.restore(chunks)
        self._counted_before = counts_from_table(chunks["dropped"])
        for counts in (self._decoder.counts, self._openclose.counts, self._checker.counts):
            counts.clear()
        self.take_dropped()
        self._reader = self._reached = None


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
        if not isinstance(element, Insert | Retract | Cti | ExternalCti):
            raise StreamError(f"{element!r} is not a stream element", file=source, row=row)
        if (kind := kind_of_element(element)) not in (None, times.seen):
            times.note(kind, f"{source}: row {row}: {element}")
        if isinstance(element, Insert | Retract) and element.payload.keys() != names:
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
