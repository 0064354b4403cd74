"""What may be given to a batch run, what comes back, and what is refused and in which words."""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from tests.runners.spark.batch.jobs import answers, batch, frame, stream_frame

import recension as rc
from recension import col
from recension.core.events import Event
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.assertions import assert_equivalent
from recension.testing.physical import Dice, Shape, build_stream
from recension.testing.strategies import SCHEMA

POINTS = rc.source("s", {"user": "string"}, start="at")
SPANS = rc.source("s", {"user": "string"}, start="at", end="until")


def _rows(spark: Any, sql: str) -> Any:
    """Rows that Spark does not know while it plans: from constants it would see that nothing is left."""
    made = spark.sql(sql)
    return spark.createDataFrame(made.collect(), made.schema)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_come_back_as_timestamps(quick: Any, kind: str, zone: str) -> None:
    before = quick.conf.get("spark.sql.session.timeZone")
    quick.conf.set("spark.sql.session.timeZone", zone)
    try:
        given = quick.sql(
            f"SELECT 'ann' user, {kind}'2024-03-31 00:59:59.250001' at, {kind}'2024-10-27 02:30:00' until"
        )
        found = rc.spark.batch(quick, SPANS.extend("1h"), {"s": given})
        assert [field.dataType.simpleString() for field in found.schema][:2] == [kind, kind]
        expected = given.selectExpr("at", "until + INTERVAL '1' HOUR AS until").collect()
        assert [(row[0], row[1]) for row in found.collect()] == [tuple(row) for row in expected]
    finally:
        quick.conf.set("spark.sql.session.timeZone", before)


def test_a_named_start_alone_makes_points(quick: Any) -> None:
    given = quick.sql("SELECT 'ann' user, 5L at UNION ALL SELECT 'bob', 7L")
    (found,) = answers([rc.spark.batch(quick, POINTS.extend(2), {"s": given})])
    assert_equivalent(found, [Event({"user": "ann"}, 5, 8), Event({"user": "bob"}, 7, 10)])


def test_names_that_spark_would_read_otherwise(quick: Any) -> None:
    schema = pa.schema([("a.b", pa.int64()), ("`", pa.string()), ("K", pa.int64()), ("k", pa.int64())])
    events = [Event({"a.b": 1, "`": "x", "K": 2, "k": 3}, 0, 5)]
    query = rc.source("s", schema).select("`", total=col("a.b") + col("K") - col("k")).distinct()
    (found,) = answers([batch(quick, query, {"s": frame(quick, events, schema)})])
    assert_equivalent(found, [Event({"`": "x", "total": 0}, 0, 5)])


def test_types_that_spark_lacks_are_carried(quick: Any) -> None:
    schema = pa.schema(
        [("u", pa.uint8()), ("w", pa.uint64()), ("f", pa.float32()), ("l", pa.list_(pa.int32()))]
    )
    values = {"u": [200, 1], "w": [2**64 - 1, 0], "f": [0.5, 1.5], "l": [[1], []]}
    payload = [pa.array(values[field.name], field.type) for field in schema]
    rows = pa.table([pa.array([0, 1]), pa.array([5, 9]), *payload], ["_vs", "_ve", *schema.names])
    carried = rows.set_column(2, "u", rows["u"].cast("int16"))
    carried = carried.set_column(3, "w", rows["w"].cast(pa.decimal128(20, 0)))
    query = rc.source("s", schema).select("u", "w", "l", twice=col("u") * 2, half=col("f") / 2)
    found = rc.spark.batch(quick, query, {"s": quick.createDataFrame(carried)}).toArrow()
    local = rc.run(query, {"s": rows}, close=True).history().to_arrow()
    expected = [row | {"w": Decimal(row["w"])} for row in local.to_pylist()]
    assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)


