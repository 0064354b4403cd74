"""The oracle: what every operator means, one pure function from histories to a history.

The files cite their sources by short names: [GH] "Operator Algorithm Design for Speculative Stream
Processing", [TR] "Consistency Sensitive Streaming Operators in CEDR", [SI] "The Extensibility Framework
in Microsoft StreamInsight", and "Temporal Coalescing on Window Extents over Data Streams".
"""

from recension.denote.aggregates import (
    Aggregate,
    RowFunction,
    agg,
    aggregate,
    collect,
    count,
    first,
    last,
    max,
    mean,
    min,
    quantile,
    stddev,
    sum,
    top_k,
)
from recension.denote.alter_lifetime import (
    alter_lifetime,
    clip,
    deletes,
    extend,
    hop_lifetime,
    inserts,
    set_duration,
    shift,
    to_points,
)
from recension.denote.beliefs import beliefs
from recension.denote.coalesce import coalesce, distinct
from recension.denote.edges import edges
from recension.denote.extents import coalesce_range, coalesce_rows
from recension.denote.grouped import grouped
from recension.denote.join import join
from recension.denote.merge import merge
from recension.denote.order import History, canonical
from recension.denote.span import drop, map_payload, rename, select, union, where, with_columns
from recension.denote.windowed import TimeSensitive, window_aggregate, window_apply, window_measure
from recension.denote.windows import (
    Window,
    Windows,
    count_window,
    hopping,
    snapshot,
    snapshot_windows,
    tumbling,
)

__all__ = [
    "Aggregate",
    "History",
    "RowFunction",
    "TimeSensitive",
    "Window",
    "Windows",
    "agg",
    "aggregate",
    "alter_lifetime",
    "beliefs",
    "canonical",
    "clip",
    "coalesce",
    "coalesce_range",
    "coalesce_rows",
    "collect",
    "count",
    "count_window",
    "deletes",
    "distinct",
    "drop",
    "edges",
    "extend",
    "first",
    "grouped",
    "hop_lifetime",
    "hopping",
    "inserts",
    "join",
    "last",
    "map_payload",
    "max",
    "mean",
    "merge",
    "min",
    "quantile",
    "rename",
    "select",
    "set_duration",
    "shift",
    "snapshot",
    "snapshot_windows",
    "stddev",
    "sum",
    "to_points",
    "top_k",
    "tumbling",
    "union",
    "where",
    "window_aggregate",
    "window_apply",
    "window_measure",
    "with_columns",
]
