"""Streams: what a query is written with."""

from __future__ import annotations

from recension.api.aggregation import AggregateMethods, WindowMethods
from recension.api.coalescing import CoalescingMethods
from recension.api.consistency import ConsistencyMethods
from recension.api.inspection import InspectionMethods
from recension.api.lifetime import JoinMethods, LifetimeMethods
from recension.api.span import SpanMethods
from recension.api.windows import WindowedStream
from recension.core.errors import TimeError
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.core.validity import Policy
from recension.plan.module_window import WindowKind
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.schemas import IntoSchema, schema_of
from recension.plan.source import Source, Table


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
    """A query over streams. Every method gives a new stream; nothing runs until a runner is asked to."""

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
) -> Stream:
    """A named input of a query.

    Parameters
    ----------
    name
        What runners call the input.
    schema
        The payload columns: ``{name: Arrow type or its name}``.
    start, end
        Columns of a plain table that hold the times of its events.
    properties
        What is known of the feed. It is relied on; of all it says, only that there are no retractions is
        checked.
    on_violation
        What happens to elements that no valid stream may hold: ``raise``, ``drop``, or ``adjust``, which
        moves late ones to the last CTI, and what corrects them with them.
    external_ctis
        The feed carries external CTIs, and retractions may come before what they retract. Where a step above
        has state, a ``finalize`` is put onto the source, unless the query says one itself.
    since
        Where the external CTIs begin; a ``finalize`` of the query's own may name another time.

    >>> source("leases", {"user": "string", "bytes": "float64"})
    <Stream source leases: user string, bytes float64>
    """
    declared = NOTHING_KNOWN if properties is None else properties
    columns, begin = schema_of(schema, "source"), int(instant(since))
    return Stream(Source(name, columns, start, end, declared, on_violation, external_ctis, begin))


def table(name: str, schema: IntoSchema, refresh: DurationLike | None = None) -> Stream:
    """A named table without times, such as one of sites or prices, to join streams with.

    Its rows are true for ever. It is read once and then closed, so that a join with it waits for the stream
    alone. Windows over a table by itself are refused: they would have no end.

    Parameters
    ----------
    name
        What runners call the input: a table or frame with at least these columns, a file, a batch DataFrame.
    schema
        The columns: ``{name: Arrow type or its name}``.
    refresh
        The table may be read again, about so often. Its CTI then follows the streams that it is joined with,
        and what has changed holds from that CTI on. In a session each push is a new version; a run reads it
        once.

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
    return Stream(Table(name, schema_of(schema, "table"), declared=known, refresh=period))