REFUSED = [
    ("SELECT 1L _vs, 2L _ve, 3L user", "s: column user is bigint, but the source says string"),
    ("SELECT 1L _vs, 2L _ve, 'x' other", "s: no column user; the payload columns are other"),
    ("SELECT 'x' user", "s: neither a _kind nor a _vs column"),
    ("SELECT 'then' _vs, 'x' user", "s: column _vs is string; a time is an int64 or a timestamp"),
    ("SELECT 1L _vs, timestamp'2024-01-01' _ve, 'x' user", "s: times are all integers or all timestamps"),
    (
        "SELECT timestamp'2024-01-01' _vs, timestamp_ntz'2024-01-02' _ve, 'x' user",
        "without a zone do not mix",
    ),
]


@pytest.mark.parametrize(("sql", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_columns_that_do_not_fit(spark: Any, sql: str, reason: str) -> None:
    source = rc.source("s", {"user": "string"})
    with pytest.raises(rc.RecensionError) as refused:
        rc.spark.batch(spark, source.distinct(), {"s": spark.sql(sql)})
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_sources_of_a_batch_are_of_one_kind_of_time(spark: Any) -> None:
    one, other = (rc.source(name, {"user": "string"}) for name in ("a", "b"))
    frames = {
        "ticks": spark.sql("SELECT 1L _vs, 'x' user"),
        "naive": spark.sql("SELECT timestamp_ntz'2024-01-01' _vs, 'x' user"),
        "aware": spark.sql("SELECT timestamp'2024-01-01' _vs, 'x' user"),
    }
    for left, right in permutations(frames, 2):
        with pytest.raises(rc.TimeError, match=r"^b: the times are .* but those of a are"):
            rc.spark.batch(spark, one.union(other), {"a": frames[left], "b": frames[right]})
    windows = one.tumbling("1h", until="2024-02-01").agg(n=rc.count())
    with pytest.raises(rc.TimeError, match="but those of windows, until are timestamps without a zone"):
        rc.spark.batch(spark, windows, {"a": frames["aware"]})


def test_inputs_must_be_those_of_the_query(spark: Any) -> None:
    source, given = rc.source("s", {"user": "string"}), spark.sql("SELECT 1L _vs, 'x' user")
    with pytest.raises(rc.RecensionError, match="no input for source 's'"):
        rc.spark.batch(spark, source, {})
    with pytest.raises(rc.RecensionError, match="no source 't'"):
        rc.spark.batch(spark, source, {"s": given, "t": given})
    with pytest.raises(rc.RecensionError, match="reads Spark DataFrames, not a list"):
        rc.spark.batch(spark, source, {"s": []})
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(rc.RecensionError, match=r"run it with rc\.spark\.stream"):
        rc.spark.batch(spark, source, {"s": streaming})


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (lambda s: s.finalize(5), "finalize, remember 5"),
        (lambda s: s.agg(n=rc.count()).consistency(rc.WEAK), r"finalize, remember 0 \(rc\.WEAK\)"),
        (lambda s: s.advance_time(3), "advance time, 3 behind, after every 1 events, late: drop"),
        (lambda s: s.advance_time(3, late="adjust"), "late: adjust"),
        (lambda s: rc.merge(s, s, case="R1", on_mismatch="fallback"), "what R1 drops before it falls"),
    ],
)
def test_what_depends_on_arrival_is_refused_by_name(spark: Any, query: Any, what: str) -> None:
    given = spark.sql("SELECT 1L _vs, 'x' user")
    with pytest.raises(rc.RecensionError, match=what):
        rc.spark.batch(spark, query(rc.source("s", {"user": "string"})), {"s": given})


def test_nothing_is_late_in_an_ordered_feed(quick: Any) -> None:
    ordered = rc.source("s", {"user": "string"}, properties=rc.Properties(is_ordered=True))
    given = quick.sql("SELECT 1L _vs, 2L _ve, 'x' user")
    assert rc.spark.batch(quick, ordered.advance_time(0), {"s": given}).count() == 1


