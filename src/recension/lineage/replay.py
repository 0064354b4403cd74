"""The histories of all steps of a query, as far as they are needed.

What is needed is a region of the query's answer. Each step says what of its inputs it reaches; so the sources
are cut down to what can matter, and only that runs, closed, on the local engine. Where more turns out to be
needed a step raises `Widen`, and all runs again with more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.history import History as HistoryTable
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TICKS
from recension.denote.lineage import Lineage, Region
from recension.denote.order import History
from recension.lineage.inputs import SMALL, Input, SourceInput, equal_rows, to_inserts
from recension.lineage.rules import lineage_of
from recension.plan.node import Node, walk
from recension.plan.nodes import AdvanceTime, Align, DueBy, Finalize, Source
from recension.plan.rewrites.push_filters import narrow_joins, push_filters
from recension.plan.source import Leaf
from recension.runners.local import Session

_NOTHING = Region(BEGINNING, BEGINNING)


class Widen(Exception):  # noqa: N818 (a request, no error)
    """A step must be known in a larger region."""

    def __init__(self, node: Node, region: Region) -> None:
        super().__init__(node.label)
        self.node, self.region = node, region


class StepFailedError(RecensionError):
    """A step by itself refuses what it gets in the query as it is written, though not as it runs."""


@dataclass
class Known:
    """A step's events, which are all there in a region."""

    node: Node
    history: HistoryTable
    region: Region
    is_whole: bool
    """Are also those events right that stick out of the region?"""
    stable: frozenset[str]
    """The columns that are right even in events that are cut off."""

    def touching(self, region: Region) -> History:
        """The events in a region."""
        if not self.region.covers(region):
            raise Widen(self.node, region)
        return self._select(region)

    def find(self, region: Region) -> History:
        """The events that are known, as far as they are in a region."""
        if not self.region.for_ever().covers(region):
            raise Widen(self.node, region)
        return self._select(region)

    def _select(self, region: Region) -> History:
        near = (self.history.vs <= region.end) & (self.history.ve >= region.start)
        found = self.history.filter(near)
        by_key = [pair for pair in region.where if pair[0] in self.stable]
        found = _filter(found, by_key)
        if not self.is_whole:
            self._require_inside(found, region)
        return _filter(found, [pair for pair in region.where if pair not in by_key]).to_events()

    def _require_inside(self, found: HistoryTable, region: Region) -> None:
        """Refuse events that may go on beyond what is known."""
        known = self.region
        early = (found.vs <= known.start) & (known.start > BEGINNING)
        late = (found.ve >= known.end) & (known.end < FOREVER)
        if bool((early | late).any()):
            ends = Region(int(found.vs.min()), int(found.ve.max()), region.where)
            raise Widen(self.node, ends.hull(region).stretch(1, 1))


def _filter(history: HistoryTable, where: Sequence[tuple[str, Any]]) -> HistoryTable:
    for name, value in where:
        history = history.filter(equal_rows(history.payload.column(name), value))
    return history


