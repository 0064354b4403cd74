"""Streams, from which queries are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from recension.api.aggregation import AggregateMethods, WindowMethods
from recension.api.base import key_names
from recension.api.coalescing import CoalescingMethods
from recension.api.consistency import ConsistencyMethods
from recension.api.inspection import InspectionMethods
from recension.api.lifetime import JoinMethods, LifetimeMethods
from recension.api.span import SpanMethods
from recension.api.windows import WindowedStream
from recension.core.errors import RecensionError, SchemaError, TimeError
from recension.core.formats.columns import kind_and_unit
from recension.core.ticks import DurationLike, TimeLike, TimeUnit, duration, instant
from recension.core.validity import Policy
from recension.plan.keyed import ChangesByKey, RestateByKey, RowSource
from recension.plan.module_window import WindowKind
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.schemas import IntoSchema, IntoType, schema_of, type_of
from recension.plan.source import Source, Table

IntoNames: TypeAlias = str | Sequence[str]
"""The name of a column, or of several."""
IntoRowColumn: TypeAlias = str | Mapping[str, IntoType]
"""A column by its name, or by its name and type."""


class Stream(
    SpanMethods,
    LifetimeMethods,
    JoinMethods,
    AggregateMethods,
    WindowMethods["Stream"],
    CoalescingMethods,
    ConsistencyMethods,
    InspectionMethods,
):
    """A query over streams. Every method returns a new stream; nothing runs until you pass it to a runner."""

    __slots__ = ()

    def _over_windows(self, windows: WindowKind) -> WindowedStream[Stream]:
        return WindowedStream(self, (), windows)


def source(
    name: str,
    schema: IntoSchema,
    start: str | None = None,
    end: str | None = None,
    properties: Properties | None = None,
    on_violation: Policy = "raise",
    *,
    external_ctis: bool = False,
    since: TimeLike = 0,
    times: IntoType | None = None,
    key: str | Sequence[str] | None = None,
    version: IntoRowColumn | None = None,
    deleted: str | None = None,
    forget: DurationLike | None = None,
    partition: IntoNames | None = None,
    order: IntoNames | None = None,
    partitions: int | None = None,
    idle: DurationLike | None = None,
    run: str | None = None,
    sequence: IntoNames | None = None,
    arrival: str | None = None,
) -> Stream:
    """A named input of a query.

    Parameters
    ----------
    name
        What runners call the input.
    schema
        The payload columns: ``{name: Arrow type or its name}``.
    start, end
        Columns of a plain table with the times of its events. If they are in the schema, they are also part
        of the payload. Without ``end`` its rows are instants, of one tick. (The guide says it of every way
        in, under "How long does a row live?")
    properties
        Known properties of the feed. They are trusted; only ``is_insert_only`` is checked.
    on_violation
        What happens to invalid elements: ``raise``, ``drop``, or ``adjust``, which moves late elements and
        their corrections to the last CTI.
    external_ctis
        The feed has external CTIs, and retractions may arrive before their inserts. If a step above has
        state, a ``finalize`` is put on the source, unless the query has one.
    since
        Where the external CTIs begin; a ``finalize`` in the query may name another time.
    times
        The type of its times: ``"int64"`` ticks or timestamps, as in ``"timestamp[us, UTC]"``. ``rc.start()``
        and ``rc.end()`` have this type. Without it, they are timestamps if the columns ``start`` and ``end``
        are, otherwise ticks. ``"s"``, ``"ms"`` or ``"us"``: integers in columns of times count seconds,
        milliseconds or microseconds since 1970, and are timestamps in UTC; ``"ticks"`` is the same as
        ``"int64"``.

    key
        The columns that identify a record: each row then replaces the record of its key, with its interval.
        Rows are plain: there are no retractions.
    version
        The column that says which row of a key counts, the highest: a whole number (int64, unless the schema
        or ``{name: type}`` says otherwise), a timestamp or a date. Without it the last one to arrive counts.
    deleted
        A column of booleans: a row in which it is true removes the record, whatever its interval.
    forget
        How long a record is remembered after its end. A row of a forgotten key is a violation.

    partition
        The columns that identify the partitions of the input, such as those of a topic: each is an ordered
        stream. They need not be in the schema. Order, CTIs and retractions are checked within a partition.
        The CTI of the source is the least of its partitions' CTIs. In ``properties``, order and keys apply
        within a partition.
    order
        The columns that order the rows of a partition, such as ``"offset"``. The values must rise from push
        to push.
    partitions
        No CTI takes effect until that many partitions have sent something, or ``idle`` has passed since the
        start.
    idle
        A partition that has sent nothing for that long, by the clock, no longer holds the others back. For
        rows that it then sends late, ``on_violation`` decides. By default it holds them back for ever.
    run, sequence
        The columns in which a producer numbers the elements of each of its runs. Repeated elements are
        skipped. By default ``_run``, ``_batch`` and ``_seq``, if rows have them.
    arrival
        The column that says when a row arrived, such as ``"loaded_at"``: a timestamp or a whole number, null
        where it is not known. It is no part of the payload, so it is not in the schema. Plain tables must
        have it; elements, histories and results have none.

    >>> feed = source("feed", {"v": "int64"}, partition="p")
    >>> import recension as rc
    >>> live = rc.session(feed)
    >>> live.push("feed", [rc.Insert({"v": 1}, 12, 15), rc.Cti(10)], partition=0)
    >>> live.push("feed", [rc.Insert({"v": 2}, 3, 4), rc.Cti(5)], partition=1)
    Traceback (most recent call last):
    recension.core.errors.StreamError: feed: row 3: partition 1: breaks an earlier cti: insert [3, 4) {'v': 2}

    >>> source("leases", {"user": "string", "bytes": "float64"})
    <Stream source leases: user string, bytes float64>
    >>> import recension as rc
    >>> jobs = source("jobs", {"job": "int64", "site": "string"}, key="job", version="seq")
    >>> job = {"job": 7, "site": "CERN"}
    >>> rows = [rc.Insert({**job, "seq": 1}, 3), rc.Insert({**job, "seq": 2}, 3, 9)]
    >>> rc.run(jobs, {"jobs": rows}).history().show()
    _vs  _ve  job  site
    3    9    7    CERN
    """
    declared = NOTHING_KNOWN if properties is None else properties
    columns, begin = _payload_of(schema, "source"), int(instant(since))
    kind, unit = _kind_and_unit(times, "source, times")
    parts = _partition_fields("source", partition, order, partitions, idle, run, sequence)
    if arrival is not None and not (isinstance(arrival, str) and arrival):
        raise RecensionError(f"source: arrival= is the name of a column, not {arrival!r}")
    parts |= {"arrival": arrival}
    if key is None:
        for option, given in (("version", version), ("deleted", deleted), ("forget", forget)):
            if given is not None:
                raise RecensionError(f"source: {option}= needs a key= as well")
        parts |= {"times": kind, "unit": unit}
        return Stream(
            Source(name, columns, start, end, declared, on_violation, external_ctis, begin, **parts)
        )
    if external_ctis or properties is not None:
        raise RecensionError("source: a keyed source has no external_ctis= and no properties=: it takes rows")
    rows, ordered_by = _row_columns(columns, version, deleted, "source")
    forgets = None if forget is None else _require_length(duration(forget))
    below = RowSource(name, rows, start, end, on_violation=on_violation, times=kind, unit=unit, **parts)
    keys = key_names(key, "source(key=)")
    return Stream(RestateByKey(below, columns, keys, ordered_by, deleted, forgets))


def _kind_and_unit(times: IntoType | None, where: str) -> tuple[pa.DataType | None, TimeUnit | None]:
    """What ``times=`` says: the kind of times, and what integers count."""
    if times is None or (isinstance(times, str) and times in ("s", "ms", "us", "ticks")):
        return kind_and_unit(times)
    return type_of(times, where), None


def changes(
    name: str,
    schema: IntoSchema,
    key: str | Sequence[str],
    start: str | None = None,
    version: IntoRowColumn | None = None,
    deleted: str | None = None,
    on_violation: Policy = "raise",
    *,
    times: IntoType | None = None,
    order: Literal["start", "version"] = "start",
    partition: IntoNames | None = None,
    partition_order: IntoNames | None = None,
    partitions: int | None = None,
    idle: DurationLike | None = None,
    run: str | None = None,
    sequence: IntoNames | None = None,
) -> Stream:
    """A named input of changes: a row is valid from its start until the next row of its key.

    Parameters
    ----------
    name, schema, start, on_violation, times
        As for `source`. A row has no end.
    key
        The columns that identify what changes: rows of one key follow each other.
    version
        The column that orders rows with the same start: the highest is valid. As for `source`.
    deleted
        A column of booleans: a row in which it is true ends the row before it and adds nothing.
    order
        ``start``: rows are ordered by (start, version). ``version``: they are ordered as in a log, by version
        alone, and each begins at the latest start up to it.
    partition, partition_order, partitions, idle, run, sequence
        As for `source`, where ``partition_order`` is called ``order``. The rows of a key must be in one
        partition or have versions: there is no order between partitions.

    >>> import recension as rc
    >>> orders = changes("orders", {"id": "int64", "state": "string"}, key="id", version="lsn")
    >>> rows = [(1, "new", 1, 10), (1, "paid", 2, 12), (1, "sent", 3, 12)]
    >>> made = [rc.Insert({"id": i, "state": state, "lsn": lsn}, t) for i, state, lsn, t in rows]
    >>> rc.run(orders, {"orders": made}).history().show()
    _vs  _ve  id  state
    10   12   1   new
    12   ∞    1   sent
    """
    columns = _payload_of(schema, "changes")
    kind, unit = _kind_and_unit(times, "changes, times")
    rows, ordered_by = _row_columns(columns, version, deleted, "changes")
    parts = _partition_fields("changes", partition, partition_order, partitions, idle, run, sequence)
    below = RowSource(name, rows, start, on_violation=on_violation, times=kind, unit=unit, **parts)
    keys = key_names(key, "changes(key=)")
    return Stream(ChangesByKey(below, columns, keys, ordered_by, deleted, order))


def table(name: str, schema: IntoSchema, refresh: DurationLike | None = None) -> Stream:
    """A named table without times, such as sites or prices, to join streams with.

    Its rows are true for ever. It is read once and then closed, so a join with it waits only for the stream.
    Windows over a table by itself are refused: they would have no end.

    Parameters
    ----------
    name
        What runners call the input: a table or frame with at least these columns, a file, a batch DataFrame.
    schema
        The columns: ``{name: Arrow type or its name}``.
    refresh
        The table may be read again, about that often. Its CTI then follows the streams that it is joined
        with, and changed rows are valid from that CTI on. In a session each push is a new version; `rc.run`
        reads it once.

    >>> import recension as rc
    >>> jobs = rc.source("jobs", {"site": "string", "cores": "int64"})
    >>> sites = rc.table("sites", {"site": "string", "country": "string"})
    >>> query = jobs.join(sites, on="site").group_by("country").agg(cores=rc.sum("cores"))
    >>> countries = {"site": ["cern", "ral"], "country": ["CH", "UK"]}
    >>> work = [rc.Insert({"site": "ral", "cores": 8}, 1, 5)]
    >>> import pyarrow as pa
    >>> rc.run(query, {"jobs": work, "sites": pa.table(countries)}, close=True).show()
    _vs  _ve  country  cores
    1    5    UK       8
    """
    try:
        period = None if refresh is None else duration(refresh)
    except TimeError as why:
        raise TimeError(f"table: refresh: {why}") from None
    known = Properties(is_insert_only=period is None, is_shrink_only=True)
    return Stream(Table(name, _payload_of(schema, "table"), declared=known, refresh=period))


def _payload_of(schema: IntoSchema, verb: str) -> pa.Schema:
    """The payload that a source declares: no table and no file may have names that start with _."""
    columns = schema_of(schema, verb)
    for name in columns.names:
        if name.startswith("_"):
            raise SchemaError(f"{verb}: column {name!r}: names that start with _ are reserved")
    return columns


def _partition_fields(
    verb: str,
    partition: IntoNames | None,
    order: IntoNames | None,
    partitions: int | None,
    idle: DurationLike | None,
    run: str | None,
    sequence: IntoNames | None,
) -> dict[str, Any]:
    """What a source declares about its partitions, as fields of its node."""
    named = {"partition": partition, "order": order, "sequence": sequence}
    fields: dict[str, Any] = {
        name: () if given is None else key_names(given, f"{verb}({name}=)") for name, given in named.items()
    }
    for name, given in named.items():
        if given is not None and not fields[name]:
            raise RecensionError(f"{verb}: {name}= names at least one column")
    if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int)):
        raise RecensionError(f"{verb}: partitions= is a whole number, not {partitions!r}")
    if run is not None and not isinstance(run, str):
        raise RecensionError(f"{verb}: run= is the name of a column, not {run!r}")
    try:
        silence = None if idle is None else duration(idle)
    except TimeError as why:
        raise TimeError(f"{verb}: idle: {why}") from None
    return {**fields, "partitions": partitions, "idle": silence, "run": run}


def _row_columns(
    columns: pa.Schema, version: IntoRowColumn | None, deleted: str | None, verb: str
) -> tuple[pa.Schema, str | None]:
    """The columns of the rows: the payload's, and those of version and deletion that it lacks."""
    given = {version: "int64"} if isinstance(version, str) else dict(version or {})
    if len(given) > 1:
        raise RecensionError(f"{verb}: version= names one column, not {', '.join(given)}")
    extra = {name: kind for name, kind in given.items() if name not in columns.names}
    if deleted is not None and deleted not in columns.names:
        extra[deleted] = "bool"
    if len(extra) and (names := columns.names):
        rows = schema_of({**{name: columns.field(name).type for name in names}, **extra}, verb)
    else:
        rows = columns
    return rows, next(iter(given), None)


def _require_length(forget: int) -> int:
    if forget < 0:
        raise RecensionError("source: forget= is a duration from 0")
    return forget