def test_policies_that_depend_on_arrival_need_a_history(spark: Any) -> None:
    source = rc.source("s", {"user": "string"}, on_violation="drop")
    with pytest.raises(rc.RecensionError, match="on_violation='drop' depends on arrival"):
        rc.spark.batch(spark, source, {"s": spark.sql("SELECT 'insert' _kind, 1L _vs, 'x' user")})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("SELECT 5L _vs, 5L _ve, 'x' user", r"s: an event may not live for \[5, 5\)"),
        ("SELECT CAST(NULL AS BIGINT) _vs, 5L _ve, 'x' user", r"s: an event may not live for \[null, 5\)"),
    ],
)
def test_lifetimes_that_cannot_be(quick: Any, given: str, reason: str) -> None:
    query = rc.source("s", {"user": "string"}).set_duration(3)
    with pytest.raises(Exception, match=reason):
        rc.spark.batch(quick, query, {"s": _rows(quick, given)}).collect()
    lenient = rc.source("s", {"user": "string"}, on_violation="drop").set_duration(3)
    assert rc.spark.batch(quick, lenient, {"s": _rows(quick, given)}).count() == 0


@pytest.mark.parametrize("aggregate", ["count", "max", "first"])
def test_windows_over_what_never_ends_ask_for_an_end(quick: Any, aggregate: str) -> None:
    source = rc.source("s", {"user": "string"})
    given = quick.sql("SELECT 5L _vs, CAST(NULL AS BIGINT) _ve, 'x' user")
    query = source.tumbling(4).agg(a=getattr(rc, aggregate)("user"))
    with pytest.raises(Exception, match="name a last start with until="):
        rc.spark.batch(quick, query, {"s": given}).collect()


@pytest.mark.parametrize("answer", [rc.count(), rc.max("x")], ids=["summed", "row by row"])
def test_windows_that_one_event_fills_by_the_million_are_refused(quick: Any, answer: Any) -> None:
    schema = pa.schema([("x", pa.int64())])
    source = rc.source("s", schema).where(col("x") % 2 == 0)
    given = frame(quick, [Event({"x": 4}, -5, 10**12), Event({"x": 2}, BEGINNING + 5, BEGINNING + 6)], schema)
    with pytest.raises(
        Exception, match=r"1,000,000,000,005 windows, the limit is max_windows=1,000,000; take"
    ):
        batch(quick, source.tumbling(1).agg(a=answer), {"s": given}).collect()
    shorter = frame(quick, [Event({"x": 4}, 0, 30)], schema)
    found, refused = (source.tumbling(5, max_windows=most).agg(a=answer) for most in (6, 5))
    assert batch(quick, found, {"s": shorter}).count() == 6
    with pytest.raises(Exception, match="an event in the windows from 0 would fill 6 windows"):
        batch(quick, refused, {"s": shorter}).collect()


@pytest.mark.parametrize("answer", [rc.count(), rc.max("x"), rc.first("x")], ids=["summed", "rows", "local"])
def test_windows_that_are_refused_show_times_as_the_user_has_them(quick: Any, answer: Any) -> None:
    given = quick.sql(
        "SELECT TIMESTAMP_NTZ'2024-01-01 00:00:00' _vs, TIMESTAMP_NTZ'2025-01-01 00:00:00' _ve, 4L x"
    )
    query = rc.source("s", {"x": "int64"}).hopping("1h", "10ms").agg(a=answer)
    with pytest.raises(
        Exception, match=r"windows every 10ms of 1h: an event in the windows from 2023-12-31 23:"
    ):
        rc.spark.batch(quick, query, {"s": given}).collect()


def _told(seed: int) -> tuple[list[Event], list[Any]]:
    rnd = random.Random(seed)
    events = []
    for _ in range(30):
        vs = rnd.randrange(10)
        payload = {"k": rnd.choice(["a", "b", None]), "v": rnd.choice([0, 1, None])}
        events += [Event(payload, vs, rnd.choice([vs + 1, vs + 4, FOREVER]))] * rnd.choice([1, 2])
    shape = Shape(False, False, False, False, True)
    return events, list(build_stream(events, Dice(rnd.randbytes(4096)), shape, [e.payload for e in events]))


