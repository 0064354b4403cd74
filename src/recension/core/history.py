"""Histories: what a stream means (CEDR's canonical history table, LMerge's TDB).

A history is a bag of ``(vs, ve, payload)``. Two streams are equivalent when their histories are equal.
Both can be read by people as a table: `History.show`, `show_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core import frames
from recension.core.batch import CTI, KIND_NAMES, RETRACT, EventBatch, Mask, payload_of
from recension.core.errors import SchemaError, StreamError, TimeError
from recension.core.events import Event, kind_of_element
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import FOREVER, Ticks, TimeLike, from_arrow, instant, is_time, to_arrow
from recension.core.time_kind import (
    TICKS,
    TimeKind,
    describe_time,
    kind_of,
    kind_of_column,
    merge_kinds,
    of_kind,
)
from recension.core.values import rows_of, values_of


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class History:
    """Events with their final lifetimes, in no particular order.

    ``time_type`` says how times are written on output: int64 ticks or microsecond timestamps.

    >>> import pyarrow as pa
    >>> table = pa.table({"_vs": [1, 2], "_ve": [5, None], "user": ["ann", "bob"]})
    >>> History.from_arrow(table)
    <History of 2 events: user>
    >>> History.from_pandas(History.from_arrow(table).to_pandas()).to_arrow().equals(table)
    True
    """

    vs: Ticks
    ve: Ticks
    payload: pa.Table
    time_type: pa.DataType = field(default_factory=pa.int64)

    def __len__(self) -> int:
        return len(self.vs)

    def __repr__(self) -> str:
        return f"<History of {len(self):,} events: {', '.join(self.schema.names)}>"

    @property
    def schema(self) -> pa.Schema:
        """The payload's columns."""
        return self.payload.schema

    @staticmethod
    def from_events(events: Sequence[Event], schema: pa.Schema | None = None) -> History:
        """A history written as Python values."""
        kind: TimeKind = reduce(merge_kinds, map(kind_of_element, events), None)
        if schema is None:
            names = list(dict.fromkeys(name for e in events for name in e.payload))
            schema = pa.schema([(n, pa.array([e.payload.get(n) for e in events]).type) for n in names])
        payload = payload_of([e.payload for e in events], schema)
        vs, ve = (np.array([getattr(e, end) for e in events], np.int64) for end in ("vs", "ve"))
        return History(vs, ve, pa.Table.from_batches([payload]), TICKS if kind is None else kind)

    @staticmethod
    def from_arrow(table: pa.Table) -> History:
        """A history from a table with ``_vs``, ``_ve`` (null = forever) and payload columns."""
        table = frames.arrow_table(table, "History.from_arrow")
        if "_kind" in table.column_names:
            raise SchemaError(
                "a table with a column _kind is a stream, no history: Result.from_arrow(table).history()"
            )
        if missing := {"_vs", "_ve"} - set(table.column_names):
            raise SchemaError(
                f"a history needs the columns _vs and _ve; missing: {', '.join(sorted(missing))}"
            )
        if table["_vs"].null_count:
            raise TimeError("column _vs has nulls: every event of a history has a start")
        vs, ve = (
            from_arrow(table[name].combine_chunks(), name)
            .fill_null(pa.scalar(FOREVER, pa.int64()))
            .to_numpy(zero_copy_only=False)
            for name in ("_vs", "_ve")
        )
        kind = _written_type(table)
        _require_lifetimes(vs, ve, kind)
        return History(vs, ve, table.drop_columns(["_vs", "_ve"]), kind)

    @staticmethod
    def from_pandas(frame: Any) -> History:
        """A history from a pandas frame with the columns ``_vs`` and ``_ve``, as `to_pandas` gives it."""
        return History.from_arrow(frames.table_of(frame, "history"))

    @staticmethod
    def from_polars(frame: Any) -> History:
        """A history from a polars frame with the columns ``_vs`` and ``_ve``, as `to_polars` gives it."""
        return History.from_arrow(frames.table_of(frame, "history"))

    def to_arrow(self, time_type: pa.DataType | None = None) -> pa.Table:
        """A table with ``_vs``, ``_ve`` (null = forever) and the payload."""
        unit = self.time_type if time_type is None else time_type
        times = [
            to_arrow(self.vs, unit, null_forever=False),
            to_arrow(self.ve, unit, null_forever=True),
        ]
        return pa.table([*times, *self.payload.columns], names=["_vs", "_ve", *self.payload.column_names])

    def to_pandas(self) -> Any:
        """A pandas frame: ``_vs``, ``_ve`` (missing = forever) and the payload, in nullable types."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """A polars frame: ``_vs``, ``_ve`` (null = forever) and the payload."""
        return frames.to_polars(self.to_arrow())

    def show(self, rows: int = 20) -> None:
        """Print the first events by lifetime, as a table.

        >>> History.from_events([Event({"user": "ann"}, 1), Event({"user": "bob"}, 0, 5)]).show()
        _vs  _ve  user
        0    5    bob
        1    ∞    ann
        """
        order = np.lexsort((self.ve, self.vs))[:rows]
        payload = self.payload.take(pa.array(order)) if self.payload.num_columns else self.payload
        times = {"_vs": self.vs, "_ve": self.ve}
        cells = {name: _time_cells(column[order], self.time_type) for name, column in times.items()}
        print(_show_rows(cells, payload, len(self) - len(order)))

    def plot(self, ax: Any = None, *, lanes: str | None = None, most: int = 2_000) -> Any:
        """Draw the lifetimes as bars on matplotlib axes and return them; needs ``recension[plot]``.

        ``lanes`` is the column whose values are the lanes; by default the first text column with few values.
        If there are more than ``most`` events, the first are drawn, and the title says so.

        >>> import matplotlib; matplotlib.use("agg")
        >>> axes = History.from_events([Event({"user": "ann"}, 1, 4), Event({"user": "bob"}, 0, 5)]).plot()
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['ann', 'bob']
        """
        from recension.core.pictures import draw, plot

        return plot(draw(self, lanes=lanes, most=most), ax)

    def _repr_html_(self) -> str:
        """For notebooks: a timeline and a table of the first events."""
        from recension.core.pictures import history_html

        return history_html(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For libraries that take Arrow: the table of `to_arrow`.

        >>> pa.table(History.from_events([Event({"user": "ann"}, 1, 4)])).column_names
        ['_vs', '_ve', 'user']
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_events(self) -> list[Event]:
        """The events as Python values, ordered by lifetime; times are of the history's kind."""
        payloads = rows_of(self.payload) if self.payload.num_columns else [{}] * len(self)
        order = np.lexsort((self.ve, self.vs)).tolist()
        vs, ve = ([of_kind(t, self.time_type) for t in times.tolist()] for times in (self.vs, self.ve))
        return [Event(payloads[i], vs[i], ve[i]) for i in order]

    def filter(self, keep: Mask) -> History:
        """The events where ``keep`` is true."""
        payload = self.payload.filter(pa.array(keep)) if self.payload.num_columns else self.payload
        return replace(self, vs=self.vs[keep], ve=self.ve[keep], payload=payload)

    def at(self, t: TimeLike) -> History:
        """The events that are true at ``t``, with their whole lifetimes.

        This is valid time. For what was believed at some time, use ``session.history(as_of=...)``.

        >>> History.from_events([Event({"user": "ann"}, 1), Event({"user": "bob"}, 0, 5)]).at(5).show()
        _vs  _ve  user
        1    ∞    ann
        """
        moment = instant(t)
        merge_kinds(kind_of(moment), self.time_type if len(self) else None)
        return self.filter((self.vs <= moment) & (moment < self.ve))

    def before(self, t: int) -> History:
        """What is true before ``t``: events that start before it, clipped at it."""
        started = self.filter(self.vs < t)
        return replace(started, ve=np.minimum(started.ve, t))

    def identity(self) -> Hashes:
        """One hash per event over lifetime and payload: equal events have equal identities."""
        return combine(combine(table_hash(self.payload, len(self)), self.vs), self.ve)


