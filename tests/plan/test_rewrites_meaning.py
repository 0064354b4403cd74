"""Rewritten plans mean what they meant: random plans against the oracle, before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension import col, denote
from recension.core.batch import payload_of
from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.plan import lifetimes, nodes
from recension.plan.aggregates import Aggregate, Count, First, Max, Sum, TopK
from recension.plan.evaluation import ComputedColumn, Projection
from recension.plan.expressions import Expression, result_type
from recension.plan.node import Node
from recension.plan.properties import meet
from recension.plan.rewrites import optimize

Inputs = Mapping[str, denote.History]
SCHEMA = {"k": "string", "x": "int64", "y": "int64"}


# The oracle's reading of a plan


def meaning(node: Node, inputs: Inputs) -> denote.History:
    """The history a plan stands for."""
    if isinstance(node, nodes.Source):
        return list(inputs[node.name])
    below = [meaning(child, inputs) for child in node.inputs]
    match node:
        case nodes.Where(predicate=predicate):
            return denote.where(below[0], row_function(predicate, node.schema))
        case nodes.Project(outputs=outputs):
            return projected(below[0], outputs, node)
        case nodes.Span(predicates=predicates, outputs=outputs):
            for predicate in predicates:
                below[0] = denote.where(below[0], row_function(predicate, node.input.schema))
            return projected(below[0], outputs, node)
        case nodes.Union():
            union = below[0]
            for other in below[1:]:
                union = denote.union(union, other)
            return union
        case nodes.Distinct():
            return denote.distinct(below[0])
        case nodes.AlterLifetime(lifetime=lifetime):
            return altered(below[0], lifetime)
        case nodes.TimedSpan():
            return timed(below[0], node)
        case nodes.Clip(on=on):
            return denote.clip(below[0], below[1], on)
        case nodes.Pattern():
            return patterned(below, node)
        case nodes.Unless(within=within):
            where = row_function(node.where, node.pair_schema) if node.where else None
            return denote.unless(below[0], below[1], within, node.on, where, node.suffix)
        case nodes.IntervalJoin():
            return joined_by_start(below[0], below[1], node)
        case nodes.Join():
            return joined(below[0], below[1], node)
        case nodes.SnapshotAggregate():
            return aggregated(below[0], node)
    raise AssertionError(node.label)


def row_function(computed: Expression, schema: pa.Schema) -> Callable[[Payload], Any]:
    column = ComputedColumn(computed, result_type(computed, schema, "test"))
    return lambda payload: column(payload_of([payload], schema))[0].as_py()


def projected(history: denote.History, outputs: nodes.Outputs, node: Node) -> denote.History:
    projection = Projection(outputs, node.schema)
    made = projection(
        payload_of([e.payload for e in history], node.inputs[0].schema), len(history)
    ).to_pylist()
    return [Event(payload, e.vs, e.ve) for payload, e in zip(made, history, strict=True)]


def altered(history: denote.History, lifetime: lifetimes.Lifetime) -> denote.History:
    match lifetime:
        case lifetimes.Shift(delta):
            return denote.shift(history, delta)
        case lifetimes.SetDuration(duration):
            return denote.set_duration(history, duration)
        case lifetimes.Extend(delta):
            return denote.extend(history, delta)
        case lifetimes.Hop(size, hop):
            return denote.hop_lifetime(history, size, hop)
        case lifetimes.Deletes():
            return denote.deletes(history)
    raise AssertionError(lifetime)


def timed(history: denote.History, node: nodes.TimedSpan) -> denote.History:
    times = [pa.field(name, pa.int64()) for name in ("start()", "end()")]
    below, above = pa.schema([*node.input.schema, *times]), pa.schema([*node.schema, *times])
    conditions = [row_function(predicate, below) for predicate in node.predicates]
    outputs = {name: row_function(computed, below) for name, computed in node.outputs}
    found: denote.History = []
    for event in history:
        own = {"start()": event.vs, "end()": None if event.ve == FOREVER else event.ve}
        row = dict(event.payload) | own
        if all(holds(row) for holds in conditions):
            payload = {name: value(row) for name, value in outputs.items()}
            start, end = (
                given if computed is None else row_function(computed, above)(payload | own)
                for given, computed in zip(own.values(), (node.start, node.end), strict=True)
            )
            until = FOREVER if end is None else end
            found += [Event(payload, start, until)] if start is not None and start < until else []
    return found


def joined(left: denote.History, right: denote.History, node: nodes.Join) -> denote.History:
    where = row_function(node.where, node.pair_schema) if node.where else None
    return denote.join(left, right, node.on, where, node.how, node.suffix, node.right.schema.names)


def patterned(below: list[denote.History], node: nodes.Pattern) -> denote.History:
    where = row_function(node.where, node.schema) if node.where else None
    parts = dict(zip(node.names, below, strict=False))
    if node.form == "sequence":
        absent = below[-1] if node.has_absent else []
        return denote.sequence(parts, node.within, node.on, absent, where)
    columns = {name: part.schema.names for name, part in zip(node.names, node.parts, strict=True)}
    return denote.at_least(node.size, parts, node.within, node.on, where, columns)


def joined_by_start(left: denote.History, right: denote.History, node: nodes.IntervalJoin) -> denote.History:
    where = row_function(node.where, node.pair_schema) if node.where else None
    starts, how = (node.low, node.high), node.how
    names = node.right.schema.names
    return denote.interval_join(left, right, starts, "both", node.on, where, how, node.suffix, names)


def aggregated(history: denote.History, node: nodes.SnapshotAggregate) -> denote.History:
    keys = [name for name, _ in node.keys]
    rows = denote.agg(**{name: value_of(a) for name, a in node.aggregates if not isinstance(a, TopK)})
    if node.rows:
        assert node.rows.argument
        assert node.rows.argument.column
        rows = denote.top_k(node.rows.k, node.rows.argument.column)
    return denote.grouped(history, keys, lambda group: denote.snapshot(group, rows))


def value_of(aggregate: Aggregate) -> denote.Aggregate:
    column = aggregate.argument.column if aggregate.argument else None
    match aggregate:
        case Count():
            return denote.count(column)
        case Sum():
            return denote.sum(str(column))
        case Max():
            return denote.max(str(column))
        case First():
            return denote.first(str(column))
    raise AssertionError(aggregate)


# Random plans


@st.composite
def histories(draw: st.DrawFn) -> denote.History:
    small = st.integers(0, 3)
    event = st.builds(
        lambda k, x, y, vs, length: Event({"k": k, "x": x, "y": y}, vs, vs + 1 + length),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), small),
        small,
        small,
        small,
    )
    return draw(st.lists(event, max_size=6))


@st.composite
def predicates(draw: st.DrawFn, stream: rc.Stream) -> rc.Expr:
    columns = st.sampled_from(numbers(stream))
    one, other = col(draw(columns)), col(draw(columns))
    atoms = [one > draw(st.integers(0, 2)), one <= other, one.is_null(), one + other != 3]
    if "k" in stream.schema.names:
        atoms.append(col("k") == "a")
    first, second = draw(st.sampled_from(atoms)), draw(st.sampled_from(atoms))
    return draw(st.sampled_from([first, first & second, first | second, ~first]))


def numbers(stream: rc.Stream) -> list[str]:
    return [field.name for field in stream.schema if pa.types.is_integer(field.type)]


@st.composite
def steps(draw: st.DrawFn, stream: rc.Stream, others: list[rc.Stream]) -> rc.Stream:
    """One more step, on what is there."""
    kind = draw(st.sampled_from(STEPS))
    column = draw(st.sampled_from(numbers(stream)))
    match kind:
        case "where":
            return stream.where(draw(predicates(stream)))
        case "with_columns":
            name = draw(st.sampled_from([column, "w"]))
            return stream.with_columns(**{name: col(column) + draw(st.integers(0, 2))})
        case "select":
            kept = draw(st.lists(st.sampled_from(stream.schema.names), unique=True, min_size=1))
            return stream.select(column, *(name for name in kept if name != column))
        case "lifetime":
            alter = draw(st.sampled_from(LIFETIMES))
            return alter(stream)
        case "times":
            name = draw(st.sampled_from([column, "w"]))
            new = "v" if column != "v" else "w"
            read = [rc.start() + col(column), rc.lifetime(), rc.end(), rc.lit(3)]
            keep = [rc.start() > 1, rc.lifetime() < 3, rc.end().is_null() | (col(column) > 1)]
            return draw(
                st.sampled_from(
                    [
                        *(stream.with_columns(**{name: value}) for value in read),
                        *(stream.where(condition) for condition in keep),
                        *(stream.select(column, **{new: value}) for value in read),
                        stream.with_lifetime(rc.start() + 1, rc.end() + col(column)),
                        stream.with_columns(w=rc.lifetime()).with_lifetime(rc.end(), rc.end() + col("w")),
                        stream.with_lifetime(rc.start() + col(column) % 2, None, bound=0),
                    ]
                )
            )
        case "distinct":
            return stream.distinct()
        case "union":
            return stream.union(stream.where(draw(predicates(stream))).shift(1))
        case "aggregate":
            by = [name for name in stream.schema.names if name == "k" and draw(st.booleans())]
            top = draw(st.sampled_from([rc.count(column), rc.sum(column), rc.max(column), rc.first(column)]))
            return stream.group_by(*by).agg(n=rc.count(), x=top) if by else stream.agg(n=rc.count(), x=top)
    other = draw(st.sampled_from(others))
    on = [name for name in ("k", "x") if name in stream.schema.names and name in other.schema.names]
    on = on[: draw(st.integers(0, len(on)))]
    if kind == "clip":
        return stream.clip(by=other, on=on)
    how: nodes.How = draw(st.sampled_from(get_args(nodes.How)))
    suffix = "_" * (1 + max(len(name) for name in [*stream.schema.names, *other.schema.names]))
    every = stream.join(other, on=on, where=rc.lit(True), suffix=suffix)
    where = draw(st.one_of(st.none(), predicates(every)))
    if not on and where is None:
        return stream.join(other, how="cross", suffix=suffix)
    return stream.join(other, on=on, where=where, how=how, suffix=suffix)


STEPS = [
    "where",
    "where",
    "with_columns",
    "select",
    "lifetime",
    "times",
    "times",
    "distinct",
    "union",
    "aggregate",
    "clip",
    "join",
]
LIFETIMES: list[Callable[[rc.Stream], rc.Stream]] = [
    lambda s: s.shift(2),
    lambda s: s.set_duration(2),
    lambda s: s.extend(-2),
    lambda s: s.hop_lifetime(4, 2),
    lambda s: s.deletes(),
]


@st.composite
def plans(draw: st.DrawFn) -> list[rc.Stream]:
    """Two queries that may share what they are made of."""
    made = [rc.source("s", SCHEMA), rc.source("t", SCHEMA)]
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.sampled_from(made[-3:]))
        made.append(draw(steps(start, made[:4])))
    return [made[-1], draw(st.sampled_from(made))]


@given(plans(), histories(), histories())
def test_rewrites_keep_the_meaning(queries: list[rc.Stream], s: denote.History, t: denote.History) -> None:
    roots = [query.plan for query in queries]
    for before, after in zip(roots, optimize(roots), strict=True):
        assert after.schema == before.schema
        assert meet(before.properties, after.properties) == before.properties  # no less is known than before
        inputs = {"s": s, "t": t}
        assert denote.canonical(meaning(after, inputs)) == denote.canonical(meaning(before, inputs))


@given(plans())
def test_what_is_shared_stays_shared(queries: list[rc.Stream]) -> None:
    roots = [query.plan for query in queries]
    rewritten = optimize(roots)
    assert (rewritten[0] is rewritten[1]) or (roots[0] is not roots[1])
    costly = (nodes.Join, nodes.SnapshotAggregate, nodes.Distinct, nodes.Clip)

    def count(plans: list[Node]) -> int:
        return len({node for plan in plans for node in nodes.walk(plan) if isinstance(node, costly)})

    assert count(rewritten) <= count(roots)
