"""Which nodes of an R3 merge a stable has to look at: those that it may change or make final.

A node is looked at when a stable passes its start. After that it is *half frozen*, and looked at again

    when an input or the output has changed it;
    when a stable passes what is then the earlier end, of the leading input and the output;
    when another input leads, if inputs disagree on it;
    with every stable, if the output could not follow.

The others stay as they are: what decides about them has not changed.
"""

from __future__ import annotations

import numpy as np

from recension.core.batch import Index
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.lmerge.in2t import In2t
from recension.operators.lmerge.merge import OUT
from recension.operators.state.leaf_table import unique_numbers
from recension.operators.state.time_queue import TimeQueue


class LookQueue:
    """Nodes of an index by the time when a stable has to look at them."""

    def __init__(self, index: In2t, follows: bool) -> None:
        self._index = index
        # Is the output brought into line when another input leads, also where no stable has come yet?
        self._follows = follows
        self._starts, self._ends = TimeQueue(), TimeQueue()
        self._changed: list[Index] = []
        self._leader: int | None = None
        # How far a stable has looked at nodes. Those that start later are in ``_starts``, changed or not.
        self._looked_until = BEGINNING

    def nbytes(self) -> int:
        """Memory held."""
        return 16 * (len(self._starts) + len(self._ends))

    def restore(self, last_stable: int, ports: list[int]) -> None:
        """Begin with the nodes of the index: the next stable looks at all that are half frozen."""
        self._starts, self._ends, self._leader = TimeQueue(), TimeQueue(), None
        nodes = self._index.all_nodes()
        vs = self._index.vs(nodes)
        self._starts.push(vs[vs >= last_stable], nodes[vs >= last_stable])
        self._changed, self._looked_until = [nodes[vs < last_stable]], last_stable
        self.note_disputes(nodes, ports)

    def catch_up(self, nodes: Index, ports: list[int]) -> None:
        """Stables have passed elsewhere, and these nodes have come or changed there.

        What a stable passed is still in the queue; another input may have led.
        """
        self.add(self._index.vs(nodes), nodes)
        self.note_disputes(nodes, ports)
        self._leader = None

    def add(self, vs: Ticks, nodes: Index) -> None:
        """Nodes that start at these times."""
        self._starts.push(vs, nodes)

    def note_changed(self, nodes: Index, ports: list[int]) -> None:
        """An input, or the output, has other ends for these nodes."""
        self._changed.append(nodes.compress(self._index.vs(nodes) < self._looked_until))
        if self._follows:  # else it is early enough when the next stable has looked at them
            self.note_disputes(nodes, ports)

    def note_disputes(self, nodes: Index, ports: list[int]) -> None:
        """Find out on which nodes these inputs and the output disagree."""
        out, is_disputed = self._index.ends(OUT).take(nodes), np.zeros(len(nodes), np.bool_)
        for port in ports:
            is_disputed |= self._index.ends(port).take(nodes) != out
        self._index.nodes["disputed"][nodes] = is_disputed

    def disputed_nodes(self) -> Index:
        """The nodes on which inputs and output may disagree."""
        nodes = np.flatnonzero(self._index.nodes["disputed"])
        return nodes[self._index.nodes.is_live(nodes)]

    def pop(self, leader: int, t: int, lo: int) -> Index:
        """The nodes that a stable at ``t`` looks at, by which ends before ``lo`` become final."""
        found = [self._starts.pop_before(t)[1], self._ends.pop_before(lo)[1], *self._changed]
        if leader != self._leader:
            found.append(self.disputed_nodes())
        self._leader, self._changed, self._looked_until = leader, [], t
        nodes = self._index.all_nodes() if t == FOREVER else unique_numbers(np.concatenate(found))
        # What was waited for may be gone, and its number that of another node.
        nodes = nodes[: np.searchsorted(nodes, self._index.nodes.size)]
        return nodes.compress(self._index.nodes.is_live(nodes) & (self._index.vs(nodes) < t))

    def look_again(self, nodes: Index, times: Ticks) -> None:
        """Look at nodes when a stable has passed these times."""
        waits = np.flatnonzero(times < FOREVER)
        self._ends.push(times.take(waits), nodes.take(waits))

    def keep_looking(self, nodes: Index) -> None:
        """Look at nodes with the next stable."""
        self._changed.append(nodes)
