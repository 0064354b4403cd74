"""Why an event of an edge is what it is, told to the page: by `recension.lineage`, from the recorded inputs.

An event is explained as of a step: the inputs are those that had come by then. So an answer that was taken
back later is explained by what was known when it was given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, new_end
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.time_kind import of_kind
from recension.core.values import rows_of
from recension.inspector.page_data import edge_id, show_value
from recension.lineage import Why, explain_answer
from recension.lineage.words import describe_absence, describe_event
from recension.lowering import lower
from recension.plan.node import Node, rebuild, walk
from recension.plan.properties import NOTHING_KNOWN
from recension.plan.source import Source, Table, sources_of
from recension.runners.recording import Recording
from recension.runners.result import Result

_LINES: Final = 3
_ANSWERS: Final = 200
_SECONDS: Final = 10.0


class Reasons:
    """Explains the events of a recording whose query is known."""

    def __init__(self, recording: Recording, query: Node) -> None:
        self._recording = recording
        plan = lower({"query": query})
        self._nodes = {number: node for node, number in plan.numbers.items()}
        # The answer by the query as it was written: its steps are those that people know.
        self._nodes[plan.query_vertices["query"]] = query
        self._written = {node.label for node in walk(query)}

    def explain(self, edge: int, elements: Sequence[int], until: int) -> dict[str, Any]:
        """Why there is the event that these elements tell of, by what had come until a step."""
        if edge not in self._nodes:
            raise RecensionError("the query is not the one that was recorded: it has no such step")
        event, until = self._event(edge, elements, until)
        (node,) = rebuild([self._nodes[edge]], _as_recorded)
        inputs = {name: self._input(source, until) for name, source in sources_of(node).items()}
        return self._tell(edge, explain_answer(node, inputs, event, biography=False), until)

    def explain_answers(self) -> tuple[list[dict[str, Any]], str | None]:
        """Why for the answers as they are in the end, as many as take some seconds; and what is left out."""
        found, began, last = list[dict[str, Any]](), time.monotonic(), self._last_step()
        for edge in dict.fromkeys(self._recording.queries.values()):
            if edge not in self._recording.edges or edge in self._recording.sources.values():
                continue
            chains = list(iter_events(self._recording.stream(edge).batch()))
            for number, elements in enumerate(chains):
                if len(found) >= _ANSWERS or time.monotonic() - began > _SECONDS:
                    return found, f"this page explains {number:,} of {len(chains):,} answers"
                told = self.explain(edge, elements, last)
                found.append({"edge": edge_id(0, edge), "element": elements[0], **told})
        return found, None

    def _last_step(self) -> int:
        steps = self._recording.steps()["step"]
        return int(steps[-1].as_py()) if len(steps) else 0

    def _event(self, edge: int, elements: Sequence[int], until: int) -> tuple[Event, int]:
        """The event as it was after a step, or after the last step before it was taken back."""
        came = [(step, batch) for step, batch in self._elements(edge, elements) if step <= until]
        while came and int(new_end(came[-1][1])[0]) == int(came[-1][1].vs[0]):
            until = min(until, came.pop()[0] - 1)
        if not came:
            # Taken back in the very step that told of it, or not told of yet: as it was first told.
            step, first = self._elements(edge, elements)[0]
            came, until = [(step, first)], max(until, step)
        batch = came[-1][1]
        (payload,) = rows_of(batch.payload) if batch.payload.num_columns else [{}]
        kind = self._recording.stream(edge).time_type
        start, end = of_kind(int(batch.vs[0]), kind), of_kind(int(new_end(batch)[0]), kind)
        return Event(payload, start, end), until

    def _elements(self, edge: int, elements: Sequence[int]) -> list[tuple[int, EventBatch]]:
        """The elements with these numbers, each with its step."""
        rows = self._recording.rows(edge)
        if rows is None or not elements or not 0 <= min(elements) <= max(elements) < len(rows):
            raise RecensionError("the recording has no such elements")
        whole, steps = self._recording.stream(edge).batch(), rows["_batch"].to_pylist()
        return [(steps[at], whole.slice(at, at + 1)) for at in elements]

    def _input(self, source: Source, until: int) -> Result | pa.Table:
        stream = self._recording.stream(source.name)
        batches = [batch for step, batch in self._recording.by_step(source.name).items() if step <= until]
        if isinstance(source, Table):
            rows = [batch.filter(batch.is_data()).payload for batch in batches]
            return pa.Table.from_batches(rows, stream.schema)
        return Result(batches, stream.schema, NOTHING_KNOWN, stream.time_type)

    def _tell(self, edge: int, why: Why, until: int) -> dict[str, Any]:
        kind, sources = why.time_type, self._recording.sources
        labels = {vertex["label"]: int(vertex["id"]) for vertex in self._recording.manifest["plan"]}
        lit = {labels[step.label] for step in why.steps if step.label in labels}
        lit |= {sources[name] for name in why.named}
        steps = list[dict[str, Any]]()
        for step in why.steps:
            lines = [f"{describe_event(event, kind)}: {words}" for event, words in step.lines[:_LINES]]
            more = [f"and {len(step.lines) - _LINES} more"] if len(step.lines) > _LINES else []
            steps += [{"label": step.label, "lines": [*lines, *more]}] if lines else []
        named = [(source, one) for source, several in why.named.items() for one in several]
        return {
            "until": until,
            "steps": steps,
            "events": [
                {
                    "edge": edge_id(0, sources[source]),
                    "mark": one.mark,
                    "texts": {k: None if v is None else show_value(v) for k, v in one.event.payload.items()},
                    "vs": str(int(one.event.vs)),
                    "ve": str(int(one.event.ve)),
                }
                for source, one in named
            ],
            "absences": [describe_absence(one.source, one.region, kind) for one in why.absences],
            "edges": [edge_id(0, number) for number in sorted(lit | self._made_between(lit))],
        }

    def _made_between(self, lit: set[int]) -> set[int]:
        """The steps that nobody wrote, made by rewrites, on the way from one of some steps to another."""
        plan = self._recording.manifest["plan"]
        made = {int(step["id"]) for step in plan if step["label"] not in self._written}
        from_below, from_above = set(lit), set(lit)
        for step in plan:  # inputs come first
            if int(step["id"]) in made and from_below & set(step["inputs"]):
                from_below.add(int(step["id"]))
        for step in reversed(plan):
            if int(step["id"]) in from_above:
                from_above |= made & set(step["inputs"])
        return made & from_below & from_above


def _as_recorded(node: Node) -> Node:
    """A source as it was recorded: one stream, whatever sub-streams it was made of."""
    if not isinstance(node, Source):
        return node
    return replace(node, partition=(), order=(), partitions=None, idle=None, run=None, sequence=())


def iter_events(batch: EventBatch) -> Iterator[list[int]]:
    """The elements of every event that is left in the end, by its first element."""
    alive: dict[Any, list[list[int]]] = {}
    data = batch.is_data()
    payloads = rows_of(batch.payload) if batch.payload.num_columns else [{}] * len(batch)
    for at in range(len(batch)):
        if not data[at]:
            continue
        key, vs = str(payloads[at]), int(batch.vs[at])
        chain = [at]
        if batch.kind[at] != INSERT:
            there = alive.get((key, vs, int(batch.ve[at])))
            chain = [*there.pop(), at] if there else chain
        if (end := int(new_end(batch)[at])) > vs:
            alive.setdefault((key, vs, end), []).append(chain)
    return iter(sorted(chain for several in alive.values() for chain in several))
