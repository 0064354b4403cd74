"""R4: the merge of any streams: retractions, any order, several events of one start and payload.

Assumes     every input is a valid stream. Inputs are mutually consistent; elements may be missing.
Guarantees  after every batch the output is valid and compatible with all inputs (ruling 11); in the end it is
            equivalent to them. An event is shown when an input has more of its kind than the output, and put
            right just before a stable of the leading input makes it final.
State       a node for every (vs, payload) that is not fully frozen, with its payload; below it a count for
            each end, input and the output.
Cost        O(n) a batch; O(h log h) a stable that leads, for h half-frozen events.
Source      Physically Independent Stream Merging, §IV-E; rulings 24–30, 39–46.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask, new_end, take_rows
from recension.core.change_log import Change
from recension.core.netting import distinct, rank_in_group
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Output
from recension.operators.changes import changes
from recension.operators.lmerge.contradictions import describe_event, next_tick
from recension.operators.lmerge.in3t import FrozenEvents, In3t
from recension.operators.lmerge.key_table import find_repeated, first_of_each
from recension.operators.lmerge.merge import NONE, OUT, Holding, IndexedMerge, is_frozen, take_ascending


class R4(IndexedMerge):
    """The index in3t."""

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema, ports)
        self._index = In3t(schema, list(range(ports)))

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch) or not self.inputs[port].is_live:
            return self._nothing
        nodes, keys = self._nodes(batch)
        self._doubt_late(port, batch, nodes, keys)
        known = np.flatnonzero(nodes >= 0)
        events = self._apply(port, batch, known, nodes[known])
        return self._show_more(port, batch, known, nodes[known], events)

    def _doubt_late(self, port: int, batch: EventBatch, nodes: Index, keys: Hashes) -> None:
        """The output has not had these events, or forgot them because they ended before its stable."""
        late = np.flatnonzero((nodes < 0) & (batch.kind == INSERT) & (batch.ve >= self.out_cti))
        if len(late) and self.out_cti < FOREVER:
            facts = (keys[late], batch.vs[late], batch.ve[late], take_rows(batch.payload, late))
            self._doubts.add(port, *facts, due=self.out_cti, low=self.out_cti, high=FOREVER)
        if len(self._doubts) and len(back := np.flatnonzero(batch.kind == RETRACT)):
            end = new_end(batch)[back]
            end = np.where(end == batch.vs[back], np.int64(NONE), end)
            self._doubts.update(port, keys[back], batch.ve[back], end)

    def _nodes(self, batch: EventBatch) -> tuple[Index, Hashes]:
        """The node of each element, with its key; an insert that no stable has passed makes it."""
        keys = combine(row_hash(batch.payload, len(batch)), batch.vs)
        nodes = self._index.nodes.find(keys)
        fresh = np.flatnonzero((nodes < 0) & (batch.kind == INSERT) & (batch.vs >= self.out_cti))
        if len(fresh):
            firsts = fresh[first_of_each(keys[fresh])]
            self._index.add_nodes(keys[firsts], batch.vs[firsts], batch.payload, firsts)
            missing = np.flatnonzero(nodes < 0)
            nodes[missing] = self._index.nodes.find(keys[missing])
        return nodes, keys

    def _apply(self, port: int, batch: EventBatch, known: Index, nodes: Index) -> Index:
        """Count what the elements bring and take away; the event each brings, -1 if it only removes."""
        stays = new_end(batch)[known] != batch.vs[known]
        events = np.full(len(known), -1)
        events[stays] = self._index.put(nodes[stays], new_end(batch)[known][stays], self.out_cti)
        np.add.at(self._index.count(port), events[stays], 1)
        steps = stays.astype(np.int32)
        back = np.flatnonzero(batch.kind[known] == RETRACT)
        if len(back):
            steps[back] -= self._take_back(port, nodes[back], batch.ve[known][back])
        np.add.at(self._index.size(port), nodes, steps)
        self._index.note(nodes, events[stays])
        return events

    def _take_back(self, port: int, nodes: Index, old: Ticks) -> Mask:
        """Which retractions name an event that the input has; the others only add the end they lead to.

        Those may come from an input that has lost elements or joined late.
        """
        counts, found = self._index.count(port), self._index.find(nodes, old)
        there = found >= 0
        self._index.events.note(found[there])
        np.add.at(counts, found[there], -1)
        overdrawn = np.flatnonzero(there)[counts[found[there]] < 0]
        for at in reversed(overdrawn.tolist()):
            if counts[found[at]] < 0:
                counts[found[at]] += 1
                there[at] = False
        return there

    def _show_more(
        self, port: int, batch: EventBatch, known: Index, nodes: Index, events: Index
    ) -> EventBatch:
        """Where the input now has more events of a node than the output, the last inserts are shown."""
        fresh = np.flatnonzero((batch.kind[known] == INSERT) & (batch.vs[known] >= self.out_cti))
        lacking = self._index.size(port)[nodes[fresh]] - self._index.size(OUT)[nodes[fresh]]
        at = np.flatnonzero(lacking > 0)
        if len(again := find_repeated(nodes[fresh[at]].view(np.uint64))):
            keep = np.ones(len(at), np.bool_)
            order = again[np.argsort(nodes[fresh[at[again]]], kind="stable")]
            keep[order] = _rank_from_last(nodes[fresh[at[order]]]) < lacking[at[order]]
            at = at[keep]
        shown = fresh[at]
        np.add.at(self._index.size(OUT), nodes[shown], 1)
        np.add.at(self._index.count(OUT), events[shown], 1)
        rows = known[shown]
        vs, ve = batch.vs[rows], batch.ve[rows]
        return changes(vs, vs, ve, take_ascending(batch.payload, rows)) if len(rows) else self._nothing

    def holds_endless(self, port: int) -> bool:
        events = self._index.events.rows()
        return bool((self._index.count(port)[events][self._index.events["ve"][events] == FOREVER] > 0).any())

    def pass_over(self, leader: int, t: int) -> list[EventBatch]:
        """The leading input's stable passes over all that start before it."""
        frozen = self._index.freeze(t)
        matters = frozen.ve >= self.out_cti
        held = np.where(matters, self._index.count(leader)[frozen.events], 0)
        shown = np.where(matters, self._index.count(OUT)[frozen.events], 0)
        answer = self._nothing
        differing = held != shown
        if bool(differing.any()):
            answer = self._settle(self._index.with_whole_nodes(frozen, differing), leader, t)
        self._forget(frozen, leader, t)
        self.out_cti = t
        return [answer]

    def _settle(self, frozen: FrozenEvents, leader: int, t: int) -> EventBatch:
        matters = frozen.ve >= self.out_cti
        held = np.where(matters, self._index.count(leader)[frozen.events], 0)
        shown = np.where(matters, self._index.count(OUT)[frozen.events], 0)
        least = self.least_end(leader)
        change = settle(frozen, held, shown, t, self.out_cti)
        if len(change.wrong):
            wrong = change.wrong[frozen.ve[change.wrong] >= least]
            self._note(leader, frozen, wrong, held < shown)
        self._note_shown(frozen, change)
        at = np.maximum(change.old, change.new)
        if not len(at):
            return self._nothing
        order = np.argsort(at, kind="stable")
        old, new, vs = change.old[order], change.new[order], frozen.vs[at[order]]
        payload = self._index.payload(frozen.node[at[order]])
        return changes(vs, ends_at(frozen.ve, old, vs), ends_at(frozen.ve, new, vs), payload)

    def _note_shown(self, frozen: FrozenEvents, change: Settlement) -> None:
        counts = self._index.count(OUT)
        old, new = (frozen.events[places[places >= 0]] for places in (change.old, change.new))
        np.add.at(counts, old, -1)
        np.add.at(counts, new, 1)
        self._index.events.note(np.append(old, new))

    def _note(self, port: int, frozen: FrozenEvents, wrong: Index, lacks: Mask) -> None:
        """An input lacks these events, or has what the output does not have."""
        if not len(wrong):
            return
        first = wrong[:1]

        def told() -> str:
            row, vs, ve = self._index.payload(frozen.node[first]), frozen.vs[first], frozen.ve[first]
            event = describe_event(row, 0, int(vs[0]), int(ve[0]))
            if bool(lacks[first][0]):
                return f"lacks {event}, which the output has"
            return f"has {event}, which the output does not have"

        self.contradictions.note(port, len(wrong), told)

    def _compare_others(self, leader: int, frozen: FrozenEvents, leaves: Mask) -> None:
        """These events are forgotten: how often the output has each is final. Which other inputs disagree?"""
        shown = self._index.count(OUT)[frozen.events]
        matters = frozen.ve >= self.out_cti
        leaves = leaves & matters
        for port in self.inputs.live_ports():
            own = self._index.count(port)[frozen.events]
            at = np.flatnonzero((own != shown) & leaves)
            if port == leader or not len(at):
                continue
            one, node, vs, ve = self.inputs[port], frozen.node[at], frozen.vs[at], frozen.ve[at]
            stable = one.stable if one.state == "joined" else BEGINNING
            final = is_frozen(ve, stable) if stable > BEGINNING else np.zeros(len(at), np.bool_)
            lacks = shown[at] > own[at]
            # What an input does not have yet, it may have before its stable passes the start.
            few = vs < stable
            if bool((few & lacks).any()):  # it has fewer events of this start than are left in the output
                total = np.bincount(frozen.node, np.where(matters, shown, 0), self._index.nodes.size)
                few &= self._index.size(port)[node] < total[node]
            wrong = np.where(lacks, final | few, final)
            wrong &= ve >= self.least_end(port)
            self._note(port, frozen, at[wrong], shown > own)
            self._doubt(port, frozen, at[~wrong & ~lacks], shown)

    def _doubt(self, port: int, frozen: FrozenEvents, at: Index, shown: Index) -> None:
        """What the output does not have: the input may still remove it, or move its end."""
        if not len(at):
            return
        has = np.zeros(self._index.nodes.size, np.bool_)
        has[frozen.node[shown > 0]] = True
        node, vs, ve = frozen.node[at], frozen.vs[at], frozen.ve[at]
        # If the output has no such event at all, no other end would do.
        is_known = has[node]
        due = next_tick(np.where(is_known, ve, vs))
        low, high = np.where(is_known, ve, BEGINNING), np.where(is_known, ve, FOREVER)
        facts = (self._index.nodes.keys[node], vs, ve, self._index.payload(node))
        self._doubts.add(port, *facts, due=due, low=low, high=high)

    def _forget(self, frozen: FrozenEvents, leader: int, t: int) -> None:
        """Events that are final, nodes of which the output has no other, and events that nobody has."""
        final = is_frozen(frozen.ve, t)
        open_nodes = np.zeros(self._index.nodes.size, np.bool_)
        open_nodes[frozen.node[~final & (self._index.count(OUT)[frozen.events] > 0)]] = True
        stays = open_nodes[frozen.node]
        self._compare_others(leader, frozen, final | ~stays)
        gone = final | ~stays | self._index.find_unused(frozen.events, self.inputs.live_ports())
        self._index.remove(frozen.events[gone], distinct(frozen.node[~stays]))

    def on_attach(self, port: int) -> None:
        self._index.attach(port)

    def on_detach(self, port: int) -> Output:
        self._index.detach(port)
        return super().on_detach(port)

    def seed(self, holding: Holding) -> None:
        """Events of an input that start before the output's stable count only if the output has them."""
        events = holding.events
        keys = combine(row_hash(events.payload, len(events)), events.vs)
        nodes = self._index.nodes.find(keys)
        fresh = np.flatnonzero((nodes < 0) & ((events.vs >= self.out_cti) | (holding.port == OUT)))
        firsts = fresh[first_of_each(keys[fresh])]
        self._index.add_nodes(keys[firsts], events.vs[firsts], events.payload, firsts)
        nodes = self._index.nodes.find(keys)
        known = np.flatnonzero(nodes >= 0)
        np.add.at(self._index.size(holding.port), nodes[known], 1)
        rows = self._index.put(nodes[known], events.ve[known], self.out_cti)
        np.add.at(self._index.count(holding.port), rows, 1)

    def state_rows(self) -> int:
        return len(self._index.events)

    def state_bytes(self) -> int:
        return self._index.nbytes()

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), **self._index.parts()}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        events = chunks["in3t/events"]
        if not isinstance(events, Change) or events.is_whole:
            self._index = In3t(self.schema, self.inputs.live_ports())
        self._index.restore(chunks, self.out_cti)


