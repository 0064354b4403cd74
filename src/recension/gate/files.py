"""Files as inputs: what they hold is judged by a gate, whether a session reads them or somebody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from os import PathLike
from pathlib import Path

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.bitemporal import believed_events
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.change_feeds import Envelopes
from recension.core.formats.changelog import OLD_FORMAT, parts_with_times, read_mark
from recension.core.formats.columns import TimeColumns, kind_and_unit, refuse_reserved
from recension.core.formats.files import format_errors
from recension.core.formats.listing import StoredFile
from recension.core.formats.reader import BATCH_SIZE, StreamFiles, open_file, open_files
from recension.core.formats.stream_files import StreamFile, agreed_payload
from recension.core.formats.versions import NEWEST, Version
from recension.core.history import History
from recension.core.placement import PartitionColumns
from recension.core.reconstitution import reconstitute
from recension.core.ticks import TimeLike, TimeUnit
from recension.core.time_kind import TICKS, merge_kinds
from recension.core.validity import Policy
from recension.gate.gate import Gate
from recension.plan.keyed import envelopes_of
from recension.plan.source import Source


def open_stream(
    path: str | PathLike[str],
    *,
    schema: pa.Schema | None = None,
    start: str | None = None,
    end: str | None = None,
    times: TimeUnit | pa.DataType | None = None,
    on_violation: Policy | None = None,
    check_orphans: bool = True,
    check_lateness: bool = True,
    closes_once: bool = False,
    batch_size: int = BATCH_SIZE,
    version: Version = NEWEST,
    is_timeless: bool = False,
    places: PartitionColumns | None = None,
    envelopes: Envelopes | None = None,
) -> StreamReader:
    """Open a stream file, a directory of them, or a plain table.

    ``schema`` is the payload to read: its columns, in its types (all columns, in the types the files
    have or show, if it is left out). ``start`` and ``end`` name a plain table's own columns of times, which
    the schema may have too; with a start alone each row is true for one tick. ``times`` is their kind, or
    what integers count since 1970: ``"s"``, ``"ms"`` or ``"us"``. ``version`` is that of a history table or
    changelog. With ``is_timeless`` it is a table without times, whose rows are true for ever. JSON Lines may
    hold ``envelopes`` of changes. The files are opened at once and read as the batches are asked for.

    As the input of a query it is judged as its source says. Read directly, ``on_violation`` says what happens
    to rows and elements that may not be there (``"raise"`` if it does not); ``check_orphans=False`` lets
    retractions of unknown events pass, for callers that can handle them, and ``check_lateness=False``
    elements that break a CTI. With ``closes_once`` each of equal events has a close of its own.

    ``places`` names the columns of partitions. Such a stream is read whole before its first batch is given,
    and so is one whose rows say in ``_run`` which run of a producer numbered them. In a directory of
    directories each of these is a partition: ``part=7``, or its name.
    """
    columns = TimeColumns.of(start, end, schema, *kind_and_unit(times))
    columns = TimeColumns(is_timeless=True) if is_timeless else columns
    if schema is not None:
        refuse_reserved(schema)
    files, payload = open_files(
        Path(path), columns, schema, places=places, envelopes=envelopes, version=version
    )
    source = _source_of(str(path), payload, on_violation or "raise", places, closes_once=closes_once)
    reader = StreamReader(
        *(files, payload, source, batch_size, places),
        check_orphans=check_orphans,
        check_lateness=check_lateness,
    )

    def reopen(source: Source) -> StreamReader:
        if on_violation not in (None, source.on_violation):
            raise RecensionError(
                f"{source.name}: open_stream says on_violation={on_violation!r}, and the source "
                f"{source.on_violation!r}: it is the source that decides, as in "
                f"rc.source({source.name!r}, ..., on_violation={on_violation!r})"
            )
        if start is None and times is None and not is_timeless:
            return open_input(source, path, batch_size=batch_size, version=version, envelopes=envelopes)
        return open_stream(
            path,
            schema=source.columns,
            start=start,
            end=end,
            times=times,
            batch_size=batch_size,
            version=version,
            is_timeless=is_timeless,
            places=places or source.sub_streams,
            envelopes=envelopes,
        )

    reader.reopen = reopen
    return reader


def open_input(
    source: Source,
    path: str | PathLike[str],
    *,
    check_orphans: bool = True,
    batch_size: int = BATCH_SIZE,
    version: Version = NEWEST,
    envelopes: Envelopes | None = None,
) -> StreamReader:
    """Open what is at a path as the input of a source: in its columns and types, judged as it says."""
    files, _ = open_files(
        Path(path),
        source.columns_of_times,
        source.columns,
        places=source.sub_streams,
        envelopes=envelopes or envelopes_of(source),
        version=version,
        finds_times=True,
    )
    return StreamReader(
        *(files, source.columns, source, batch_size, source.sub_streams), check_orphans=check_orphans
    )


def _source_of(
    name: str, schema: pa.Schema, policy: Policy, places: PartitionColumns | None, *, closes_once: bool
) -> Source:
    """What judges a stream that nobody has declared."""
    places = places or PartitionColumns()
    return Source(
        name,
        schema,
        on_violation=policy,
        closes_once=closes_once,
        partition=places.partition,
        order=places.order if places.partition else (),
    )


class StreamReader(StreamFiles):
    """A stream in files as batches of valid elements. It can be read again from the start."""

    def __init__(
        self,
        files: list[StreamFile],
        schema: pa.Schema,
        source: Source,
        size: int = BATCH_SIZE,
        places: PartitionColumns | None = None,
        *,
        check_orphans: bool = True,
        check_lateness: bool = True,
    ) -> None:
        super().__init__(files, schema, size, places)
        self._open_gate = partial(Gate, source, check_orphans=check_orphans, check_lateness=check_lateness)
        self._policy = source.on_violation
        self._gate = self._open_gate()

    @property
    def counts(self) -> Counter[str]:
        """How many elements were dropped, moved or ignored in this reading so far, by reason."""
        return self._gate.counts

    @property
    def dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements dropped, with the reason."""
        return self._gate.dropped

    @property
    def unreadable(self) -> list[tuple[str, pa.RecordBatch]]:
        """The rows dropped because no element could be made of them, with the reason."""
        return self._gate.unreadable

    def __iter__(self) -> Iterator[EventBatch]:
        self._gate = gate = self._open_gate()
        for rows in self.rows(self._policy):
            batch = gate.admit(gate.judge(rows))
            for start in range(0, len(batch), self._size):
                yield batch.slice(start, min(start + self._size, len(batch)))