def table_hash(payload: pa.Table, size: int) -> Hashes:
    """Row hashes of a table, a chunk at a time."""
    if not payload.num_columns:
        return row_hash(pa.record_batch([]), size)
    hashes = [row_hash(chunk) for chunk in payload.to_batches()]
    return np.concatenate([np.zeros(0, np.uint64), *hashes])


def concat_histories(parts: Iterable[History]) -> History:
    """The bag union of histories of one schema."""
    parts = list(parts)
    return History(
        np.concatenate([p.vs for p in parts]),
        np.concatenate([p.ve for p in parts]),
        pa.concat_tables([p.payload for p in parts]),
        *(p.time_type for p in parts[:1]),
    )


def _require_lifetimes(vs: Ticks, ve: Ticks, kind: pa.DataType) -> None:
    wrong = ve <= vs
    if bool(wrong.any()):
        at = int(np.argmax(wrong))
        start, end = describe_time(int(vs[at]), kind), describe_time(int(ve[at]), kind)
        raise StreamError(f"the lifetime [{start}, {end}) is empty", file="history", row=at + 1)


def _written_type(table: pa.Table) -> pa.DataType:
    """How a table writes times, in the types that histories are written in."""
    columns = [table.schema.field(name) for name in ("_vs", "_ve")]
    for column in columns:
        if not is_time(column.type):
            raise TimeError(f"column {column.name} is {column.type}; a time is an int64 or a timestamp")
    kind = merge_kinds(*(kind_of_column(column.type) for column in columns))
    return TICKS if kind is None else kind


