"""Change data capture and slowly changing dimensions of databases, as keyed sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recension.api.base import StreamBase, key_names
from recension.api.stream import IntoRowColumn, Stream, changes, source
from recension.core.errors import SchemaError, suggest_name
from recension.core.formats import change_feeds
from recension.core.formats.change_feeds import (
    LOG_COLUMNS,
    LOG_DELETED,
    LOG_TIME,
    LOG_VERSION,
    ROW_FROM,
    Envelopes,
    Scd2Columns,
)
from recension.core.history import History
from recension.core.validity import Policy
from recension.plan.keyed import ChangesByKey, RowSource
from recension.plan.schemas import IntoSchema, IntoType, schema_of
from recension.plan.source import Source

INSTANTS = pa.timestamp("us", "UTC")  # what a message of Debezium says in milliseconds


@dataclass(frozen=True, repr=False)
class Feed:
    """A feed of a database: a query reads ``stream``, and ``rows`` makes the rows for its source."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    stream: Stream = field(compare=False)

    def rows(self, data: Any) -> Any:
        """Make rows of what the database sent: an Arrow table, a frame, or a list of dicts or JSON texts.

        For a Spark DataFrame, streaming or not, the result is a DataFrame.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.stream.schema}>"


@dataclass(frozen=True, repr=False)
class Debezium(Feed):
    """Envelopes of changes."""

    version: str = "lsn"
    optional: tuple[str, ...] = ()

    def rows(self, data: Any) -> Any:
        envelopes = Envelopes(self.schema, self.key, self.version, self.optional)
        if _is_spark(data):
            from recension.runners.spark.change_feeds import debezium_rows

            return debezium_rows(data, envelopes, self.name)
        return envelopes.rows(data, self.name)


@dataclass(frozen=True, repr=False)
class DeltaChanges(Feed):
    """Rows of a change feed."""

    def rows(self, data: Any) -> Any:
        if _is_spark(data):
            from recension.runners.spark.change_feeds import delta_elements, delta_rows

            return (delta_rows if self.key else delta_elements)(data, self.schema)
        read = change_feeds.delta_rows if self.key else change_feeds.delta_elements
        return read(data, self.schema, self.name)


@dataclass(frozen=True, repr=False)
class Scd2(Feed):
    """Rows of a table with intervals."""

    columns: Scd2Columns

    def rows(self, data: Any) -> Any:
        if _is_spark(data):
            from recension.runners.spark.change_feeds import scd2_rows

            return scd2_rows(data, self.columns)
        return change_feeds.scd2_rows(data, self.columns, self.name)


def debezium(
    name: str,
    schema: IntoSchema,
    key: str | Sequence[str],
    *,
    version: str = "lsn",
    optional: str | Sequence[str] = (),
    on_violation: Policy = "raise",
) -> Debezium:
    """Change data capture in Debezium's envelope: ``op``, ``before``, ``after``, ``source``.

    The order of the log decides: rows are ordered by ``source.lsn`` (or another field of ``source`` that
    ``version`` names), and each begins at the latest ``source.ts_ms`` up to it.

    Columns that are not in the schema are ignored. If a message lacks a column of the schema, that is an
    error, unless the column is ``optional``: then it is null, as in messages from before the column was added
    to the table. The command and `rc.kafka` read envelopes directly; for other runners ``rows`` makes rows of
    them.

    >>> import recension as rc
    >>> orders = rc.debezium("orders", {"id": "int64", "state": "string"}, key="id")
    >>> def message(op, before, after, lsn, ms):
    ...     return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": ms}}
    >>> log = [
    ...     message("c", None, {"id": 1, "state": "new"}, 1, 1_000),
    ...     message("u", None, {"id": 1, "state": "paid"}, 2, 999),
    ... ]
    >>> rc.run(orders.stream, {"orders": orders.rows(log)}).history().show()
    _vs                        _ve  id  state
    1970-01-01 00:00:01+00:00  ∞    1   paid
    """
    columns, keys = _log_schema(schema, "debezium"), key_names(key, "debezium(key=)")
    lacking = (optional,) if isinstance(optional, str) else tuple(optional)
    for column in lacking:
        if column not in columns.names:
            raise SchemaError(
                f"debezium: optional={column!r}{suggest_name(column, columns.names)} is no column"
            )
        if column in keys:
            raise SchemaError(f"debezium: optional={column!r} is in the key, which every message has")
    envelopes = Envelopes(columns, keys, version, lacking)
    log = _log(name, columns, keys, on_violation, times=INSTANTS, envelopes=envelopes)
    return Debezium(name, columns, keys, log, version, lacking)


def delta_changes(
    name: str, schema: IntoSchema, key: str | Sequence[str] = (), *, on_violation: Policy = "raise"
) -> DeltaChanges:
    """Delta's change feed: ``_change_type``, ``_commit_version``, ``_commit_timestamp``.

    Rows are ordered by their commits, and each begins at the latest commit time up to it. Without a key, a
    row is valid from the commit that inserts it to the commit that deletes it; of equal rows the one that was
    inserted last ends first. On Spark such a feed has no CTIs: ``advance_time`` makes them.

    >>> import datetime as dt
    >>> import recension as rc
    >>> orders = rc.delta_changes("orders", {"id": "int64"})
    >>> def change(kind, id, commit):
    ...     at = dt.datetime(2024, 1, commit, tzinfo=dt.UTC)
    ...     return {"_change_type": kind, "id": id, "_commit_version": commit, "_commit_timestamp": at}
    >>> log = [change("insert", 7, 1), change("update_preimage", 7, 2), change("update_postimage", 8, 2)]
    >>> rc.run(orders.stream, {"orders": orders.rows(log)}).history().show()
    _vs                        _ve                        id
    2024-01-01 00:00:00+00:00  2024-01-02 00:00:00+00:00  7
    2024-01-02 00:00:00+00:00  ∞                          8
    """
    if not key:
        columns = _log_schema(schema, "delta_changes")
        rows = source(name, columns, on_violation=on_violation, times=INSTANTS).plan
        assert isinstance(rows, Source)
        return DeltaChanges(name, columns, (), Stream(replace(rows, closes_once=True)))
    columns, keys = _log_schema(schema, "delta_changes"), key_names(key, "delta_changes(key=)")
    return DeltaChanges(name, columns, keys, _log(name, columns, keys, on_violation))


def scd2(
    name: str,
    schema: IntoSchema,
    key: str | Sequence[str],
    start: str = "valid_from",
    end: str = "valid_to",
    current: str | None = "is_current",
    *,
    version: IntoRowColumn | None = None,
    deleted: str | None = None,
    on_violation: Policy = "raise",
    times: IntoType | None = None,
) -> Scd2:
    """A table of slowly changing dimensions, type 2, as it grows: rows come again when they get an end.

    A row is identified by its key and its start. If ``current`` is true it has no end, whatever ``end`` is.
    A row whose end is its start is ignored, unless ``deleted`` is true.

    >>> import recension as rc
    >>> sites = rc.scd2("sites", {"site": "string", "tier": "int64"}, key="site")
    >>> first = [{"site": "CERN", "tier": 1, "valid_from": 3, "valid_to": None, "is_current": True}]
    >>> then = [
    ...     {"site": "CERN", "tier": 1, "valid_from": 3, "valid_to": 8, "is_current": False},
    ...     {"site": "CERN", "tier": 0, "valid_from": 8, "valid_to": None, "is_current": True},
    ... ]
    >>> live = rc.session(sites.stream)
    >>> live.push("sites", sites.rows(first))
    >>> live.push("sites", sites.rows(then))
    >>> live.history().show()
    _vs  _ve  site  tier
    3    8    CERN  1
    8    ∞    CERN  0
    """
    columns, keys = schema_of(schema, "scd2"), key_names(key, "scd2(key=)")
    if ROW_FROM in columns.names:
        raise SchemaError(f"scd2: a column {ROW_FROM!r} cannot be read, the name is taken: rename it")
    stated = {**{one.name: one.type for one in columns}, ROW_FROM: "int64"}
    records = source(
        name,
        stated,
        start,
        end,
        None,
        on_violation,
        times=times,
        key=[*keys, ROW_FROM],
        version=version,
        deleted=deleted,
    )
    row_columns = records.plan.inputs[0].schema.names
    extra = tuple(column for column in row_columns if column not in stated)
    return Scd2(
        name,
        columns,
        keys,
        records.drop(ROW_FROM),
        Scd2Columns(columns, start, end, current, deleted, extra),
    )


def to_scd2(
    history: Any,
    key: str | Sequence[str],
    start: str = "valid_from",
    end: str = "valid_to",
    current: str = "is_current",
) -> Any:
    """A history as an SCD type 2 table, by key and start; for a DataFrame of a history, a DataFrame.

    >>> import recension as rc
    >>> past = rc.History.from_events([rc.Event({"site": "CERN", "tier": 1}, 3, 8)])
    >>> rc.to_scd2(past, key="site").to_pylist()
    [{'site': 'CERN', 'tier': 1, 'valid_from': 3, 'valid_to': 8, 'is_current': False}]
    """
    keys = key_names(key, "to_scd2(key=)")
    if _is_spark(history):
        from recension.runners.spark.change_feeds import scd2_table

        return scd2_table(history, start, end, current)
    from recension.runners.result import Result

    if isinstance(history, Result):
        history = history.history()
    table = history.to_arrow() if isinstance(history, History) else history
    return change_feeds.scd2_table(table, keys, start, end, current)


def _log_schema(schema: IntoSchema, verb: str) -> pa.Schema:
    columns = schema_of(schema, verb)
    for name in LOG_COLUMNS:
        if name in columns.names:
            raise SchemaError(f"{verb}: a column {name!r} cannot be read, the name is taken: rename it")
    return columns


def _log(
    name: str,
    columns: pa.Schema,
    key: tuple[str, ...],
    policy: Policy,
    times: IntoType | None = None,
    envelopes: Envelopes | None = None,
) -> Stream:
    log = changes(
        name, columns, key, LOG_TIME, LOG_VERSION, LOG_DELETED, policy, times=times, order="version"
    )
    step = log.plan
    if envelopes is None or not isinstance(step, ChangesByKey) or not isinstance(step.input, RowSource):
        return log
    return Stream(replace(step, input=replace(step.input, envelopes=envelopes)))


def _is_spark(data: Any) -> bool:
    """Is it a Spark DataFrame? Spark may not be installed."""
    return not isinstance(data, StreamBase) and type(data).__module__.startswith("pyspark.")
