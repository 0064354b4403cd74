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
    all,
    any,
    arg_max,
    arg_min,
    collect,
    computed,
    count,
    filtered,
    first,
    last,
    max,
    mean,
    median,
    min,
    n_unique,
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
    with_lifetime,
)
from recension.denote.beliefs import beliefs
from recension.denote.calendar import calendar_windows
from recension.denote.coalesce import coalesce, distinct
from recension.denote.edges import edges
from recension.denote.extents import coalesce_range, coalesce_rows
from recension.denote.grouped import grouped
from recension.denote.interval_join import interval_join, unless
from recension.denote.join import join
from recension.denote.merge import merge
from recension.denote.order import History, canonical
from recension.denote.patterns import all_of, at_least, sequence
from recension.denote.span import (
    drop,
    map_payload,
    rename,
    select,
    union,
    where,
    where_event,
    with_columns,
    with_event_columns,
)
from recension.denote.windowed import (
    TimeSensitive,
    time_weighted_mean,
    window_aggregate,
    window_apply,
    window_measure,
)
from recension.denote.windows import (
    Window,
    Windows,
    count_window,
    hopping,
    sessions,
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
    "all",
    "all_of",
    "alter_lifetime",
    "any",
    "arg_max",
    "arg_min",
    "at_least",
    "beliefs",
    "calendar_windows",
    "canonical",
    "clip",
    "coalesce",
    "coalesce_range",
    "coalesce_rows",
    "collect",
    "computed",
    "count",
    "count_window",
    "deletes",
    "distinct",
    "drop",
    "edges",
    "extend",
    "filtered",
    "first",
    "grouped",
    "hop_lifetime",
    "hopping",
    "inserts",
    "interval_join",
    "join",
    "last",
    "map_payload",
    "max",
    "mean",
    "median",
    "merge",
    "min",
    "n_unique",
    "quantile",
    "rename",
    "select",
    "sequence",
    "sessions",
    "set_duration",
    "shift",
    "snapshot",
    "snapshot_windows",
    "stddev",
    "sum",
    "time_weighted_mean",
    "to_points",
    "top_k",
    "tumbling",
    "union",
    "unless",
    "where",
    "where_event",
    "window_aggregate",
    "window_apply",
    "window_measure",
    "with_columns",
    "with_event_columns",
    "with_lifetime",
]