def show_changes(batch: EventBatch, rows: int = 20, time_type: TimeKind = None) -> str:
    """The first elements of a stream in their order, in columns; unused cells are empty.

    >>> from recension.core.batch import from_elements
    >>> from recension.core.events import Cti, Insert, Retract
    >>> ann = {"user": "ann"}
    >>> schema = pa.schema([("user", pa.string())])
    >>> print(show_changes(from_elements([Insert(ann, 1), Retract(ann, 1, 2**63 - 1, 5), Cti(9)], schema)))
    _kind    _vs  _ve  _new_ve  user
    insert   1    ∞             ann
    retract  1    ∞    5        ann
    cti      9
    """
    first = batch.slice(0, min(rows, len(batch)))
    cells = {
        "_kind": [KIND_NAMES[kind] for kind in first.kind.tolist()],
        "_vs": _time_cells(first.vs, time_type),
        "_ve": _time_cells(first.ve, time_type, used=first.kind != CTI),
        "_new_ve": _time_cells(first.new_ve, time_type, used=first.kind == RETRACT),
    }
    return _show_rows(cells, first.payload, len(batch) - len(first))


def _time_cells(times: Ticks, kind: TimeKind, used: Mask | None = None) -> list[str]:
    """Times as people read them, empty where they are not used."""
    is_used = [True] * len(times) if used is None else used.tolist()
    return [describe_time(t, kind) if shows else "" for t, shows in zip(times.tolist(), is_used, strict=True)]


def _show_rows(cells: Mapping[str, list[str]], payload: pa.Table | pa.RecordBatch, left: int) -> str:
    """Lines of aligned columns, under their names; ``left`` rows are not among them."""
    columns = [[name, *column] for name, column in cells.items()]
    for name, column in zip(payload.schema.names, payload.columns, strict=True):
        columns.append([name, *("" if value is None else str(value) for value in values_of(column))])
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + ([f"… and {left} more"] if left > 0 else []))
