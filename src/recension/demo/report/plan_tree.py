"""The plans as they run: every step with what is known of its output and what was chosen for it."""

from __future__ import annotations

from html import escape

import recension as rc
from recension.demo.plans import POLICY, first_plan, known, other_plan
from recension.lowering import chosen
from recension.plan.node import Node
from recension.plan.properties import describe_properties
from recension.plan.rewrites import optimize
from recension.plan.schemas import describe_columns


def plans() -> str:
    """Two plans side by side, and the merge that reads the replicas that run them."""
    answers = first_plan().schema
    merge = rc.merge(rc.source("all replicas", answers, properties=known()), policy=POLICY)
    columns = [
        _column("the first plan: north, south, west", first_plan()),
        _column("the other plan: south-2", other_plan()),
    ]
    return f'{_step(_as_run(merge))}<div class="plans">{"".join(columns)}</div>'


def _as_run(query: rc.Stream) -> Node:
    (root,) = optimize([query.plan])
    return root


def _column(title: str, query: rc.Stream) -> str:
    steps = "".join(_step(node) for node in _downwards(_as_run(query)))
    return f'<div class="plan"><h4>{escape(title)}</h4>{steps}</div>'


def _downwards(node: Node) -> list[Node]:
    """From the answer to the source: these plans do not branch."""
    return [node, *(below for child in node.inputs for below in _downwards(child))]


def _step(node: Node) -> str:
    facts = [("columns", describe_columns(node.schema)), ("known", describe_properties(node.properties))]
    if words := chosen(node):
        facts.append(("chosen", words))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f'<div class="step"><strong>{escape(node.label)}</strong><dl>{rows}</dl></div>'
