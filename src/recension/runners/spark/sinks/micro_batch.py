"""A micro-batch: its rows in the order of ``(_batch, _seq)``, and whether it is the next one of a table.

Assumes     numbers without gaps, from 0 on.
Guarantees  a micro-batch is written once. One of other input than the table has under its number is refused,
            and so is one that does not follow the table's last: a number alone proves nothing.
State       what the last micro-batches were made of, as many as Spark's own checkpoint remembers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch
from recension.core.errors import RecensionError, SchemaError, StreamError
from recension.core.formats.columns import (
    BATCH,
    KIND,
    SEQ,
    VS,
    Layout,
    TimeColumns,
    layout_of,
    neutral_schema,
    neutral_type,
)
from recension.core.formats.decode import Decoder
from recension.core.formats.stream_files import row_numbers

NEEDED: Final = (KIND, VS, BATCH, SEQ)
# The numbers of the last micro-batches of a table, with digests of what they were made of.
Recent: TypeAlias = tuple[tuple[int, str], ...]

REMEMBERED: Final = 100
_REMEDY: Final = (
    "restore the table and the checkpoint from the same backup, or start with a new path and a new checkpoint"
)


@dataclass(frozen=True)
class MicroBatch:
    """What a query put out in one step.

    ``content`` is a digest of its input, ``before`` that of the micro-batch before it, if that is known;
    ``offsets`` are those of its sources after it, as Spark writes them; ``at`` is when Spark planned it, in
    microseconds since 1970, the same whenever it is run. What is written of a micro-batch takes its times
    from there and never from the clock: another attempt must write the same.
    """

    query: str
    number: int
    rows: pa.RecordBatch
    content: str = ""
    before: str | None = None
    offsets: tuple[str, ...] = ()
    at: int = 0

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"micro-batch {self.number}"

    def with_rows(self, table: pa.Table) -> MicroBatch:
        """The same micro-batch with rows as tasks gave them, put in order."""
        return replace(self, rows=rows_in_order(table, self.number))

    @cached_property
    def layout(self) -> Layout:
        """What its columns mean."""
        return layout_of(self.rows.schema, TimeColumns(), self.name)

    def events(self) -> EventBatch:
        """The elements; only those an engine puts out may be there."""
        decoder = Decoder(self.layout.payload, "raise")
        events = decoder.decode(self.rows, self.layout, self.name, 1).batch
        if bool((events.kind > EXTERNAL_CTI).any()):
            raise StreamError(f"{self.name}: open and close rows; a sink takes the output of a query")
        return events


def micro_batch(
    query: str,
    number: int,
    table: pa.Table,
    content: str = "",
    before: str | None = None,
    offsets: tuple[str, ...] = (),
    at: int = 0,
) -> MicroBatch:
    """A micro-batch as several tasks wrote it, in order."""
    return MicroBatch(query, number, rows_in_order(table, number), content, before, offsets, at)


def rows_in_order(table: pa.Table, number: int) -> pa.RecordBatch:
    """Rows of a micro-batch as one batch, by ``_batch`` and ``_seq``: the same whichever task came first.

    Its types follow from the query alone: what Spark hands over is in the zone of the session, and text is of
    the large kind if the session says so.
    """
    wanted = neutral_schema(table.schema)
    if table.schema != wanted:
        try:
            table = table.cast(wanted)
        except pa.ArrowInvalid:
            raise _too_large_error(number) from None
    parts = table.combine_chunks().to_batches()
    rows = parts[0] if parts else pa.RecordBatch.from_pylist([], schema=table.schema)
    if len(parts) > 1:
        raise _too_large_error(number)
    batch, seq = row_numbers(rows, f"micro-batch {number}", 1)
    order = np.lexsort((seq, batch))
    if not bool((order == np.arange(len(order))).all()):
        rows = rows.take(pa.array(order))
    return rows


def _too_large_error(number: int) -> StreamError:
    return StreamError(f"micro-batch {number}: a column of more than 2 GB; make the micro-batches smaller")


def check_columns(schema: pa.Schema) -> None:
    """Refuse a DataFrame that is not the output of a query."""
    if missing := [name for name in NEEDED if name not in schema.names]:
        raise SchemaError(
            f"no column {missing[0]}: a sink takes a stream with _kind, _vs, _ve, _new_ve, _batch and _seq, "
            "as rc.spark.stream gives it"
        )
    layout_of(schema, TimeColumns(), "the DataFrame")


def require_same_columns(stored: pa.Schema, given: pa.Schema) -> None:
    """A table keeps its columns."""
    for old, new in zip(stored, given, strict=False):
        if old.name != new.name or neutral_type(old.type) != neutral_type(new.type):
            raise SchemaError(
                f"the table has a column {old.name} {old.type} where now {new.name} {new.type} comes"
            )
    if len(stored) != len(given):
        raise SchemaError(
            f"the table has the columns {', '.join(stored.names)}, not {', '.join(given.names)}"
        )


def remember(recent: Recent, batch: MicroBatch) -> Recent:
    """The last micro-batches after one more."""
    return (*recent, (batch.number, batch.content))[-REMEMBERED:]


def is_next(table: Path | str, batch: MicroBatch, last: int, recent: Recent) -> bool:
    """Is it the next micro-batch? False if the table has it already; any other is refused."""
    if batch.number > last + 1:
        raise RecensionError(
            f"{table}: has {last + 1} micro-batches, and the next one has number {batch.number}; "
            f"a table must have all micro-batches of its query: {_REMEDY}"
        )
    contents = dict(recent)
    if batch.number > last:
        if batch.before is not None and contents.get(last, batch.before) != batch.before:
            raise _other_input_error(table, last)
        return True
    if batch.number not in contents:
        raise RecensionError(
            f"{table}: has {last + 1} micro-batches, and number {batch.number} comes again, which is longer "
            f"ago than it remembers: {_REMEDY}"
        )
    if contents[batch.number] != batch.content:
        raise _other_input_error(table, batch.number)
    return False


def require_same_part(table: Path | str, batch: MicroBatch, content: str) -> None:
    """Refuse a micro-batch whose file is there with other input; its writer was killed after writing it."""
    if content != batch.content:
        raise _other_input_error(table, batch.number)


def _other_input_error(table: Path | str, number: int) -> RecensionError:
    return RecensionError(
        f"{table}: its micro-batch {number} was made of other input than the checkpoint's, which was put "
        f"back to an earlier state, or is not this table's: {_REMEDY}"
    )
