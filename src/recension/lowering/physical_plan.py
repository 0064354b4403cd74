"""The physical plan of queries: a graph of operators.

Each logical node becomes one physical operator; equal nodes are the same object, so a stream that is used
twice becomes one vertex with two readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from recension.core.errors import RecensionError, StreamError
from recension.core.validity import UNKNOWN
from recension.lowering.operators import operator_of
from recension.operators.base import Operator, Orphans, worst_outcome
from recension.operators.orphan_check import OrphanCheck
from recension.plan import nodes
from recension.plan.node import Node, walk
from recension.plan.rewrites import optimize
from recension.plan.source import add_source
from recension.plan.structure import to_json


@dataclass(frozen=True)
class Vertex:
    """An operator and the vertices it reads, in the order of its ports; a source reads none."""

    name: str
    schema: pa.Schema
    operator: Operator | None
    inputs: tuple[int, ...] = ()
    is_shrink_only: bool = False
    """Does no retraction lengthen? Then an event that ends before some time will not outlast it."""
    sends_feedback: bool = False
    """Does it tell its inputs which events it no longer needs?"""
    structure: str = ""
    """What the step is, as snapshots remember it; the name is for people."""


@dataclass(frozen=True)
class PhysicalPlan:
    """Vertices with inputs before their readers, and where sources and queries are among them."""

    vertices: list[Vertex]
    sources: dict[str, nodes.Source]
    source_vertices: dict[str, int]
    queries: dict[str, Node]
    query_vertices: dict[str, int]
    numbers: dict[Node, int]
    paced: dict[int, nodes.AdvanceTime] = field(default_factory=dict)
    """By vertex, the steps that go by the partitions of a source: its gate feeds them."""

    def paced_vertices(self, source: str) -> dict[int, nodes.AdvanceTime]:
        """Those of one source."""
        return {at: step for at, step in self.paced.items() if step.input is self.sources[source]}

    @property
    def unchecked_sources(self) -> set[str]:
        """Sources in which a retraction may name an unknown event: Finalize and merges cope with that."""
        return {
            name
            for name, number in self.source_vertices.items()
            if self.sources[name].external_ctis or self._handles_orphans_above(number)
        }

    @property
    def without_external(self) -> set[str]:
        """Sources with a step above them that cannot use external CTIs."""
        return {
            name
            for name, number in self.source_vertices.items()
            if not all(_takes(reader) or self._passes(at) for at, reader in self._readers(number))
        }

    def with_advice(self, source: str, why: StreamError) -> StreamError:
        """The error, with advice if a finalize or merge above the source would have handled its cause."""
        vertex = self.source_vertices[source]
        if not why.reason.startswith(UNKNOWN) or not self._has_orphan_handler_above(vertex):
            return why
        advice = (
            f"a finalize or merge above {source!r} copes with that, but {source!r} is read without one too: "
            "put .finalize() there as well, or declare on_violation='drop'"
        )
        return StreamError(f"{why.reason}; {advice}", file=why.file, row=why.row)

    def _readers(self, number: int) -> list[tuple[int, Vertex]]:
        """The steps that read a vertex; not those that the gate of a source feeds with what is valid."""
        found = ((at, vertex) for at, vertex in enumerate(self.vertices) if number in vertex.inputs)
        return [(at, vertex) for at, vertex in found if at not in self.paced]

    def _handles_orphans_above(self, number: int) -> bool:
        """Is this read by nothing but Finalize and merges, with only steps between that orphans may pass?"""
        readers = [at for at, _ in self._readers(number)]
        is_answer = number in self.query_vertices.values()
        return not is_answer and bool(readers) and all(self._handles_orphans(at, number) for at in readers)

    def _handles_orphans(self, reader: int, number: int) -> bool:
        """Does this reader handle orphans, or pass them on only to readers that do?"""
        becomes = self._orphans(reader, number)
        return becomes == "take" or (becomes == "pass" and self._handles_orphans_above(reader))

    def _has_orphan_handler_above(self, number: int) -> bool:
        """Is there any step above that handles orphans?"""
        becomes = {at: self._orphans(at, number) for at, _ in self._readers(number)}
        return "take" in becomes.values() or any(
            self._has_orphan_handler_above(at) for at, orphans in becomes.items() if orphans == "pass"
        )

    def _orphans(self, reader: int, number: int) -> Orphans:
        vertex = self.vertices[reader]
        assert vertex.operator is not None, "sources read nothing"
        return worst_outcome(
            [vertex.operator.orphans(port) for port, i in enumerate(vertex.inputs) if i == number]
        )

    def check_other_readers(self) -> None:
        """Put a check between a source that Finalize or a merge mends and its other readers.

        With the policy ``raise`` the source itself is checked, and the first orphan stops the run.
        """
        for name, number in self.source_vertices.items():
            source = self.sources[name]
            if source.on_violation == "raise" or source.external_ctis or source.declared.is_insert_only:
                continue
            copes = {at: self._handles_orphans(at, number) for at, _ in self._readers(number)}
            others = [at for at, is_coping in copes.items() if not is_coping]
            answers = [query for query, at in self.query_vertices.items() if at == number]
            if any(copes.values()) and (others or answers):
                self._read_checked(number, others, answers)

    def _read_checked(self, number: int, readers: list[int], answers: list[str]) -> None:
        checks = [at for at, v in self._readers(number) if isinstance(v.operator, OrphanCheck)]
        source, checked = self.vertices[number], checks[0] if checks else len(self.vertices)
        if not checks:
            operator, shrinks = OrphanCheck(source.schema), source.is_shrink_only
            name = f"check {source.name}"
            vertex = Vertex(name, source.schema, operator, (number,), shrinks, structure=to_json("check"))
            self.vertices.append(vertex)
        for at in readers:
            inputs = tuple(checked if i == number else i for i in self.vertices[at].inputs)
            self.vertices[at] = replace(self.vertices[at], inputs=inputs)
        self.query_vertices.update(dict.fromkeys(answers, checked))

    def _passes(self, number: int) -> bool:
        """Do external CTIs get from here to the answers without meeting anything but steps they pass?"""
        operator = self.vertices[number].operator
        is_passing = operator is not None and operator.external_ctis == "pass"
        return is_passing and all(self._passes(at) for at, _ in self._readers(number))


def lower(queries: Mapping[str, Node]) -> PhysicalPlan:
    """The physical plan of several queries, what they share counted once."""
    roots = dict(zip(queries, optimize(list(queries.values())), strict=True))
    plan = PhysicalPlan([], {}, {}, roots, {}, {})
    for name, root in roots.items():
        plan.query_vertices[name] = _add(plan, root)
    plan.check_other_readers()
    return plan


def extend(plan: PhysicalPlan, query: Node) -> int:
    """Add what a query needs to a plan that runs already; the number of its vertex."""
    size, sources = len(plan.vertices), dict(plan.sources)
    try:
        number = _add(plan, optimize([query])[0])
    except RecensionError:
        _forget_since(plan, size, sources)
        raise
    plan.check_other_readers()
    return number


def _forget_since(plan: PhysicalPlan, size: int, sources: Mapping[str, nodes.Source]) -> None:
    """Undo what was added to the plan before the query was refused."""
    del plan.vertices[size:]
    for node in [node for node, number in plan.numbers.items() if number >= size]:
        del plan.numbers[node]
    for number in [number for number in plan.paced if number >= size]:
        del plan.paced[number]
    for name in [name for name in plan.sources if name not in sources]:
        del plan.sources[name], plan.source_vertices[name]


def _add(plan: PhysicalPlan, root: Node) -> int:
    for node in walk(root):
        if node not in plan.numbers:
            plan.numbers[node] = len(plan.vertices)
            plan.vertices.append(_vertex(node, tuple(plan.numbers[i] for i in node.inputs)))
            if isinstance(node, nodes.AdvanceTime) and node.partitioned_source is not None:
                plan.paced[plan.numbers[node]] = node
            if isinstance(node, nodes.Source):
                add_source(plan.sources, node)
                plan.source_vertices[node.name] = plan.numbers[node]
    return plan.numbers[root]


def _takes(vertex: Vertex) -> bool:
    return vertex.operator is not None and vertex.operator.external_ctis == "take"


def _vertex(node: Node, inputs: tuple[int, ...]) -> Vertex:
    is_shrink_only, structure = node.properties.is_shrink_only, to_json(node.structure)
    if isinstance(node, nodes.Source):
        return Vertex(node.name, node.schema, None, is_shrink_only=is_shrink_only, structure=structure)
    if isinstance(node, nodes.AdvanceTime) and node.partitioned_source is not None:
        # The gate of the source does it, which knows the partition of each row.
        return Vertex(node.label, node.schema, None, inputs, is_shrink_only, structure=structure)
    sends_feedback = isinstance(node, nodes.Merge) and node.feedback
    if isinstance(node, nodes.Merge) and node.is_open:
        inputs = ()  # whoever joins is read
    return Vertex(
        node.label, node.schema, operator_of(node), inputs, is_shrink_only, sends_feedback, structure
    )
