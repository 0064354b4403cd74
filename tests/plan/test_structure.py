"""What a query is, as snapshots and checkpoints remember it: the same for equal queries and for no others."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension import col
from recension.plan import nodes
from recension.plan.expressions import Expression, expression
from recension.plan.fragments import cut
from recension.plan.group_apply import Group
from recension.plan.node import Node, plan_structure, walk
from recension.plan.rewrites import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.plan.structure import describe_structure_difference, to_json, written_fields, written_structure
from recension.testing.transcripts import load_transcripts

SCHEMA = {"k": "string", "x": "int64", "y": "float64"}
s, other = rc.source("s", SCHEMA), rc.source("t", SCHEMA)


def identity(*queries: rc.Stream) -> str:
    return to_json(plan_structure([query.plan for query in queries]))


# Every kind of node, by queries that hold it; what is changed in one of their fields makes another query.


class Peak(rc.Aggregate):
    inputs = {"value": "float64"}
    result = "float64"
    share: float = 0.5

    def compute(self, value: Any) -> float:
        return float(value.max() * self.share)


class Spans(rc.TimeSensitiveOperator):
    inputs = {"value": "float64"}
    result = {"v": "float64"}

    def compute(self, members: Any, window: Any) -> Any:
        return []


def double(row: Any) -> Any:
    return {"x": 2 * row["x"]}


def triple(row: Any) -> Any:
    return {"x": 3 * row["x"]}


def near(before: Any, after: Any) -> Any:
    return np.ones(after.num_rows, bool)


def later(vs: Any, ve: Any) -> Any:
    return vs + 1


QUERIES = [
    s.where(col("x") > 1).select("k", "x"),
    s.map(double, {"x": "int64"}, per_row=True),
    s.union(other).distinct(),
    s.join(other, on="k"),
    s.join(other, on="k", where=col("x") > col("x_right")),
    s.join(other, on="k", where=col("x") > col("x_right"), how="semi", starts=(0, 5)),
    s.join(other, on="k", how="semi", starts=(0, 5)),
    rc.unless(s, other, within=5, on="k"),
    rc.unless(s, other, within=5, on="k", where=col("x") > 1),
    rc.sequence({"a": s, "b": other}, within=5, on=["k", "x"], absent=other, where=col("x") > 1, most=9),
    rc.at_least(1, {"a": s, "b": other}, within=5, on="k", most=None),
    s.shift(1).set_duration(5).extend(2),
    s.hop_lifetime(10, 5).to_points(),
    s.alter_lifetime(start=later),
    s.with_columns(d=rc.lifetime()).with_lifetime(rc.end(), None),
    s.where(rc.start() > 3),
    s.with_lifetime("x", rc.end(), bound=5),
    rc.source("timed", SCHEMA, times="timestamp[us, UTC]").select(at=rc.start()),
    s.edges(group_by="k"),
    rc.source("rows", {**SCHEMA, "end": "bool"}, key="k", version="n", deleted="gone", forget=5),
    rc.changes("rows", {**SCHEMA, "end": "bool"}, "k", version="n", deleted="gone"),
    rc.changes("rows", SCHEMA, "k", "at", version="n", order="version"),
    s.coalesce(on="x", group_by="k", equivalence=rc.within(0.5)),
    s.coalesce(on="x", group_by="k", equivalence=near),
    s.coalesce(on="x", group_by="k", window=rc.range(10, 5)),
    s.coalesce(on="x", group_by="k", window=rc.rows(10, 5)),
    s.clip(other, on="k"),
    s.finalize(),
    s.align(3),
    s.cleanse(),
    s.group_by("k").agg(n=rc.count(), q=rc.quantile("x", 0.5)),
    s.group_by("k").agg(rc.top_k(3, by="x")),
    s.group_by("k").agg(f=rc.aggregate(len, "x", result="int64")),
    s.group_by("k").tumbling(10).agg(n=rc.sum("x")),
    s.group_by("k").count_window(3).agg(n=rc.sum("x")),
    s.group_by("k").sessions(3).agg(n=rc.sum("x")),
    s.group_by("k").sessions(3).agg(p=Peak(value="y")),
    rc.table("known", SCHEMA, refresh=9),
    s.group_by("k").tumbling(10).agg(p=Peak(value="y")),
    s.tumbling(10).apply(Spans(value="y")),
    s.group_by("k").apply(lambda g: g.finalize(2)),
    rc.merge(s, other),
    rc.merge(s, other, case="R3", policy="lead"),
    s.advance_time(5, events=3),
    s.advance_time(5, every=2),
    s.advance_time(by=other),
    s.due(),
    s.due(by="clock"),
    s.due(by=other),
    s.due(by=other, ahead=5),
    rc.source("a table", {"at": "int64", "to": "int64", "x": "int64"}, start="at", end="to"),
    rc.source("out of order", SCHEMA, external_ctis=True, since=3),
    rc.source("parts", SCHEMA, partition="p", order="o", partitions=2, idle=9, run="r", sequence="n"),
    rc.changes("parts", SCHEMA, "k", partition="p", partition_order="o", partitions=2, idle=9),
    rc.changes("sent again", SCHEMA, "k", run="r", sequence="n"),
    rc.ExtentSet(s, rc.range(10, 5), a=rc.coalescing(on="x"), b=rc.coalescing(on="y", group_by="k"))["a"],
]


def all_nodes() -> dict[type[Node], list[Node]]:
    """Some of every kind."""
    answers = (rc.sum("x"), rc.max("x"))
    by = s.group_by("k")
    whole = [by.agg(n=answer, speculate="eager") for answer in answers]
    whole += [by.tumbling(10, until=90).agg(n=answer, speculate="eager") for answer in answers]
    open_merge = nodes.Merge((s.plan,), is_open=True, case="R4")
    plans = [*(query.plan for query in QUERIES), Group(s.plan, 1), open_merge]
    plans += optimize([s.where(col("x") > 1).select("k", z=col("y") * 2).plan])
    plans += preaggregate([query.plan for query in whole], skew=["k"])
    spread = cut([s.advance_time(5).plan, s.align(3).plan])
    plans += [plan for fragment in spread for _, plan in fragment.outputs]
    found = by_kind(plans)
    if missing := node_kinds() - found.keys():
        of_transcripts = by_kind(transcribed())
        found |= {kind: of_transcripts[kind] for kind in missing if kind in of_transcripts}
    return found


def by_kind(plans: list[Node]) -> dict[type[Node], list[Node]]:
    found: dict[type[Node], list[Node]] = {}
    while plans:
        for node in walk(plans.pop()):
            found.setdefault(type(node), []).append(node)
            plans += node.own_plans
    return found


def transcribed() -> list[Node]:
    """The queries of all transcripts: every operator has one."""
    plans = []
    for transcript in load_transcripts([Path(__file__).parents[1] / "transcripts"]):
        sources = {name: rc.source(name, schema) for name, schema in transcript.inputs.items()}
        if transcript.query is not None:
            plans.append(transcript.build({"rc": rc, "col": col, **sources}).plan)
    return plans


def kinds(root: type) -> Iterator[type]:
    kind: type
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def node_kinds() -> set[type]:
    """All nodes that can be built."""
    own = {kind for kind in kinds(Node) if kind.__module__.startswith("recension.plan")}
    return {kind for kind in own if not inspect.isabstract(kind)}


NODES = all_nodes()
PARTITION_FIELDS = ("partition", "order", "partitions", "idle", "run", "sequence")
OF_NO_TABLE = {"Table.end", *(f"Table.{name}" for name in PARTITION_FIELDS)}
# Fields that are no part of what a query is, and why.
NOT_WRITTEN = {
    "Project.verb": "only words errors",
    "TimedSpan.verb": "only words errors",
    "Windows.max_windows": "refuses what is too much, and changes no answer",
    "Range.max_windows": "refuses what is too much, and changes no answer",
    "Merge.on_anomaly": "tells of contradictions or refuses them, and changes no answer",
    "Merge.are_inputs_told": "whether they are told apart in what is said of contradictions",
    "Source.partitions": "how many are waited for at first; a topic may have got more since",
    "RowSource.partitions": "how many are waited for at first; a topic may have got more since",
    "Source.arrival": "when rows came, not what they say",
    "Table.arrival": "when rows came, not what they say",
    "RowSource.arrival": "when rows came, not what they say",
    "RowSource.envelopes": "how rows are written in a file, not what they say",
    "Policies.verify": "calls the user's code twice and compares; state and answers are the same",
}


def test_a_node_that_is_sent_to_another_process_is_the_same_node() -> None:
    """Also in fields that no structure has, and where a subclass adds fields of its own."""
    sources = [
        rc.table("sites", {"k": "string"}, refresh="10m"),
        rc.source("s", SCHEMA, arrival="loaded_at", key="k", version="x"),
        rc.changes("c", SCHEMA, key="k", start="x"),
    ]
    merge = rc.merge(s, other, case="R4", on_anomaly="raise")
    for node in (step for query in (*sources, merge) for step in walk(query.plan)):
        found = pickle.loads(pickle.dumps(node))
        assert found is node
        fresh = type(node)(*node.__reduce__()[1])
        assert all(getattr(fresh, field.name) == getattr(node, field.name) for field in fields(node))


def test_every_kind_of_node_is_looked_at() -> None:
    assert node_kinds() == NODES.keys()


def changes(value: Any, hint: Any) -> Iterator[Any]:
    """Other values that might stand in the place of this one."""
    yield from typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value - 1, value / 2, type(value)(1))
        case str():
            yield from ("x", "k", f"{value}_2", "perfect", "eager", "start", "end")
        case None:
            yield from (1, "x", "k", (0.1, 0.2), expression(col("x") > 7), rc.within(3), lambda vs, ve: vs)
            yield from (expression(rc.start() + 77), pa.timestamp("us"))
        case Node():
            yield from (
                rc.source("another", SCHEMA).plan,
                nodes.Source("of its columns", value.schema),
                *(child.plan for child in (s.shift(77), s.select("x"))),
            )
        case Expression():
            yield from (
                expression(col("x") > 77),
                expression(col("x") + 77),
                expression("y"),
                expression("x"),
            )
            yield from (expression(col("n") + 1), expression(rc.start() + 77))
        case pa.Schema():
            yield from (pa.schema([("x", pa.int32())]), value.append(pa.field("more", pa.int64())))
        case pa.DataType():
            yield from (pa.int8(), pa.timestamp("us"), pa.int64())
        case tuple():
            yield from (value[:-1], (*value, *value[-1:]), value[::-1], (*value, "y"), ("x",), ("y",), (7,))
            yield (("kk", expression("k")),)
            for place, item in enumerate(value):
                for change in changes(item, None):
                    yield (*value[:place], change, *value[place + 1 :])
        case Peak():
            yield Peak(value="y", share=0.7)
        case _ if is_dataclass(value):
            for name in written_fields(type(value)):
                put = partial(put_field, value, name)
                yield from (built(put, new) for new in changes(getattr(value, name), None))
        case _ if callable(value):
            yield from (triple, max)


def one_change_each(value: Any) -> Iterator[tuple[str, Callable[[Any], Any], list[Any]]]:
    """Every field of a dataclass, and of those in it: its path, how to put another value in, which values."""
    hints = typing.get_type_hints(type(value))
    for field in fields(value):
        inside = getattr(value, field.name)
        put = partial(put_field, value, field.name)
        yield f"{type(value).__name__}.{field.name}", put, list(changes(inside, hints.get(field.name)))
        for item, back in parts(inside, put):
            if is_dataclass(item) and not isinstance(item, Node | Expression | type):
                for deeper, deep, news in one_change_each(item):
                    yield deeper, partial(in_turn, deep, back), news


def put_field(value: Any, name: str, new: Any) -> Any:
    return replace(value, **{name: new})


def in_turn(first: Callable[[Any], Any], second: Callable[[Any], Any], new: Any) -> Any:
    return second(first(new))


def put_item(items: tuple[Any, ...], place: int, new: Any) -> Any:
    return (*items[:place], new, *items[place + 1 :])


def parts(inside: Any, put: Callable[[Any], Any]) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    yield inside, put
    if isinstance(inside, tuple):
        for n, item in enumerate(inside):
            yield from parts(item, partial(in_turn, partial(put_item, inside, n), put))


def built(put: Callable[[Any], Any], new: Any) -> Any:
    try:
        changed = put(new)
        return changed if not isinstance(changed, Node) or plan_structure([changed]) else None
    except Exception:
        return None  # a value that may not stand there


@pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)
def test_whatever_is_changed_in_a_node_makes_another_query(kind: type[Node]) -> None:
    tried: dict[str, int] = {}
    for node in NODES[kind]:
        before = to_json(plan_structure([node]))
        assert to_json(plan_structure([replace(node)])) == before  # type: ignore[type-var]
        for path, put, news in one_change_each(node):
            tried.setdefault(path, 0)
            for changed in (built(put, new) for new in news if new is not None):
                if changed is None or (changed is node and path not in NOT_WRITTEN):
                    continue  # it may not stand there, or it is what stands there
                tried[path] += 1
                assert (to_json(plan_structure([changed])) == before) == (path in NOT_WRITTEN), path
    # A table has no times and no partitions, and an end needs a start.
    assert [path for path, times in tried.items() if not times and path not in OF_NO_TABLE] == []


# Expressions: written down as plain specifications, which are compared by how Python prints them.

LITERALS = [
    0,
    1,
    1.0,
    True,
    -0.0,
    0.0,
    float("nan"),
    "1",
    "",
    "x",
    b"1",
    None,
    Decimal("1.0"),
    Decimal("1.00"),
]
LITERALS += [
    date(2020, 1, 1),
    datetime(2020, 1, 1),
    datetime(2020, 1, 1, tzinfo=UTC),
    np.int64(1),
    np.int32(1),
]
METHODS: list[tuple[Any, ...]] = [
    *(("str.slice", 0, 3), ("str.slice", 3), ("str.slice", 0), ("str.slice", 3, 0), ("str.zfill", 0)),
    *(("str.replace_all", "", "x"), ("str.replace_all", "x", ""), ("round", 0), ("round", 1), ("is_in", [1])),
    *(("is_in", [True]), ("is_in", [1.0]), ("is_in", [1, 1]), ("fill_null", 0), ("fill_null", 0.0)),
    *(("cast", "int64"), ("cast", "int32"), ("is_null",), ("str.strip_chars", ""), ("str.strip_chars",)),
    *(("dt.truncate", "1h"), ("dt.truncate", "1m"), ("is_between", 0, 1), ("is_between", 0, 1, "left")),
]
SIGNS = ["__add__", "__sub__", "__eq__", "__and__", "__lt__"]
specs = st.recursive(
    st.one_of(
        st.tuples(st.just("col"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("lit"), st.sampled_from(LITERALS)),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("method"), inner, st.sampled_from(METHODS)),
        st.tuples(st.just("binary"), st.sampled_from(SIGNS), inner, inner),
        st.tuples(st.just("when"), inner, inner, inner),
    ),
    max_leaves=4,
)


def made(spec: Any) -> rc.Expr:
    match spec:
        case ("col", name):
            return rc.col(name)
        case ("lit", value):
            return rc.lit(value)
        case ("method", inner, (name, *arguments)):
            target: Any = made(inner)
            for part in name.split("."):
                target = getattr(target, part)
            return target(*arguments)  # type: ignore[no-any-return]
        case ("binary", sign, left, right):
            return getattr(made(left), sign)(made(right))  # type: ignore[no-any-return]
        case ("when", condition, then, rest):
            return rc.when(made(condition)).then(made(then)).otherwise(made(rest))
    raise AssertionError(spec)


@given(specs, specs)
def test_expressions_are_the_same_if_and_only_if_they_are_written_the_same(one: Any, two: Any) -> None:
    a, b, again = expression(made(one)), expression(made(two)), expression(made(one))
    assert a == again
    assert hash(a) == hash(again)
    assert to_json(written_structure(a)) == to_json(written_structure(again))
    is_same = repr(one) == repr(two)
    assert (a == b) == is_same
    assert (to_json(written_structure(a)) == to_json(written_structure(b))) == is_same


STEPS: list[tuple[str, Any]] = [
    *((verb, n) for verb in ("shift", "extend", "set_duration", "tumbling", "count_window") for n in (1, 2)),
    *(("where", n) for n in (1, 1.0)),
    *(("quantile", q) for q in (0.25, 0.5)),
    *(("keyed", n) for n in (0, 1)),
]
plans = st.lists(st.sampled_from(STEPS), max_size=4)


def planned(steps: list[tuple[str, Any]]) -> rc.Stream:
    stream = rc.source("numbers", {"n": "float64"})
    for verb, n in steps:
        match verb:
            case "where":
                stream = stream.where(col("n") != n)
            case "tumbling" | "count_window":
                stream = getattr(stream, verb)(n).agg(n=rc.mean("n"))
            case "quantile":
                stream = stream.agg(n=rc.quantile("n", n))
            case "keyed":
                stream = stream.join(stream.shift(3), where=col("n") > n).select("n")
            case _:
                stream = getattr(stream, verb)(n)
    return stream


@given(plans, plans)
def test_plans_are_the_same_if_and_only_if_their_steps_are(one: list[Any], two: list[Any]) -> None:
    is_same = repr(one) == repr(two)
    assert (identity(planned(one)) == identity(planned(two))) == is_same
    assert (planned(one).plan is planned(two).plan) == is_same


# Pairs that printed alike, or nearly so.

PAIRS = {
    "slice": (s.where(col("k").str.slice(0, 3) == "a"), s.where(col("k").str.slice(3) == "a")),
    "round": (s.where(col("y").round(0) > 1), s.where(col("y").round(1) > 1)),
    "zfill": (s.where(col("k").str.zfill(0) == "a"), s.where(col("k").str.zfill(1) == "a")),
    "replace": (
        s.where(col("k").str.replace_all("", "x") == "a"),
        s.where(col("k").str.replace_all("x", "") == "a"),
    ),
    "literal": (s.where(col("y") > 1), s.where(col("y") > 1.0)),
    "typed": (s.select(n=rc.lit(1, "int64")), s.select(n=rc.lit(1))),
    "udf": (
        s.select(n=rc.udf(len, result="int64")("k")),
        s.select(n=rc.udf(len, result="int64", over="arrow")("k")),
    ),
    "declared": (
        rc.source("s", SCHEMA, properties=rc.Properties(has_key=True)).edges(group_by="k"),
        s.edges(group_by="k"),
    ),
    "sides": (s.join(s.where(col("x") > 1), on="k"), s.where(col("x") > 1).join(s, on="k")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_snapshot_of_another_query_is_refused(name: str) -> None:
    for one, two in (PAIRS[name], PAIRS[name][::-1]):
        with pytest.raises(rc.RecensionError, match="the snapshot is of another query") as refused:
            rc.session(one).restore(rc.session(two).snapshot())
        assert "\n" not in str(refused.value)
        rc.session(one).restore(rc.session(one).snapshot())


def test_where_steps_print_alike_the_refusal_shows_what_differs() -> None:
    one, two = PAIRS["udf"]
    with pytest.raises(
        rc.RecensionError, match=r"'select n = len\(k\)' is another one: .*'arrow' there and 'rows' here"
    ):
        rc.session(one).restore(rc.session(two).snapshot())


def test_such_pairs_print_differently_too() -> None:
    for name in ("slice", "round", "zfill", "replace", "literal", "typed"):
        one, two = PAIRS[name]
        assert one.plan.label != two.plan.label


def test_a_function_is_known_by_its_name() -> None:
    """A mended function goes on with the state of the one before; another name is another query."""
    first = rc.udf(lambda x: x, result="int64")
    second = rc.udf(lambda x: x + 1, result="int64")
    named = rc.udf(abs, result="int64")
    a, b, c = (s.select(n=f("x")) for f in (first, second, named))
    assert a.plan is not b.plan
    assert identity(a) == identity(b)
    assert identity(a) != identity(c)


class Bounds:
    """A parameter that does not say what it is when it is printed."""

    def __init__(self, low: int) -> None:
        self.low = low


class Within(rc.Aggregate):
    inputs = {"value": "float64"}
    result = "float64"
    bounds: Bounds
    table: Any = None

    def compute(self, value: Any) -> float:
        return float(self.bounds.low)


def test_parameters_of_modules_are_looked_into() -> None:
    def asked(low: int, table: Any = None) -> str:
        return identity(s.tumbling(10).agg(w=Within(value="y", bounds=Bounds(low), table=table)))

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)
    assert asked(1, np.arange(5000)) != asked(1, np.arange(5000) * 2)
    assert asked(1, pa.array(range(50))) != asked(1, pa.array([*range(49), 7]))


def test_functions_beside_modules_are_told_apart() -> None:
    """There they stand in a module, which has no parameters."""

    def asked(fn: Any, result: str = "float64") -> rc.Stream:
        return s.tumbling(10).agg(f=rc.aggregate(fn, "y", result=result), p=Peak(value="y"))

    assert asked(np.median).plan is asked(np.median).plan
    assert asked(np.median).plan is not asked(np.mean).plan
    assert asked(lambda v: 1.0).plan is not asked(lambda v: 2.0).plan
    assert (
        len({identity(asked(np.median)), identity(asked(np.mean)), identity(asked(np.mean, "float32"))}) == 3
    )


@pytest.mark.slow
def test_it_is_the_same_in_another_process() -> None:
    """Hashes of text differ from process to process; the structure does not."""
    program = (
        "import recension as rc; from recension.plan.node import plan_structure;"
        "from recension.plan.structure import to_json;"
        "s = rc.source('s', {'k': 'string'});"
        "print(to_json(plan_structure([s.where(rc.col('k').is_in({'a', 'b', 'c', 'd'})).plan])))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    mine = rc.source("s", {"k": "string"}).where(col("k").is_in({"d", "c", "b", "a"}))
    assert done.stdout.strip() == identity(mine)


def test_differences_are_shown_where_they_are() -> None:
    one, two = (written_structure(expression(col("k").str.slice(*given))) for given in ((0, 3), (3,)))
    assert describe_structure_difference(one, two) == "tree.arguments.offset is 0 there and 3 here"
