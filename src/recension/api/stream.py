"""Streams: what a query is written with."""

from __future__ import annotations

from recension.api.aggregation import AggregateMethods, WindowMethods
from recension.api.coalescing import CoalescingMethods
from recension.api.consistency import ConsistencyMethods
from recension.api.inspection import InspectionMethods
from recension.api.lifetime import JoinMethods, LifetimeMethods
from recension.api.span import SpanMethods
from recension.api.windows import WindowedStream
from recension.core.ticks import TimeLike, instant
from recension.core.validity import Policy
from recension.plan.module_window import WindowKind
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.schemas import IntoSchema, IntoType, schema_of, type_of
from recension.plan.source import Source


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
    times: IntoType | None = None,
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
    times
        What its times are: ``"int64"`` ticks or timestamps, as in ``"timestamp[us, UTC]"``. ``rc.start()``
        and ``rc.end()`` are of this type. Without it they are timestamps if the columns ``start`` and ``end``
        are, else ticks.

    >>> source("leases", {"user": "string", "bytes": "float64"})
    <Stream source leases: user string, bytes float64>
    """
    declared = NOTHING_KNOWN if properties is None else properties
    columns, begin = schema_of(schema, "source"), int(instant(since))
    kind = None if times is None else type_of(times, "source, times")
    return Stream(Source(name, columns, start, end, declared, on_violation, external_ctis, begin, kind))
