"""Every method of expressions: computed as narwhals computes it, but that whole numbers never wrap around."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import recension as rc
from recension import col, lit, when
from recension.core.errors import RecensionError, SchemaError
from recension.plan.evaluation import ComputedColumn, Predicate
from recension.plan.expressions import Expr, expression, functions, result_type

TABLE = pa.record_batch(
    {
        "i": pa.array([3, None, -7], pa.int64()),
        "j": pa.array([2, 5, None], pa.int64()),
        "n": pa.array([1, -3, None], pa.int8()),
        "x": pa.array([1.25, float("nan"), None], pa.float64()),
        "y": pa.array([2.0, -0.5, 4.0], pa.float64()),
        "s": pa.array(["ab c", "", None], pa.string()),
        "u": pa.array(["x", "yy", "z"], pa.string()),
        "iso": pa.array(["2020-01-02 03:04:05", None, "1999-12-31 00:00:00"], pa.string()),
        "b": pa.array([True, False, None], pa.bool_()),
        "c": pa.array([True, None, False], pa.bool_()),
        "at": pa.array(
            [datetime(2020, 2, 29, 13, 5, 7, 123456), None, datetime(1969, 1, 1)], pa.timestamp("us")
        ),
        "zoned": pa.array([datetime(2020, 2, 29, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "day": pa.array([date(2020, 2, 29), None, date(1969, 1, 1)], pa.date32()),
        "d": pa.array([timedelta(minutes=90, microseconds=7), None, timedelta(-1)], pa.duration("us")),
        "l": pa.array([[3, 1, 3], [1], None], pa.list_(pa.int64())),
        "r": pa.array([{"f": 1}, {"f": 2}, None], pa.struct([("f", pa.int64())])),
    }
)

# By the name of the method: a use of it, for `m` = recension or narwhals.
Use = Callable[[Any], Any]
METHODS: dict[str, Use] = {
    "abs": lambda m: m.col("i").abs(),
    "alias": lambda m: m.col("i").alias("k"),
    "cast": lambda m: m.col("i").cast(nw.Float32),
    "ceil": lambda m: m.col("x").ceil(),
    "clip": lambda m: m.col("i").clip(0, m.col("j")),
    "cos": lambda m: m.col("x").cos(),
    "exp": lambda m: m.col("x").exp(),
    "fill_nan": lambda m: m.col("x").fill_nan(0.5),
    "fill_null": lambda m: m.col("i").fill_null(m.col("j")),
    "floor": lambda m: m.col("x").floor(),
    "is_between": lambda m: m.col("i").is_between(-7, "j", closed="right"),
    "is_close": lambda m: m.col("x").is_close(1.25 + 1e-12),
    "is_finite": lambda m: m.col("x").is_finite(),
    "is_in": lambda m: m.col("i").is_in([3, 4]),
    "is_nan": lambda m: m.col("x").is_nan(),
    "is_null": lambda m: m.col("x").is_null(),
    "log": lambda m: m.col("y").abs().log(2.0),
    "pipe": lambda m: m.col("i").pipe(lambda e, k: e * k, 2),
    "replace_strict": lambda m: m.col("u").replace_strict(["x", "yy", "z"], [1, 2, 3]),
    "round": lambda m: m.col("x").round(1),
    "sin": lambda m: m.col("x").sin(),
    "sqrt": lambda m: m.col("y").sqrt(),
    "dt.convert_time_zone": lambda m: m.col("zoned").dt.convert_time_zone("Asia/Tokyo"),
    "dt.date": lambda m: m.col("at").dt.date(),
    "dt.day": lambda m: m.col("at").dt.day(),
    "dt.hour": lambda m: m.col("at").dt.hour(),
    "dt.microsecond": lambda m: m.col("at").dt.microsecond(),
    "dt.millisecond": lambda m: m.col("at").dt.millisecond(),
    "dt.minute": lambda m: m.col("at").dt.minute(),
    "dt.month": lambda m: m.col("at").dt.month(),
    "dt.nanosecond": lambda m: m.col("at").dt.nanosecond(),
    "dt.offset_by": lambda m: m.col("at").dt.offset_by("-3h"),
    "dt.ordinal_day": lambda m: m.col("at").dt.ordinal_day(),
    "dt.replace_time_zone": lambda m: m.col("at").dt.replace_time_zone("Asia/Tokyo"),
    "dt.second": lambda m: m.col("at").dt.second(),
    "dt.timestamp": lambda m: m.col("at").dt.timestamp("ns"),
    "dt.to_string": lambda m: m.col("at").dt.to_string("%Y-%m"),
    "dt.total_microseconds": lambda m: m.col("d").dt.total_microseconds(),
    "dt.total_milliseconds": lambda m: m.col("d").dt.total_milliseconds(),
    "dt.total_minutes": lambda m: m.col("d").dt.total_minutes(),
    "dt.total_nanoseconds": lambda m: m.col("d").dt.total_nanoseconds(),
    "dt.total_seconds": lambda m: m.col("d").dt.total_seconds(),
    "dt.truncate": lambda m: m.col("at").dt.truncate("1h"),
    "dt.weekday": lambda m: m.col("at").dt.weekday(),
    "dt.year": lambda m: m.col("day").dt.year(),
    "list.contains": lambda m: m.col("l").list.contains(3),
    "list.get": lambda m: m.col("l").list.get(0),
    "list.len": lambda m: m.col("l").list.len(),
    "list.max": lambda m: m.col("l").list.max(),
    "list.mean": lambda m: m.col("l").list.mean(),
    "list.median": lambda m: m.col("l").list.median(),
    "list.min": lambda m: m.col("l").list.min(),
    "list.sort": lambda m: m.col("l").list.sort(descending=True),
    "list.sum": lambda m: m.col("l").list.sum(),
    "str.contains": lambda m: m.col("s").str.contains("b c"),
    "str.ends_with": lambda m: m.col("s").str.ends_with("c"),
    "str.head": lambda m: m.col("s").str.head(2),
    "str.len_chars": lambda m: m.col("s").str.len_chars(),
    "str.pad_end": lambda m: m.col("u").str.pad_end(3, "-"),
    "str.pad_start": lambda m: m.col("u").str.pad_start(3),
    "str.replace": lambda m: m.col("s").str.replace("b", "B"),
    "str.replace_all": lambda m: m.col("u").str.replace_all("y", "", literal=True),
    "str.slice": lambda m: m.col("s").str.slice(1, 2),
    "str.split": lambda m: m.col("s").str.split(" "),
    "str.starts_with": lambda m: m.col("s").str.starts_with("a"),
    "str.strip_chars": lambda m: m.col("s").str.strip_chars("a"),
    "str.strip_chars_end": lambda m: m.col("s").str.strip_chars_end("c"),
    "str.strip_chars_start": lambda m: m.col("s").str.strip_chars_start(),
    "str.tail": lambda m: m.col("s").str.tail(2),
    "str.to_date": lambda m: m.col("iso").str.slice(0, 10).str.to_date("%Y-%m-%d"),
    "str.to_datetime": lambda m: m.col("iso").str.to_datetime("%Y-%m-%d %H:%M:%S"),
    "str.to_lowercase": lambda m: m.col("s").str.to_lowercase(),
    "str.to_time": lambda m: m.col("iso").str.slice(11).str.to_time("%H:%M:%S"),
    "str.to_titlecase": lambda m: m.col("s").str.to_titlecase(),
    "str.to_uppercase": lambda m: m.col("s").str.to_uppercase(),
    "str.zfill": lambda m: m.col("u").str.zfill(3),
    "struct.field": lambda m: m.col("r").struct.field("f"),
    "name.keep": lambda m: m.col("i").alias("k").name.keep(),
    "name.map": lambda m: m.col("i").name.map(lambda name: name * 2),
    "name.prefix": lambda m: m.col("i").name.prefix("p_"),
    "name.suffix": lambda m: m.col("i").alias("k").name.suffix("_s"),
    "name.to_lowercase": lambda m: m.col("i").name.to_lowercase(),
    "name.to_uppercase": lambda m: (m.col("i") + 1).name.to_uppercase(),
}
FUNCTIONS: dict[str, Use] = {
    "all_horizontal": lambda m: m.all_horizontal("b", m.col("c"), ignore_nulls=True),
    "any_horizontal": lambda m: m.any_horizontal("b", "c", ignore_nulls=False),
    "coalesce": lambda m: m.coalesce("i", "j", m.lit(9)),
    "concat_str": lambda m: m.concat_str("s", "u", separator="-", ignore_nulls=True),
    "max_horizontal": lambda m: m.max_horizontal("i", "j"),
    "mean_horizontal": lambda m: m.mean_horizontal("i", "j", "n"),
    "min_horizontal": lambda m: m.min_horizontal("i", m.lit(0)),
    "sum_horizontal": lambda m: m.sum_horizontal("i", "j", "n"),
}


def between(sign: Callable[[Any, Any], Any], a: str, b: str, m: Any) -> Any:
    return sign(m.col(a), m.col(b))


OPERATORS: dict[str, Use] = {
    **{
        f"{sign.__name__} of {a} and {b}": partial(between, sign, a, b)
        for sign in (
            operator.add,
            operator.sub,
            operator.mul,
            operator.truediv,
            operator.floordiv,
            operator.mod,
        )
        for a, b in (("i", "j"), ("x", "y"), ("i", "y"), ("n", "j"), ("n", "n"))
    },
    **{
        f"{sign.__name__} compared": partial(between, sign, "x", "y")
        for sign in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    },
    "power": lambda m: m.col("j") ** 2,
    "power of floats": lambda m: m.col("y") ** m.col("x"),
    "reversed": lambda m: 7 - m.col("i"),
    "reversed quotient": lambda m: 7 // m.col("j") + 7 % m.col("j") - 7 / m.col("y"),
    "reversed power": lambda m: 2 ** m.col("j"),
    "swapped": lambda m: 7 * m.col("i") + (7 + m.col("j")),
    "minus": lambda m: -m.col("i"),
    "logic": lambda m: (m.col("b") & m.col("c")) | ~m.col("b"),
    "with none": lambda m: m.col("i") == m.lit(None),
    "times": lambda m: m.col("at") - m.col("at").dt.truncate("1d"),
    "later": lambda m: m.col("at") + timedelta(hours=1),
    "when": lambda m: m.when(m.col("i") > 0).then("i").otherwise(m.col("j")),
    "when without": lambda m: m.when(m.col("i") > 0, m.col("b")).then(m.lit("yes")),
    "when in turn": lambda m: (
        m.when(m.col("i") > 0).then(1.5).when(m.col("j") > 0).then(m.col("x")).otherwise(m.lit(None))
    ),
    "literal": lambda m: m.lit(1, nw.Int16) + m.col("n"),
    "a call of a sum": lambda m: (
        (m.col("i") + m.col("j")).clip(0, 4).fill_null(9).is_between("i", m.col("j") + 7)
    ),
    "a sum of calls": lambda m: m.col("s").str.len_chars() + m.col("u").str.to_uppercase().str.len_chars(),
}
USES = METHODS | FUNCTIONS | OPERATORS


def computed(value: Expr, table: pa.RecordBatch = TABLE) -> pa.Array:
    made = expression(value)
    return ComputedColumn(made, result_type(made, table.schema, "test"))(table)


@pytest.mark.parametrize("name", USES)
def test_it_is_computed_as_narwhals_computes_it(name: str) -> None:
    theirs = (
        nw.from_native(pa.Table.from_batches([TABLE]), eager_only=True).select(USES[name](nw)).to_native()
    )
    ours = computed(USES[name](rc))
    assert ours.type == theirs.schema.field(0).type
    assert str(ours.to_pylist()) == str(theirs.column(0).to_pylist())
    assert rc.source("s", TABLE.schema).select(USES[name](rc)).schema.names == theirs.column_names


@pytest.mark.parametrize("name", USES)
def test_a_row_alone_and_no_row_are_computed_too(name: str) -> None:
    """What is computed row by row is the same in any batch."""
    whole = computed(USES[name](rc))
    assert str([computed(USES[name](rc), TABLE.slice(n, 1))[0] for n in range(3)]) == str(list(whole))
    assert len(computed(USES[name](rc), TABLE.slice(0, 0))) == 0


def public(home: Any) -> set[str]:
    return {name for name in dir(home) if not name.startswith("_") and callable(getattr(home, name))}


def test_every_method_is_tried_here() -> None:
    spaces = {name: getattr(col("x"), name) for name in ("str", "dt", "list", "struct", "name")}
    inside = {f"{space}.{name}" for space, home in spaces.items() for name in public(type(home))}
    assert public(Expr) | inside == METHODS.keys()
    known = {name for name in vars(functions) if name in rc.__all__ and name[0].islower()}
    assert known == FUNCTIONS.keys() | {"col", "lit", "when", "start", "end", "lifetime"}


# Whole numbers at the end of their types.

LIMITS = {kind: 2 ** (kind.bit_width - 1) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
x, y = col("x"), col("y")


def numbers(kind: pa.DataType, *rows: tuple[int | None, int | None]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array([r[i] for r in rows], kind) for i, name in enumerate("xy")})


@pytest.mark.parametrize("kind", LIMITS, ids=str)
@pytest.mark.parametrize(
    ("written", "rows"),
    [
        (x + y, lambda end: (end - 1, 1)),
        (x - y, lambda end: (-end, 1)),
        (x * y, lambda end: (end // 2, 2)),
        (x**y, lambda end: (end - 1, 2)),
        (-x, lambda end: (-end, 0)),
        (abs(x), lambda end: (-end, 0)),
        (x // y, lambda end: (-end, -1)),
        (rc.sum_horizontal(x, y), lambda end: (end - 1, end - 1)),
        ((x + y).fill_null(0) > 0, lambda end: (end - 1, 1)),
    ],
    ids=str,
)
def test_what_does_not_fit_is_an_error(
    kind: pa.DataType, written: Expr, rows: Callable[[int], tuple[int, int]]
) -> None:
    bad = rows(LIMITS[kind])
    assert computed(written, numbers(kind, (1, 1), (None, 1), (1, None))) is not None
    with pytest.raises(RecensionError, match=rf"does not fit in {kind}, as of (0 and )?{bad[0]}"):
        computed(written, numbers(kind, (1, 1), bad))


@pytest.mark.parametrize("kind", LIMITS, ids=str)
def test_what_just_fits_is_computed(kind: pa.DataType) -> None:
    end = LIMITS[kind]
    table = numbers(kind, (end - 1, -end), (-end + 1, None))
    assert computed(x + y, table).to_pylist() == [-1, None]
    assert computed(-x, table).to_pylist() == [-end + 1, end - 1]
    assert computed(x - y.fill_null(0) * 0, table).to_pylist() == [end - 1, -end + 1]


def test_the_error_names_the_expression_and_a_row() -> None:
    with pytest.raises(RecensionError) as raised:
        computed(col("x") * 2 + 1 > 0, numbers(pa.int64(), (1, 1), (2**62, 5)))
    assert (
        str(raised.value)
        == "x * 2 does not fit in int64, as of 4611686018427387904 and 2; cast to float64 first"
    )


def test_the_error_of_a_sum_names_the_sum() -> None:
    with pytest.raises(RecensionError, match=r"^sum_horizontal\(x, y, 1\) does not fit in int64"):
        computed(rc.sum_horizontal(x, y, 1), numbers(pa.int64(), (2**62, 2**62)))


def test_unsigned_numbers_have_an_end_below_too() -> None:
    table = pa.record_batch({"x": pa.array([0, 1], pa.uint8()), "y": pa.array([0, 2], pa.uint8())})
    with pytest.raises(
        RecensionError, match=r"x - y does not fit in uint8, as of 1 and 2; cast to int64 first"
    ):
        computed(x - y, table)
    with pytest.raises((RecensionError, SchemaError)):
        computed(-x, table)


def test_times_have_an_end_too() -> None:
    table = pa.record_batch(
        {"at": pa.array([2**63 - 1], pa.timestamp("us")), "d": pa.array([2**62], pa.duration("us"))}
    )
    late: list[Expr] = [col("at") + col("d"), col("at").dt.timestamp("ns"), col("d").dt.total_nanoseconds()]
    late += [col("d") * 2, col("at").dt.offset_by("1h"), col("at") + timedelta(hours=1)]
    for written in late:
        with pytest.raises(RecensionError, match="does not fit in"):
            computed(written, table)
    assert computed(col("at").dt.offset_by("-1h"), table) is not None


def test_sums_of_lists_do_not_wrap() -> None:
    table = pa.record_batch(
        {"l": pa.array([[2**62, -(2**62), 5], [2**62, 2**62 - 1], []], pa.list_(pa.int64()))}
    )
    assert computed(col("l").list.sum(), table).to_pylist() == [5, 2**63 - 1, 0]
    table = pa.record_batch({"l": pa.array([[1], [2**62, 2**62]], pa.list_(pa.int64()))})
    with pytest.raises(RecensionError, match=r"l.list.sum\(\) does not fit in int64"):
        computed(col("l").list.sum(), table)


def test_a_branch_that_is_not_taken_may_overflow() -> None:
    end = 2**63 - 1
    table = numbers(pa.int64(), (end, 1), (4, 1), (None, 1))
    careful = when(x < end).then(x + 1).otherwise(x)
    assert computed(careful, table).to_pylist() == [end, 5, None]
    nested = when(x < end).then(when(y > 0).then((x + y).clip(0, 100)).otherwise(lit(0)))
    assert computed(nested, table).to_pylist() == [None, 5, None]
    with pytest.raises(RecensionError, match=r"x \+ 1 does not fit"):
        computed(when(x > 3).then(x + 1).otherwise(x), table)


def test_floats_have_no_end() -> None:
    table = pa.record_batch({"x": [1e308], "y": [10.0]})
    assert computed(x * y, table).to_pylist() == [float("inf")]


def test_a_query_says_what_went_wrong() -> None:
    s = rc.source("s", {"x": "int64"})
    end = [rc.Insert({"x": 2**63 - 1}, 0, 9)]
    for query in (s.where(col("x") + 1 > 0), s.select(y=col("x") + 1), s.agg(n=rc.max(col("x") + 1))):
        with pytest.raises(
            RecensionError, match=r"x \+ 1 does not fit in int64, as of 9223372036854775807 and 1"
        ):
            rc.run(query, {"s": end}, close=True)


def test_a_filter_that_may_overflow_keeps_its_place() -> None:
    """It stays above what protects it: joins, other filters, steps that drop events."""
    s, t = rc.source("s", {"k": "int64", "x": "int64"}), rc.source("t", {"k": "int64"})
    fits = s.join(t, on="k").where(col("x") + 1 > 0)
    rows: dict[str, Any] = {
        "s": [rc.Insert({"k": 1, "x": 5}, 0, 9), rc.Insert({"k": 2, "x": 2**63 - 1}, 0, 9)],
        "t": [rc.Insert({"k": 1}, 0, 9)],
    }
    assert len(rc.run(fits, rows, close=True).history()) == 1
    guarded = s.where(col("x") < 100).where(col("x") + 1 > 0)
    assert len(rc.run(guarded, {"s": rows["s"]}, close=True).history()) == 1


def test_predicates_of_whole_batches() -> None:
    assert Predicate(expression(col("i") + 1 > 0))(TABLE).tolist() == [True, False, False]