class Replay:
    """A query over its inputs, of which as much is run as is asked for."""

    def __init__(self, plan: Node, inputs: Mapping[str, Input], small: int = SMALL) -> None:
        self.plan, self.inputs = plan, inputs
        self.steps = list(walk(plan))
        self.lineages: dict[Node, Lineage] = {
            node: lineage_of(node) for node in self.steps if not isinstance(node, Leaf)
        }
        self.is_small = sum(map(len, inputs.values())) <= small
        self._needed: dict[Node, Region] = {}
        self.known: dict[Node, Known] = {}
        self.parts: dict[str, HistoryTable] = {}
        self.regions: dict[str, Region] = {}
        self.runs = 0
        self._is_endless = False
        """Is there an event that never ends under windows that do not end? Then time ends at a horizon."""

    def need(self, node: Node, region: Region) -> None:
        """Know a step in a region, too."""
        self._needed[node] = region.hull(self._needed.get(node))
        self.known = {}

    def look(self, node: Node) -> Known:
        """What is known of a step."""
        if not self.known:
            self._run()
        return self.known[node]

    def widen(self, more: Widen) -> None:
        """Know more of a step, by far: so that it is not asked for little by little."""
        region = more.region
        if self.runs > 12:
            self.need(more.node, region.for_ever())
            return
        length = max(region.end - region.start, 1)
        self.need(more.node, region.stretch(length, length))

    @cached_property
    def _all(self) -> dict[Node, Region]:
        return dict.fromkeys(self.steps, Region())

    def _regions(self) -> dict[Node, Region]:
        """Where each step must be known."""
        return self._all if self.is_small else self._reached()

    def _reached(self) -> dict[Node, Region]:
        """Where each step must be known, by what each says of its inputs."""
        found = dict(self._needed)
        for node in reversed(self.steps):
            if node in self.lineages and node in found:
                for child, there in zip(node.inputs, self.lineages[node].reach(found[node]), strict=True):
                    found[child] = there.hull(found.get(child))
        return found

    def _run(self) -> None:
        try:
            self._run_steps()
        except RecensionError as why:
            # A grid of windows over an event that never ends can be followed only up to some time.
            if self._is_endless or "until=" not in str(why) or self._horizon == FOREVER:
                if as_it_runs(self.plan) is not self.plan:
                    raise StepFailedError(str(why)) from why
                raise
            self._is_endless, self.is_small = True, False
            self._run_steps()

    def _run_steps(self) -> None:
        self.runs += 1
        regions = self._regions()
        sources = {node.name: node for node in self.steps if isinstance(node, Source) and node in regions}
        self.parts = {name: self.inputs[name].history(regions[node]) for name, node in sources.items()}
        self.regions = {name: regions[node] for name, node in sources.items()}
        named = {str(i): n for i, n in enumerate(self.steps) if n in self.lineages and n in regions}
        histories = self.run(named, self.parts) if named else {}
        whole: dict[Node, bool] = {}
        stable: dict[Node, frozenset[str]] = {}
        for i, node in enumerate(self.steps):
            if node not in regions:
                continue
            lineage = self.lineages.get(node)
            whole[node] = lineage is None or (lineage.is_whole and all(whole[child] for child in node.inputs))
            stable[node] = _stable_columns(node, lineage, stable)
            history = histories[str(i)] if lineage is not None else self.parts[_name(node)]
            self.known[node] = Known(node, history, regions[node], whole[node], stable[node])

    def to_replay(
        self, *, whole: bool = False
    ) -> tuple[dict[str, SourceInput], dict[str, Region], dict[str, Region]]:
        """For a biography: the inputs, the regions of them to replay, and those that may change the answer.

        These have the keys of the answer; of very much only what the answer reaches is replayed, unless steps
        tell from all events how far time is.
        """
        is_whole = whole or self.is_small or any(map(_goes_by_events, self.steps))
        reached = self._reached() if is_whole else {}
        keys = {n.name: there.for_ever() for n, there in reached.items() if isinstance(n, Source)}
        regions = dict.fromkeys(keys, Region()) if is_whole else self.regions
        # An input that no step needs: its CTIs are there all the same.
        parts = {name: one.part(regions.get(name, _NOTHING)) for name, one in self.inputs.items()}
        return parts, regions, keys if is_whole else regions

    def answers(self, parts: Mapping[str, HistoryTable]) -> HistoryTable:
        """The history of the query over other parts of the inputs."""
        if self.plan not in self.lineages:
            return parts[_name(self.plan)]
        return self.run({"query": self.plan}, parts)["query"]

    def run(self, queries: Mapping[str, Node], parts: Mapping[str, HistoryTable]) -> dict[str, HistoryTable]:
        """The histories of some steps over parts of the inputs, which are closed."""
        session = Session(dict(queries), history_limit=None, clock=lambda: 0)
        for name in session.sources:
            batch = self._elements(name, parts[name])
            if len(batch):
                session.feed(name, batch)
        for name in session.sources:
            session.advance(name, self._horizon if self._is_endless else FOREVER)
        return {name: replace(session.history(name), time_type=TICKS) for name in queries}

    @property
    def _horizon(self) -> int:
        """A time by which everything is known that was asked for."""
        return max((region.end for region in self._reached().values()), default=FOREVER)

    def _elements(self, name: str, part: HistoryTable) -> EventBatch:
        if not self.inputs[name].source.are_rows:
            return to_inserts(part)
        return _as_they_came(part)


def _goes_by_events(node: Node) -> bool:
    """Does the step tell from all its events how far time is?"""
    match node:
        case AdvanceTime() | DueBy():
            return True
        case Align(block=wait) | Finalize(remember=wait):
            return wait not in (0, FOREVER)
        case _:
            return False


def as_it_runs(plan: Node) -> Node:
    """The query with its filters where a run has them: steps above them never see what they drop."""
    (moved,) = push_filters(narrow_joins([plan]))
    return moved


def _stable_columns(
    node: Node, lineage: Lineage | None, below: Mapping[Node, frozenset[str]]
) -> frozenset[str]:
    """Columns whose values an event has of its inputs, wherever it is cut off."""
    if lineage is None:
        return frozenset(node.schema.names)
    held: dict[str, bool] = {}
    for child, columns in zip(node.inputs, lineage.columns, strict=True):
        for name, old in columns.items():
            held[name] = held.get(name, True) and old in below[child]
    return frozenset(name for name, is_stable in held.items() if is_stable)


def _as_they_came(rows: HistoryTable) -> EventBatch:
    """Rows of keys in the order of their arrival."""
    in_order = replace(rows, vs=np.arange(len(rows)), ve=np.arange(len(rows)))
    batch = to_inserts(in_order)
    return replace(batch, vs=rows.vs, ve=rows.ve)


def _name(node: Node) -> str:
    if not isinstance(node, Source):
        raise RecensionError(f"why: {node.label!r} is part of a query, not a query")
    return node.name