def _rank_from_last(nodes: Index) -> Index:
    """How many entries of the same node come after each, for nodes in order."""
    last = np.searchsorted(nodes, nodes, side="right")
    return last - 1 - np.arange(len(nodes))


@dataclass(frozen=True, slots=True)
class Settlement:
    """Changes of single events: from ``old`` to ``new``, places in the list of frozen events, -1 for none."""

    old: Index
    new: Index
    wrong: Index
    """Places that the input has too few or too many of, where nothing can be made or removed any more."""


def settle(frozen: FrozenEvents, held: Index, shown: Index, t: int, max_stable: int) -> Settlement:
    """What must be changed in the output before a stable at ``t``: the corrected core of rulings 24–30.

    ``held`` and ``shown`` say how often the leading input and the output have each event. Of each node the
    input has a bag I of ends, the output a bag O. Ends in both stay. What is left of O is changed into what
    is left of I, one adjust for each end that would be final on one side. Ends that no stable has passed on
    either side may differ.

        I - O   5 |  20 30          t = 10: ends before t first
        O - I   8 |  25 30          8 -> 5; 25 stays, to be settled later
    """
    node = _number_nodes(frozen.node)
    lacking, surplus = np.maximum(held - shown, 0), np.maximum(shown - held, 0)
    final = is_frozen(frozen.ve, t)
    missing, extra = _repeat_places(lacking, node, final), _repeat_places(surplus, node, final)
    nodes = int(node[-1]) + 1
    excess = np.bincount(node[extra], minlength=nodes) - np.bincount(node[missing], minlength=nodes)
    is_open = np.zeros(nodes, np.bool_)
    is_open[node] = frozen.vs >= max_stable
    # Where a stable has passed the start, events can be neither made nor removed: those too many stay.
    is_wrong = (excess != 0) & ~is_open
    wrong = np.concatenate(
        [
            _first_few(extra, node, np.where(is_wrong, np.maximum(excess, 0), 0))[0],
            _first_few(missing, node, np.where(is_wrong, np.maximum(-excess, 0), 0))[0],
        ]
    )
    removed, extra = _first_few(extra, node, np.maximum(excess, 0))
    added, missing = _first_few(missing, node, np.maximum(-excess, 0))
    removed, added = removed[is_open[node[removed]]], added[is_open[node[added]]]
    old, new = _pair_adjusts(extra, missing, node, final)
    nobody = np.full(len(removed), -1), np.full(len(added), -1)
    return Settlement(
        np.concatenate([removed, old, nobody[1]]), np.concatenate([nobody[0], new, added]), wrong
    )


def _number_nodes(nodes: Index) -> Index:
    """Nodes come together; number them in order."""
    return np.cumsum(np.append(False, nodes[1:] != nodes[:-1]))


def _repeat_places(counts: Index, node: Index, final: Mask) -> Index:
    """Each event as often as counted, node by node, those that would be final first."""
    at = np.repeat(np.arange(len(counts)), counts)
    return at[np.lexsort((at, ~final[at], node[at]))]


def _first_few(places: Index, node: Index, few: Index) -> tuple[Index, Index]:
    """For each node its first few places; and the rest."""
    rank = rank_in_group(node[places])
    is_first = rank < few[node[places]]
    return places[is_first], places[~is_first]


def _pair_adjusts(extra: Index, missing: Index, node: Index, final: Mask) -> tuple[Index, Index]:
    """Pair the k-th surplus end of a node with its k-th missing end, if one of the two is final."""
    # Both lists now hold equally many places of each node, in order of the nodes.
    due = final[extra] | final[missing]
    return extra[due], missing[due]


def ends_at(ends: Ticks, places: Index, otherwise: Ticks) -> Ticks:
    """The end at each place; where there is none, what stands for "not there"."""
    return np.where(places >= 0, ends[places], otherwise)
