"""Feedback: a merge that has gone ahead tells slower inputs which events no reader needs.

A signal goes from reader to input as far as operators can say what it means for theirs. A stream with several
readers skips only what no reader needs. What is not needed is left out on the way into a reader, if
no retraction of that stream lengthens an event: then an end, once seen, is the latest there will be.

Whoever reads an answer is a reader too, and wants all of it until it says otherwise.

Source      Physically Independent Stream Merging, §V-D; ruling 47.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from recension.core.ticks import BEGINNING, FOREVER
from recension.lowering import Vertex
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.pipeline import Flow

# Who reads an answer, where readers are vertices.
OUTSIDE: Final = -1
# A reader and its port; of an answer, OUTSIDE and the vertex that gives it.
Edge: TypeAlias = tuple[int, int]


class Feedback:
    """What each reader still wants of each of its inputs."""

    def __init__(self, outputs: Iterable[int]) -> None:
        self._outputs = set(outputs)
        self._wanted: dict[Edge, int] = {}
        self._sent: dict[int, int] = {}
        self._passed_on: dict[int, int] = {}

    def rewire(self, vertices: Sequence[Vertex], running: Sequence[int]) -> None:
        """Streams may have other readers now: what they do not want is sent anew."""
        self._vertices = vertices
        self._senders = [number for number in running if vertices[number].sends_feedback]
        self._readers: dict[int, list[Edge]] = {}
        for reader in running:
            for port, number in enumerate(vertices[reader].inputs):
                self._readers.setdefault(number, []).append((reader, port))
        for number in self._outputs:
            self._readers.setdefault(number, []).append((OUTSIDE, number))

    def wants_all(self, edge: Edge, number: int) -> bool:
        """May everything matter to a reader of what a vertex gives?"""
        return self._wanted.get(edge, BEGINNING) == BEGINNING or not self._vertices[number].is_shrink_only

    def keep_wanted(self, edge: Edge, number: int, flow: Flow) -> Flow:
        """What may matter to a reader of what a vertex gives."""
        if self.wants_all(edge, number):
            return flow
        since = self._wanted[edge]
        kept = [batch.filter((batch.ve >= since) | ~batch.is_data()) for batch in flow.batches]
        return replace(flow, batches=kept)

    def receive_feedback(self, output: int, t: int) -> None:
        """Those who read an answer do not want what finally ends before ``t``."""
        if t > self._wanted.get((OUTSIDE, output), BEGINNING):
            self._wanted[OUTSIDE, output] = t
            self._pass_on(output)

    def send(self) -> None:
        """Let every merge that has advanced tell the inputs that lag."""
        for number in self._senders:
            merge = self._vertices[number].operator
            assert isinstance(merge, LogicalMerge)
            if BEGINNING < merge.out_cti < FOREVER and merge.out_cti > self._sent.get(number, BEGINNING):
                self._sent[number] = merge.out_cti
                for port in merge.lagging_ports():
                    self._set_wanted(number, port, merge.out_cti)

    def _set_wanted(self, reader: int, port: int, t: int) -> None:
        if t <= self._wanted.get((reader, port), BEGINNING):
            return
        self._wanted[reader, port] = t
        number = self._vertices[reader].inputs[port]
        if number >= 0:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """What no reader of a vertex wants, its inputs need not give."""
        least = min(self._wanted.get(edge, BEGINNING) for edge in self._readers[number])
        vertex = self._vertices[number]
        if vertex.operator is None or least <= self._passed_on.get(number, BEGINNING):
            return
        self._passed_on[number] = least
        shrinks = [self._vertices[i].is_shrink_only if i >= 0 else False for i in vertex.inputs]
        for own_port, since in enumerate(vertex.operator.on_feedback(least, shrinks)):
            if since is not None and since > BEGINNING:
                self._set_wanted(number, own_port, since)
