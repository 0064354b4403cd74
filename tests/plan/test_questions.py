"""Every kind of node answers every question that is put to nodes, and the answers fit its columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.plan.test_structure import NODES, node_kinds

from recension.core.errors import RecensionError, SchemaError
from recension.denote.lineage import Region
from recension.lineage.rules import lineage_of
from recension.lowering import operator_of
from recension.lowering.explain_choices import describe_choice
from recension.operators.base import Operator
from recension.plan import nodes
from recension.plan.expressions import expression, lit
from recension.plan.fragments import cut, describe_fragments
from recension.plan.node import Names, Node, all_of, walk
from recension.plan.source import Leaf, Source
from recension.plan.span import Project, SpanNode

EVERY = [
    pytest.param(node, id=f"{kind.__name__} {i}") for kind in NODES for i, node in enumerate(NODES[kind])
]
STEPS = [case for case in EVERY if not isinstance(case.values[0], Leaf)]
SPANS = [case for case in EVERY if isinstance(case.values[0], SpanNode)]

every_node = pytest.mark.parametrize("node", EVERY)
every_step = pytest.mark.parametrize("node", STEPS)


def below(node: Node) -> list[Names]:
    return [frozenset(child.schema.names) for child in node.inputs]


def test_there_are_nodes_of_every_kind() -> None:
    assert node_kinds() == NODES.keys()


@every_node
def test_columns_are_those_of_its_inputs(node: Node) -> None:
    whole = frozenset(node.schema.names)
    read = node.columns_read(whole)
    assert len(read) == len(node.inputs)
    for names, child in zip(read, below(node), strict=True):
        assert names <= child
    kept = node.kept_columns()
    assert kept.keys() <= whole
    if node.inputs:
        assert set(kept.values()) <= frozenset.intersection(*below(node))
    types = {name: [child.schema.field(old).type for child in node.inputs] for name, old in kept.items()}
    assert all(node.schema.field(name).type == kind for name, of in types.items() for kind in of)


@every_node
def test_without_unread_columns_it_still_gives_what_is_read(node: Node) -> None:
    for name in node.schema.names:
        narrow = node.without_unread(frozenset([name]))
        assert narrow.schema.field(name) == node.schema.field(name)
        assert narrow.columns_read(frozenset([name])) == node.columns_read(frozenset([name]))


@every_node
def test_filters_go_to_its_inputs(node: Node) -> None:
    rules = node.filters_below()
    assert len(rules) == len(node.inputs)
    for rule, child in zip(rules, below(node), strict=True):
        if rule is not None:
            assert rule.columns.keys() <= set(node.schema.names)
            assert all(computed.references <= child for computed in rule.columns.values())


@every_step
def test_it_says_why_it_needs_one_shard(node: Node) -> None:
    """As a phrase that follows its label; a step with a key never has to."""
    needs = None if node.is_spread else node.needs()
    is_whole = all(isinstance(step, Source) or not isinstance(step, Leaf) for step in walk(node))
    if needs is not None and not any(needs) and is_whole:
        said = describe_fragments(cut([node]))
        assert f"in one shard because {node.label!r} {node.why_single}" in said or node.can_hear(None)
        assert node.why_single[0].islower()


@every_step
def test_it_says_what_it_needs_together(node: Node) -> None:
    needs = node.needs() if not node.is_spread else None
    if needs is not None:
        assert len(needs) == len(node.inputs)
        for keys, child in zip(needs, below(node), strict=True):
            assert all(computed.references <= child for _, computed in keys)
        assert len({len(keys) for keys in needs}) <= 1


@every_step
def test_it_says_how_it_stands_to_time(node: Node) -> None:
    assert isinstance(node.passes_external_ctis, bool)
    assert isinstance(node.ignores_ctis, bool)
    assert isinstance(node.is_keyed(set()), bool)
    keeps_columns = len(node.schema) == len(node.inputs[0].schema) or isinstance(node, nodes.ByKey)
    assert not node.is_before_state or node.needs() is None or keeps_columns
    assert all(isinstance(where, str) and isinstance(t, int) for where, t in node.named_times)
    assert node.with_speculate("eager").schema == node.schema


@every_step
def test_on_all_groups_its_first_columns_are_the_keys(node: Node) -> None:
    visible_inputs = [at for at, child in enumerate(node.inputs) if child in node.visible_inputs] or [0]
    keyed = [_keyed(child) if at in visible_inputs else child for at, child in enumerate(node.inputs)]
    made = node.with_group_keys(("a key",), keyed)
    assert made.schema.names == ["a key", *node.schema.names]


def _keyed(node: Node) -> Node:
    return Project(node, (("a key", expression(lit(1))), *all_of(node.schema)))


@every_step
def test_the_local_engine_and_explain_know_it(node: Node) -> None:
    assert isinstance(operator_of(node), Operator)
    assert describe_choice(node) is None or isinstance(describe_choice(node), str)


@every_step
def test_it_says_what_its_answers_rest_on(node: Node) -> None:
    lineage = lineage_of(node)
    assert len(lineage.columns) == len(node.inputs) == len(lineage.reach(Region(3, 5)))
    for columns, child in zip(lineage.columns, below(node), strict=True):
        assert columns.keys() <= set(node.schema.names)
        assert set(columns.values()) <= child


@pytest.mark.parametrize("node", SPANS)
def test_a_span_is_what_its_parts_say(node: SpanNode) -> None:
    parts = node.as_span()
    if parts is not None:
        assert [name for name, _ in parts[1]] == node.schema.names
    keep, payload = node.kernel()(pa.RecordBatch.from_pylist([], schema=node.input.schema))
    assert payload.schema == node.schema
    assert keep is None or not len(keep)


@pytest.mark.parametrize("node", [case for case in EVERY if isinstance(case.values[0], Leaf)])
def test_what_stands_for_a_stream_is_never_taken_for_a_step(node: Any) -> None:
    with pytest.raises(SchemaError):
        node.with_group_keys(("k",), node.inputs)
    with pytest.raises(RecensionError):
        operator_of(node)
    with pytest.raises(RecensionError):
        lineage_of(node)
