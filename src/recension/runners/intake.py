"""What comes in at a source: any tabular data or list of elements, as checked batches.

The same rules as for files hold (control columns, plain tables, policies), and messages count rows from
the first one ever pushed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa

from recension.core.batch import RETRACT, EventBatch, from_elements
from recension.core.counting import counts_of, counts_table
from recension.core.errors import RecensionError, StreamError
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.formats.columns import BATCH, SEQ, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.reader import StreamReader
from recension.core.openclose import OpenClose
from recension.core.validity import Checker
from recension.operators.base import Chunks
from recension.plan.source import Source

# An Arrow table or batch, a pandas or polars frame, an EventBatch, or elements such as Insert(...).
Data: TypeAlias = Any


class Intake:
    """Turns what is pushed to one source into valid elements."""

    def __init__(self, source: Source, batch_size: int, *, check_orphans: bool = True) -> None:
        self._source, self._batch_size = source, batch_size
        self._decoder = Decoder(source.columns, source.on_violation)
        self._openclose = OpenClose(source.on_violation)
        # A source declared free of retractions needs no memory of what could be retracted.
        orphans = check_orphans and not source.declared.is_insert_only
        self._checker = Checker(source.on_violation, orphans=orphans)
        self.rows = 0
        self._counted_before: Counter[str] = Counter()
        self._reader: StreamReader | None = None
        self.time_type: pa.DataType | None = None
        self.is_table = False

    @property
    def counts(self) -> Counter[str]:
        """Elements left out, moved or ignored so far, by reason."""
        own = self._counted_before + self._decoder.counts + self._openclose.counts + self._checker.counts
        return own if self._reader is None else own + self._reader.counts

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking, with the reason; forgets them."""
        self._decoder.rejected.clear()  # rows of which no element could be made: counted only
        read = [] if self._reader is None else self._reader.take_dropped()
        return [*self._openclose.take_rejected(), *self._checker.take_rejected(), *read]

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
        self.time_type, self.is_table = reader.time_type, reader.is_table
        if self._reader is not None and self._reader is not reader:
            self._counted_before += self._reader.counts
        self._reader = reader

    def take(self, data: Data) -> Iterator[EventBatch]:
        """The valid elements of the next data."""
        for batch in self._batches(data):
            yield self._checked(batch)

    def _batches(self, data: Data) -> Iterator[EventBatch]:
        if isinstance(data, EventBatch):
            yield from self._slices(data)
        elif isinstance(data, Sequence) and not isinstance(data, str):
            yield from self._slices(self._from_elements(data))
        else:
            for rows in self._ordered(_as_table(data)).to_batches(max_chunksize=self._batch_size):
                layout = layout_of(rows.schema, self._times(rows.schema), self._source.name)
                self.time_type, self.is_table = layout.time_type, layout.is_table
                yield self._decoder.decode(rows, layout, self._source.name, self.rows + 1).batch

    def _slices(self, batch: EventBatch) -> Iterator[EventBatch]:
        if not batch.schema.equals(self._source.columns):
            raise RecensionError(
                f"{self._source.name}: the elements' columns are {batch.schema.names}, "
                f"the source's are {self._source.columns.names}"
            )
        for start in range(0, len(batch), self._batch_size):
            yield batch.slice(start, min(start + self._batch_size, len(batch)))

    def _from_elements(self, elements: Sequence[Element]) -> EventBatch:
        names = set(self._source.columns.names)
        for row, element in enumerate(elements, self.rows + 1):
            if not isinstance(element, Insert | Retract | Cti | ExternalCti):
                raise StreamError(f"{element!r} is not a stream element", file=self._source.name, row=row)
            if isinstance(element, Insert | Retract) and (unknown := set(element.payload) - names):
                reason = f"no column {sorted(unknown)[0]!r}; the source has {sorted(names)}"
                raise StreamError(reason, file=self._source.name, row=row)
        try:
            return from_elements(elements, self._source.columns)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as why:
            raise StreamError(str(why).splitlines()[0], file=self._source.name) from None

    def _times(self, schema: pa.Schema) -> TimeColumns:
        is_stream = "_kind" in schema.names
        return TimeColumns() if is_stream else TimeColumns(self._source.start, self._source.end)

    def _ordered(self, table: pa.Table) -> pa.Table:
        if BATCH in table.column_names and SEQ in table.column_names:
            return table.sort_by([(BATCH, "ascending"), (SEQ, "ascending")])
        return table

    def _checked(self, batch: EventBatch) -> EventBatch:
        first, self.rows = self.rows + 1, self.rows + len(batch)
        batch = self._openclose.translate(batch, first_row=first, file=self._source.name)
        self._refuse_undeclared(batch, first)
        return self._checker.check(batch, first_row=first, file=self._source.name)

    def _refuse_undeclared(self, batch: EventBatch, first_row: int) -> None:
        if self._source.declared.is_insert_only and bool((batch.kind == RETRACT).any()):
            row = first_row + int((batch.kind == RETRACT).argmax())
            reason = "a retraction, but the source is declared insert-only"
            raise StreamError(reason, file=self._source.name, row=row)

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember, and what they have counted."""
        own = {"progress": pa.table({"rows": [self.rows]}), "left_out": counts_table(self.counts)}
        return {**own, **self._checker.snapshot(), **self._openclose.snapshot()}

    def restore(self, chunks: Chunks) -> None:
        """Remember what the snapshot remembers."""
        self.rows = chunks["progress"]["rows"][0].as_py()
        self._checker.restore(chunks)
        self._openclose.restore(chunks)
        self._counted_before = counts_of(chunks["left_out"])
        for counts in (self._decoder.counts, self._openclose.counts, self._checker.counts):
            counts.clear()
        self._reader = None


def parts(data: Data, size: int) -> Iterator[Data]:
    """Data that can be cut, in parts of so many rows; other data as it is."""
    if hasattr(data, "slice") and hasattr(data, "num_rows"):
        yield from (data.slice(start, size) for start in range(0, max(data.num_rows, 1), size))
    elif isinstance(data, EventBatch | list | tuple):
        for start in range(0, max(len(data), 1), size):
            end = min(start + size, len(data))
            yield data.slice(start, end) if isinstance(data, EventBatch) else data[start:end]
    else:
        yield data


def _as_table(data: Data) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return nw.from_native(data, eager_only=True).to_arrow()
    except TypeError:
        kinds = "an Arrow table, a pandas or polars frame, or a list of elements such as rc.Insert(...)"
        raise RecensionError(f"cannot read a {type(data).__name__} as a stream; give {kinds}") from None
