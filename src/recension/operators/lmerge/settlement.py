"""What must be changed in the output of an R4 merge before a stable: the corrected core of the rulings.

For each node that starts before ``t`` the leading input has a bag I of ends, the output a bag O. Ends in
both stay. What is left of O is changed into what is left of I, one adjust for each end that would be final
on one side; ends that no stable has passed on both sides may differ.

    I - O   5 |  20 30          t = 10: ends before t first
    O - I   8 |  25 30          8 -> 5; 25 stays, to be settled later

Source      Physically Independent Stream Merging, §IV-E; rulings 24–30.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.netting import group_sizes
from recension.core.ticks import Ticks
from recension.operators.lmerge.in3t import Frozen
from recension.operators.lmerge.merge import is_frozen


@dataclass(frozen=True, slots=True)
class Settlement:
    """Changes of single events: from ``old`` to ``new``, places in the list of frozen events, -1 for none."""

    old: Index
    new: Index
    anomalies: int


def settle(frozen: Frozen, held: Index, shown: Index, t: int, max_stable: int) -> Settlement:
    """``held`` and ``shown`` say how often the leading input and the output have each event."""
    node = _numbered(frozen.node)
    lacking, surplus = np.maximum(held - shown, 0), np.maximum(shown - held, 0)
    final = is_frozen(frozen.ve, t)
    missing, extra = _singly(lacking, node, final), _singly(surplus, node, final)
    nodes = int(node[-1]) + 1
    excess = np.bincount(node[extra], minlength=nodes) - np.bincount(node[missing], minlength=nodes)
    is_open = np.zeros(nodes, np.bool_)
    is_open[node] = frozen.vs >= max_stable
    # Where a stable has passed the start, events can be neither made nor removed: those too many stay.
    anomalies = int(np.abs(excess[~is_open]).sum())
    removed, extra = _first_few(extra, node, np.maximum(excess, 0))
    added, missing = _first_few(missing, node, np.maximum(-excess, 0))
    removed, added = removed[is_open[node[removed]]], added[is_open[node[added]]]
    old, new = _adjusted(extra, missing, node, final)
    nobody = np.full(len(removed), -1), np.full(len(added), -1)
    return Settlement(
        np.concatenate([removed, old, nobody[1]]), np.concatenate([nobody[0], new, added]), anomalies
    )


def _numbered(nodes: Index) -> Index:
    """Nodes come together; number them in order."""
    return np.cumsum(np.append(False, nodes[1:] != nodes[:-1]))


def _singly(counts: Index, node: Index, final: Mask) -> Index:
    """Each event as often as counted, node by node, those that would be final first."""
    at = np.repeat(np.arange(len(counts)), counts)
    return at[np.lexsort((at, ~final[at], node[at]))]


def _first_few(places: Index, node: Index, few: Index) -> tuple[Index, Index]:
    """For each node its first few places; and the rest."""
    rank = _rank(node[places])
    is_first = rank < few[node[places]]
    return places[is_first], places[~is_first]


def _rank(nodes: Index) -> Index:
    """The place of each entry within its node, for nodes in order."""
    _, sizes = group_sizes(nodes)
    return np.arange(len(nodes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _adjusted(extra: Index, missing: Index, node: Index, final: Mask) -> tuple[Index, Index]:
    """Of every node the k-th of what is too much becomes the k-th of what is too little, if one is final."""
    # Both lists now hold equally many places of each node, in order of the nodes.
    due = final[extra] | final[missing]
    return extra[due], missing[due]


def moved(ends: Ticks, places: Index, otherwise: Ticks) -> Ticks:
    """The end at each place; where there is none, what stands for "not there"."""
    return np.where(places >= 0, ends[places], otherwise)
