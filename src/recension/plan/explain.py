"""What a query will do, for people (a tree of text) and for tools (JSON).

Each step shows its columns and what is known of its output; ``annotate`` adds what lowering chose for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, Literal, TypeAlias

from recension.core.errors import RecensionError
from recension.plan.node import Node, count_readers, each_once
from recension.plan.properties import describe_properties
from recension.plan.schemas import describe_columns, type_name
from recension.plan.warnings import describe_lifetimes, find_warnings

Annotate: TypeAlias = Callable[[Node], str | None]
Format: TypeAlias = Literal["text", "json"]


def explain(roots: Sequence[Node], *, annotate: Annotate | None = None, format: Format = "text") -> str:
    """The plan of one or more queries."""
    if format == "text":
        return _text(roots, annotate or (lambda node: None))
    if format == "json":
        return json.dumps(describe(roots, annotate), indent=2, ensure_ascii=False)
    raise RecensionError(f"explain: format is 'text' or 'json', not {format!r}")


def describe(roots: Sequence[Node], annotate: Annotate | None = None) -> dict[str, Any]:
    """The plan as plain values: nodes numbered with inputs before their readers."""
    numbers = {node: number for number, node in enumerate(each_once(roots))}
    nodes = [
        {
            "id": number,
            "node": type(node).__name__,
            "label": node.label,
            "inputs": [numbers[child] for child in node.inputs],
            "schema": {field.name: type_name(field.type) for field in node.schema},
            "lifetimes": describe_lifetimes(node),
            "properties": asdict(node.properties),
            "chosen": annotate(node) if annotate else None,
        }
        for node, number in numbers.items()
    ]
    return {"roots": [numbers[root] for root in roots], "nodes": nodes, "warnings": find_warnings(roots)}


def explain_html(root: Node, annotate: Annotate) -> str:
    """The plan of a query as nested lists, for notebooks; a step with several readers is shown once."""
    shown: set[Node] = set()

    def show(node: Node) -> str:
        title = f"<b>{escape(node.label)}</b>"
        if node in shown:
            return f"<li>{title} (see above)</li>"
        shown.add(node)
        facts = "".join(f"<br><small>{escape(line)}</small>" for line in _describe_facts(node, annotate))
        below = "".join(show(child) for child in node.inputs)
        return f"<li>{title}{facts}{f'<ul>{below}</ul>' if below else ''}</li>"

    return f"<ul>{show(root)}</ul>"


def _text(roots: Sequence[Node], annotate: Annotate) -> str:
    """One tree a query. A step with several readers is numbered, shown once, and then referred to."""
    readers = count_readers(roots)
    shared = [node for node in each_once(roots) if readers[node] > 1]
    numbers = {node: f"#{number} " for number, node in enumerate(shared, start=1)}
    shown: set[Node] = set()
    lines: list[str] = []

    def show(node: Node, first: str, rest: str) -> None:
        title = numbers.get(node, "") + node.label
        if node in shown:
            lines.append(f"{first}{title} (see above)")
            return
        shown.add(node)
        lines.append(first + title)
        stem = rest + ("│  " if node.inputs else "   ")
        lines.extend(stem + line for line in _describe_facts(node, annotate))
        for left, child in zip(range(len(node.inputs) - 1, -1, -1), node.inputs, strict=True):
            show(child, rest + ("├─ " if left else "└─ "), rest + ("│  " if left else "   "))

    for root in roots:
        show(root, "", "")
    lines += [f"warning: {text}" for text in find_warnings(roots)]
    return "\n".join(lines) + "\n"


def _describe_facts(node: Node, annotate: Annotate) -> list[str]:
    chosen = annotate(node)
    return [
        f"columns: {describe_columns(node.schema)}",
        f"known: {describe_properties(node.properties)}",
        *_indent_under("lifetimes: ", describe_lifetimes(node)),
        *_indent_under("chosen: ", chosen),
    ]


def _indent_under(title: str, words: str | None) -> list[str]:
    """The words, perhaps of several lines, under their title."""
    lines = words.splitlines() if words else []
    return [(title if not i else " " * len(title)) + line for i, line in enumerate(lines)]