def test_the_history_of_a_stream(quick: Any) -> None:
    events, elements = _told(1)
    stream = stream_frame(quick, elements, SCHEMA)
    shuffled = stream.repartition(3, "_vs")
    query = rc.source("s", SCHEMA).where(col("v") >= 0)
    results = [rc.spark.history(stream), rc.spark.history(shuffled), batch(quick, query, {"s": stream})]
    plain, other, filtered = answers(results)
    assert len(elements) > len(events)
    assert_equivalent(plain, events)
    assert_equivalent(other, events)
    assert_equivalent(filtered, [e for e in events if e.payload["v"] is not None and e.payload["v"] >= 0])


def test_open_and_close_follow_the_order_given(quick: Any) -> None:
    rows = [
        ("open", 1, None, "A", 0, 0),
        ("open", 2, None, "B", 0, 1),
        ("close", None, 5, "A", 1, 0),
        ("close", None, 9, "A", 1, 1),
        ("open", 12, None, "A", 2, 0),
        ("close", None, 2, "B", 2, 1),
        ("close", None, 20, "A", 3, 0),
        ("retract", 12, 20, "A", 3, 1),
        ("insert", 3, 4, "C", 3, 2),
        ("cti", 30, None, None, 3, 3),
    ]
    table = quick.createDataFrame(
        [(k, vs, ve, 15 if k == "retract" else None, p, b, s) for k, vs, ve, p, b, s in reversed(rows)],
        "_kind string, _vs bigint, _ve bigint, _new_ve bigint, p string, _batch bigint, _seq bigint",
    )
    (found,) = answers([rc.spark.history(table)])
    assert_equivalent(found, [Event({"p": "A"}, 1, 9), Event({"p": "A"}, 12, 15), Event({"p": "C"}, 3, 4)])


BAD = [
    (
        "SELECT 'retract' _kind, 1L _vs, 5L _ve, 3L _new_ve, 'x' p",
        r"no such event to retract: \[1, 5\) \{\"p\":\"x\"\}",
    ),
    ("SELECT 'upsert' _kind, 1L _vs, 5L _ve, 'x' p", "unknown kind upsert"),
    ("SELECT 'insert' _kind, 5L _vs, 5L _ve, 'x' p", "ends at or before its start"),
    (
        "SELECT 'insert' _kind, timestamp_ntz'2024-05-01' _vs, timestamp_ntz'2024-05-01' _ve, 'x' p",
        r"start: \[2024-05-01 00:00:00, 2024-05-01 00:00:00\) ",
    ),
    ("SELECT 'close' _kind, CAST(NULL AS BIGINT) _vs, 5L _ve, 'x' p", "closes an event that is not open"),
]


@pytest.mark.parametrize(("sql", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_streams_that_are_none(quick: Any, sql: str, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        rc.spark.history(_rows(quick, sql)).collect()


def test_a_history_is_its_own_history(quick: Any) -> None:
    given = quick.createDataFrame(History.from_events([Event({"p": "A"}, 1)]).to_arrow())
    assert rc.spark.history(given).collect() == given.collect()


def test_floats_are_decimals_and_integers_count_as_the_source_says(quick: Any) -> None:
    """A float is the decimal to which it is nearest; milliseconds are instants."""
    amounts = rc.source("s", {"x": pa.decimal128(10, 2)}, start="at", times="ms")
    frame = quick.createDataFrame([(1704067200000, 3.3), (1704067200001, 0.07)], "at bigint, x double")
    found = rc.spark.batch(quick, amounts, {"s": frame}).toArrow()
    assert_equivalent(found, rc.run(amounts, {"s": frame.toArrow()}).history())
    assert sorted(map(str, found["x"].to_pylist())) == ["0.07", "3.30"]
    assert found["_vs"][0].as_py().year == 2024
    for value in (3.333, 1e9, float("nan")):
        wrong = quick.createDataFrame([(1704067200000, value)], "at bigint, x double")
        with pytest.raises(Exception, match="is not the same as decimal128"):
            rc.spark.batch(quick, amounts, {"s": wrong}).toArrow()