def read_history(
    path: str | PathLike[str],
    *,
    schema: pa.Schema | None = None,
    version: int | None = None,
    as_of: TimeLike | None = None,
) -> History:
    """The history in a file or a directory of files.

    Of a history table, ``version`` (so many micro-batches) or ``as_of`` (a time of the wall clock) asks for
    what was believed before.
    """
    reader = open_stream(path, schema=schema, version=Version.from_request(version, as_of))
    if reader.has_kinds:
        raise FormatError("a stream, not a history: it has a column _kind", file=str(path))
    return replace(reconstitute(reader, reader.schema), time_type=reader.time_type)


def read_bitemporal(path: str | PathLike[str], version: Version = NEWEST) -> History:
    """Every event that a changelog ever told, with the times from and until which it was believed.

    ``believed_from`` and ``believed_to`` (null: still believed) are columns of the payload; the lifetimes say
    when the events are true. The rows with ``believed_from <= t`` and ``believed_to > t``, or null, are what
    was believed at ``t``.
    """
    log = read_micro_batches(path, version)
    if log is None:
        raise FormatError(
            "not a changelog; only changelogs have the times of their micro-batches", file=str(path)
        )
    return replace(believed_events(log.batches, log.schema), time_type=log.time_type)


@dataclass(frozen=True)
class MicroBatches:
    """A changelog as it was written: batches of elements, each with the wall clock of its micro-batch."""

    schema: pa.Schema
    time_type: pa.DataType
    batches: Iterator[tuple[int, EventBatch]]


def read_micro_batches(
    path: str | PathLike[str], version: Version = NEWEST, *, after: int = -1
) -> MicroBatches | None:
    """A changelog by micro-batches, those that came ``after`` a time; None if it is none, or has no times."""
    folder = Path(path)
    with format_errors(str(folder)):
        mark = read_mark(folder) if folder.is_dir() else None
    if mark is None or mark.format == OLD_FORMAT:
        return None
    parts = parts_with_times(folder, mark, version)
    files = {part: open_file(StoredFile(part.path, seal=part.seal), TimeColumns(), None) for part in parts}
    schema = agreed_payload(list(files.values()), None)
    kind = reduce(merge_kinds, (file.layout.kind for file in files.values()), None)
    source = _source_of(str(folder), schema, "raise", None, closes_once=False)
    batches = (
        (at, batch)
        for at, pieces in groupby(parts, key=lambda part: part.at)
        if at > after
        for batch in StreamReader([files[p] for p in pieces], schema, source, check_orphans=False)
    )
    return MicroBatches(schema, TICKS if kind is None else kind, batches)
