"""A mistake in a query is an error on its line, in words a user knows, with the columns that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension import col
from recension.core.errors import RecensionError, SchemaError, TimeError

any_column: Any = col("bytes")  # a type checker would refuse what is refused here
leases = rc.source("leases", {"user": "string", "site": "string", "bytes": "float64"})
prices = rc.source("prices", {"d": pa.decimal128(10, 2)})
sites = rc.source("sites", {"site": "string", "bytes": "int64"})
EXIST = "the columns are user (string), site (string), bytes (float64)"


def never(vs: Any) -> Any:
    """A function of lifetimes needs two arguments."""


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Columns and types
    (
        lambda: leases.where(col("byte") > 0),
        SchemaError,
        f"where(byte > 0): there is no column 'byte' (did you mean 'bytes'?); {EXIST}",
    ),
    (
        lambda: leases.where(col("site") > 0),
        SchemaError,
        "where(site > 0): cannot compute site > 0, where site is string:"
        " greater does not take (string, int64)",
    ),
    (
        lambda: leases.where("bytes"),
        SchemaError,
        "where(bytes): a condition must be true or false, but bytes is float64",
    ),
    (lambda: leases.where(), SchemaError, "where: give a condition, such as col('bytes') > 0"),
    (lambda: leases.select("x"), SchemaError, f"select(x): there is no column 'x'; {EXIST}"),
    (
        lambda: leases.select(y=col("x") + 1),
        SchemaError,
        f"select(y=x + 1): there is no column 'x'; {EXIST}",
    ),
    (lambda: leases.drop("x"), SchemaError, f"drop: there is no column 'x'; {EXIST}"),
    (lambda: leases.rename({"x": "y"}), SchemaError, f"rename: there is no column 'x'; {EXIST}"),
    (
        lambda: leases.with_columns(x=any_column.sum()),
        SchemaError,
        "bytes.sum(): sum() looks at other rows, but expressions are computed row by row;"
        " use agg(...) to compute over several events",
    ),
    # Names
    (lambda: leases.rename({"user": "site"}), SchemaError, "rename: two columns would be named 'site'"),
    (
        lambda: leases.select(col("bytes") * 2, "bytes"),
        SchemaError,
        "select: two columns would be named 'bytes'",
    ),
    (
        lambda: leases.with_columns(_vs=1),
        SchemaError,
        "with_columns: '_vs' is a control column of streams; choose another name",
    ),
    (
        lambda: rc.source("s", {"_kind": "string"}),
        SchemaError,
        "source: '_kind' is a control column of streams; choose another name",
    ),
    (
        lambda: rc.source("s", {"_k": "string"}),
        SchemaError,
        "source: column '_k': names that start with _ are reserved",
    ),
    (
        lambda: rc.source("s", {"x": "strin"}),
        SchemaError,
        "source, column 'x': 'strin' is not a type; write an Arrow type or its name:"
        " 'string', 'int64', 'float64', 'bool', 'timestamp[us]' ...",
    ),
    (
        lambda: rc.source("s", ["x"]),
        SchemaError,
        "source: a schema is {name: type}, not ['x']",
    ),
    (
        lambda: rc.source("s", pa.schema([("x", pa.int64()), ("x", pa.int64())])),
        SchemaError,
        "source: two columns would be named 'x'",
    ),
    (
        lambda: rc.source("s", {"x": "int64"}, on_violation="ignore"),  # type: ignore[arg-type]
        RecensionError,
        "source: on_violation is 'raise', 'drop' or 'adjust', not 'ignore'",
    ),
    (
        lambda: rc.source("s", {"x": "int64"}, end="until"),
        RecensionError,
        "source: end='until' needs a start= column as well",
    ),
    # Groups and aggregates
    (lambda: leases.group_by("x"), SchemaError, f"group_by(x): there is no column 'x'; {EXIST}"),
    (
        lambda: leases.group_by(),
        SchemaError,
        "group_by: give at least one key, or aggregate the stream as it is",
    ),
    (
        lambda: leases.group_by("site").agg(site=rc.count()),
        SchemaError,
        "agg: two columns would be named 'site'",
    ),
    (
        lambda: leases.agg(x=rc.sum("site")),
        SchemaError,
        "sum(site): sum needs numbers, but site is string; if it holds numbers, cast it to float64 or int64",
    ),
    *(
        (
            lambda of=of: prices.agg(x=of),
            SchemaError,
            f"{said}: {name} does not take decimals, and d is decimal128(10, 2); cast it to float64, or to "
            "be exact to int64 in units of 0.01 (times 100)",
        )
        for name, said, of in (
            ("stddev", "stddev(d)", rc.stddev("d")),
            ("quantile", "quantile(d, 0.5)", rc.quantile("d", 0.5)),
        )
    ),
    (
        lambda: prices.agg(x=rc.sum(col("d").cast(pa.decimal256(40, 2)))),
        SchemaError,
        "sum(d.cast('decimal256(40, 2)')): sum takes decimals of at most 38 digits, with a scale from 0, and "
        "d.cast('decimal256(40, 2)') is decimal256(40, 2); cast it to decimal128(38, 0) or float64",
    ),
    # Aggregates are expressions, in agg and having only
    (
        lambda: leases.where(rc.count() > 3),
        SchemaError,
        "count() is an aggregate, here in count() > 3: it is computed from many events, not for each one; "
        "use it in agg(...) or having(...)",
    ),
    (
        lambda: leases.agg(x=rc.sum(rc.max("bytes"))),
        SchemaError,
        "max(bytes) is an aggregate: it is computed from many events, not for each one; use it in "
        "agg(...) or having(...)",
    ),
    (
        lambda: leases.agg(x=rc.sum("bytes") / col("bytes")),
        SchemaError,
        "agg: sum(bytes) / bytes reads bytes outside of an aggregate, where only keys of groups have one "
        "value; take rc.first('bytes'), rc.max('bytes'), ...",
    ),
    (
        lambda: leases.agg(x=col("bytes")),
        SchemaError,
        "agg: bytes is not an aggregate; use rc.count(), rc.sum('column'), ...",
    ),
    (
        lambda: leases.agg(rc.sum("bytes") / rc.count()),
        SchemaError,
        "agg: name each aggregate, as in agg(answer=sum(bytes) / count())",
    ),
    (
        lambda: leases.agg(x=rc.top_k(3, by="bytes") + 1),
        SchemaError,
        "agg: top_k(3, by=bytes) yields rows, so nothing can be computed from it",
    ),
    (
        lambda: leases.agg(n=rc.count()).select("n").having(rc.sum("bytes") > 3),
        SchemaError,
        "having(sum(bytes) > 3): sum(bytes) is an aggregate of events, and the step before has no "
        "aggregates; write having(...) right after agg(...), or where(...) of its columns",
    ),
    (lambda: leases.having(), SchemaError, "having: give a condition, such as rc.count() > 1"),
    (
        lambda: leases.agg(x=rc.any("bytes")),
        SchemaError,
        "any(bytes): any needs truth values, but bytes is float64; give a condition, such as col('x') > 0",
    ),
    (
        lambda: leases.agg(x=rc.first("site", where="bytes")),
        SchemaError,
        "first(where=bytes): a condition must be true or false, but bytes is float64",
    ),
    (
        lambda: rc.quantile("bytes", 0.5, "other"),  # type: ignore[arg-type]
        SchemaError,
        "quantile: interpolation is one of 'linear', 'lower', 'higher', 'nearest', 'midpoint', not 'other'",
    ),
    # Steps made of others speak of themselves
    (
        lambda: leases.as_of(sites, on="bytes"),
        SchemaError,
        "as_of(on=...): column 'bytes' is float64 here and int64 in the other stream; cast one of them",
    ),
    (
        lambda: leases.as_of(sites, on="user"),
        SchemaError,
        "as_of(on=...), in the stream of readings: there is no column 'user'; the columns are site (string), "
        "bytes (int64)",
    ),
    (
        lambda: leases.as_of(sites, on="site", suffix=""),
        SchemaError,
        "as_of(suffix=''): two columns would be named 'bytes'",
    ),
    (
        lambda: leases.as_of(sites, on=3),  # type: ignore[arg-type]
        SchemaError,
        "as_of: a key is a column's name, not 3",
    ),
    (
        lambda: leases.alter_lifetime(duration=0),
        TimeError,
        "alter_lifetime: a duration must be 1 tick or more, not 0 ticks",
    ),
    (
        lambda: leases.consistency(block=-1),
        TimeError,
        "consistency: block=-1 ticks; it takes 0 or more, or FOREVER",
    ),
    (
        lambda: leases.consistency(remember=-1),
        TimeError,
        "consistency: remember=-1 ticks; it takes 0 or more, or FOREVER",
    ),
    (
        lambda: leases.group_by("site").apply(3),  # type: ignore[arg-type]
        SchemaError,
        "apply: a function from a group's stream to a stream is needed, not 3",
    ),
    (lambda: leases.agg(x=rc.mean("x")), SchemaError, f"mean(x): there is no column 'x'; {EXIST}"),
    (lambda: leases.agg(), SchemaError, "agg: give at least one aggregate, such as n=rc.count()"),
    (lambda: leases.agg(rc.count()), SchemaError, "agg: name each aggregate, as in agg(answer=rc.count())"),
    (
        lambda: leases.agg(n=1),  # type: ignore[arg-type]
        SchemaError,
        "agg: 1 is not an aggregate; use rc.count(), rc.sum('column'), ...",
    ),
    (
        lambda: leases.agg(n=rc.count(), speculate="fast"),  # type: ignore[arg-type]
        SchemaError,
        "agg: speculate is 'perfect', 'ordered' or 'eager', not 'fast'",
    ),
    (
        lambda: leases.agg(n=rc.count(), top=rc.top_k(2, by="bytes")),
        SchemaError,
        "agg: top_k(2, by=bytes) yields rows, so it must be the only aggregate",
    ),
    (
        lambda: leases.with_columns(rank=1).agg(rc.top_k(2, by="bytes")),
        SchemaError,
        "top_k adds a column 'rank', and the payload has one; rename it first",
    ),
    (lambda: rc.top_k(0, by="bytes"), SchemaError, "top_k: k is a whole number from 1, not 0"),
    (lambda: rc.quantile("bytes", 2), SchemaError, "quantile: q lies between 0 and 1, not 2"),
    (
        lambda: leases.select(x=rc.lit([1, 2])).agg(x=rc.max("x")),
        SchemaError,
        "max(x): values of type list<item: int64> have no order",
    ),
    # Joins, unions
    (
        lambda: leases.join(sites, on="sit"),
        SchemaError,
        f"join(on=...): there is no column 'sit' (did you mean 'site'?); {EXIST}",
    ),
    (
        lambda: leases.join(sites, on="user"),
        SchemaError,
        "join(on=...), in the right stream: there is no column 'user';"
        " the columns are site (string), bytes (int64)",
    ),
    (
        lambda: leases.join(sites, on="bytes"),
        SchemaError,
        "join(on=...): column 'bytes' is float64 here and int64 in the other stream; cast one of them",
    ),
    (
        lambda: leases.join(sites, on="site", how="outer"),  # type: ignore[arg-type]
        SchemaError,
        "join: how is 'inner', 'left', 'full', 'semi', 'anti' or 'cross', not 'outer'",
    ),
    (
        lambda: leases.join(sites),
        rc.SchemaError,
        "join: nothing says which events match: give on=, the key columns, or where=; or how='cross' for "
        "every pair",
    ),
    (
        lambda: leases.join(sites, how="anti"),
        rc.SchemaError,
        "join: nothing says which events match: give on=, the key columns, or where=; or where=rc.lit(True) "
        "if any event matches",
    ),
    (
        lambda: leases.group_by("site").apply(lambda g: g.join(sites)),
        rc.SchemaError,
        "join: nothing says which events match: give on=, the key columns, or where=; or how='cross' for "
        "every pair",
    ),
    (
        lambda: leases.join(sites, on="site", how="cross"),
        rc.SchemaError,
        "join(how='cross'): every pair matches, so on= cannot choose: leave out how='cross'",
    ),
    (
        lambda: leases.join(sites, on="site", suffix=""),
        SchemaError,
        "join(suffix=''): two columns would be named 'bytes'",
    ),
    (
        lambda: leases.join(sites, on="site", where=col("bytes") + 1),
        SchemaError,
        "join(where=bytes + 1): a condition must be true or false, but bytes + 1 is float64",
    ),
    (
        lambda: leases.join(sites, on=["site", "site"]),
        SchemaError,
        "join: a key is named twice in ['site', 'site']",
    ),
    (
        lambda: leases.join("sites", on="site"),  # type: ignore[arg-type]
        SchemaError,
        "join: a stream is needed here, not 'sites'",
    ),
    (
        lambda: leases.union(sites),
        SchemaError,
        "union: the other stream has no column 'user'; there the columns are site (string), bytes (int64)",
    ),
    (
        lambda: sites.union(leases),
        SchemaError,
        "union: only the other stream has a column 'user'; here the columns are site (string), bytes (int64)",
    ),
    (
        lambda: leases.select("site", "bytes").union(sites),
        SchemaError,
        "union: column 'bytes' is float64 here and int64 in the other stream; cast one of them",
    ),
    (
        lambda: leases.clip(by=sites, on="user"),
        SchemaError,
        "clip(on=...), in the stream that clips: there is no column 'user';"
        " the columns are site (string), bytes (int64)",
    ),
    # Lifetimes
    (
        lambda: leases.set_duration(0),
        TimeError,
        "set_duration: a lifetime must be 1 tick or more, not 0 ticks",
    ),
    (
        lambda: leases.set_duration("-1s"),
        TimeError,
        "set_duration: a lifetime must be 1 tick or more, not -1000000 ticks",
    ),
    (
        lambda: leases.hop_lifetime(size=5, hop=0),
        TimeError,
        "hop_lifetime: a hop must be 1 tick or more, not 0 ticks",
    ),
    (
        lambda: leases.shift("soon"),
        TimeError,
        "'soon' is not a duration; write for example '10s', '1.5h', '1h 30m' or 'PT30M'",
    ),
    (lambda: leases.alter_lifetime(), TimeError, "alter_lifetime: give start=, duration= or both"),
    (
        lambda: leases.alter_lifetime(start=never),  # type: ignore[arg-type]
        TimeError,
        "alter_lifetime: start must give a whole number for any vs and ve, such as 3 and 5",
    ),
    (
        lambda: leases.alter_lifetime(duration=lambda vs, ve: (ve - vs) / 2),
        TimeError,
        "alter_lifetime: duration must give a whole number for any vs and ve, such as 3 and 5",
    ),
    # Windows and groups
    (
        lambda: leases.count_window(0),
        SchemaError,
        "count_window: a window counts one moment or more, not 0",
    ),
    (
        lambda: leases.sessions(0),
        TimeError,
        "sessions: a gap must be 1 tick or more, not 0 ticks",
    ),
    (
        lambda: leases.count_window(2, by="middle"),  # type: ignore[arg-type]
        SchemaError,
        "count_window: by is 'start' or 'end', not 'middle'",
    ),
    (
        lambda: leases.group_by("site").apply(lambda g: sites),
        SchemaError,
        "apply: the result, source sites, does not come from the group",
    ),
    (
        lambda: leases.group_by("user").apply(lambda g: g.select("site").union(sites.select("site"))),
        SchemaError,
        "apply: union would show select site, which is not part of the group, in every group",
    ),
    (
        lambda: leases.group_by("user").apply(lambda g: sites.join(g, on="site", how="anti")),
        SchemaError,
        "apply: anti join on site would show source sites, which is not part of the group, in every group",
    ),
    (
        lambda: leases.group_by("user").apply(lambda g: 3),  # type: ignore[arg-type, return-value]
        SchemaError,
        "apply: a stream is needed here, not 3",
    ),
    # Functions
    (
        lambda: leases.map("f", {"x": "int64"}),  # type: ignore[arg-type]
        SchemaError,
        "map: 'f' is not a function",
    ),
    (
        lambda: leases.map(lambda batch: batch, {"x": "int64"}),
        SchemaError,
        "map: the function gives the columns ['user', 'site', 'bytes'], the schema says ['x']",
    ),
    (
        lambda: leases.explain(format="dot"),  # type: ignore[arg-type]
        RecensionError,
        "explain: format is 'text' or 'json', not 'dot'",
    ),
    # Consistency
    (
        lambda: leases.consistency("STRONG"),  # type: ignore[arg-type]
        RecensionError,
        "consistency: a level is rc.STRONG, rc.MIDDLE, rc.WEAK or an rc.Level, not 'STRONG'",
    ),
    (
        lambda: leases.consistency(None),  # type: ignore[arg-type]
        RecensionError,
        "consistency: a level is rc.STRONG, rc.MIDDLE, rc.WEAK or an rc.Level, not None",
    ),
    (
        lambda: leases.advance_time(3, events="2"),  # type: ignore[arg-type]
        TimeError,
        "advance_time: events= is a whole number of events, not '2'",
    ),
    (
        lambda: leases.advance_time(3, events=1.5),  # type: ignore[arg-type]
        TimeError,
        "advance_time: events= is a whole number of events, not 1.5",
    ),
    (
        lambda: leases.due(by="clok"),  # type: ignore[arg-type]
        SchemaError,
        "due: by= is a stream or \"clock\", not 'clok'",
    ),
    (
        lambda: leases.due(by=5),  # type: ignore[arg-type]
        SchemaError,
        'due: by= is a stream or "clock", not 5',
    ),
    (
        lambda: leases.due(ahead="1d"),
        TimeError,
        "due: ahead= says how far starts of another stream may be ahead: give that stream, by=",
    ),
    (
        lambda: leases.due(by="clock", ahead="1d"),
        TimeError,
        "due: ahead= says how far starts of another stream may be ahead: give that stream, by=",
    ),
    (
        lambda: leases.due(by=sites, ahead=0),
        TimeError,
        "due: ahead=0 ticks; it takes 1 or more",
    ),
    (
        lambda: leases.due(by=sites, ahead="-1h"),
        TimeError,
        "due: ahead=-3600000000 ticks; it takes 1 or more",
    ),
    (
        lambda: leases.due(by=sites, ahead="soon"),
        TimeError,
        "due(ahead=...): 'soon' is not a duration; write for example '10s', '1.5h', '1h 30m' or 'PT30M'",
    ),
    (
        lambda: leases.due(by=rc.table("desks", {"site": "string"})),
        SchemaError,
        "due: the rows of table 'desks' are true at all times and have no start; by= is a stream whose rows "
        "tell the time",
    ),
    (
        lambda: rc.session(leases, clock=5),  # type: ignore[arg-type]
        RecensionError,
        "clock is a function that gives microseconds since 1970, not 5",
    ),
]


@pytest.mark.parametrize(("build", "kind", "message"), ERRORS, ids=[message for _, _, message in ERRORS])
def test_error(build: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as raised:
        build()
    assert str(raised.value) == message
