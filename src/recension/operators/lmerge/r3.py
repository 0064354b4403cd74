"""R3: the merge of streams with retractions in any order, where (vs, payload) is a key.

Assumes     every input is a valid stream in which no two events have the same start and payload at once.
            Inputs are mutually consistent; elements may be missing or repeated.
Guarantees  after every batch the output is valid and compatible with all inputs (ruling 11), with at most one
            event a key; in the end it is equivalent to them. What the policy has shown and the leading input
            contradicts is put right just before a stable makes it final.
State       a node for every key that is not fully frozen: its payload, and an end for each input and the
            output.
Cost        O(n) a batch; O(c) a stable that leads, for c nodes that it passes or makes final, or that have
            changed since the last one; if another input leads, also those on which inputs disagree. With
            the policy ``ff``, and at the end of time, all nodes.
Source      Physically Independent Stream Merging, §IV-D and §V; rulings 19–22, 32–46.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.change_log import Change
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Output
from recension.operators.changes import changes
from recension.operators.lmerge.contradictions import describe_event, next_tick
from recension.operators.lmerge.in2t import In2t, KeyChanges, find_key_changes
from recension.operators.lmerge.look_queue import LookQueue
from recension.operators.lmerge.merge import (
    NONE,
    OUT,
    Holding,
    Holdings,
    IndexedMerge,
    is_frozen,
    mismatch_error,
    take_ascending,
)
from recension.operators.lmerge.policies import First, Policy


class R3(IndexedMerge):
    """The index in2t, a policy, and a stable that may lag."""

    def __init__(
        self,
        schema: pa.Schema,
        ports: int,
        policy: Policy | None = None,
        lag: int = 0,
        *,
        repeats: bool = True,
    ) -> None:
        super().__init__(schema, ports)
        # Is an insert of what the input has already a repeat? Where it may be a second event, it is not.
        self._repeats = repeats
        self._index = In2t(schema, list(range(ports)))
        self._policy = policy or First()
        self._queue = LookQueue(self._index, self._policy.follows)
        self._lag = lag
        # How far the leading input has come; the output's stable may lag behind it.
        self._max_in = BEGINNING
        self.leader = 0

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch) or not self.inputs[port].is_live:
            return self._nothing
        changed = find_key_changes(batch, self._repeats)
        self._check(port, batch, changed, nodes := self._index.find(changed.key))
        self._policy.note(port, batch.vs)
        vs = batch.vs[changed.row]
        fresh = (nodes < 0) & changed.is_new & (vs >= self._max_in) & (changed.end != NONE)
        if bool(fresh.any()):
            new = np.flatnonzero(fresh)
            nodes[new] = self._index.add(changed.key[new], vs[new], batch.payload, changed.row[new])
            self._queue.add(vs[new], nodes[new])
        is_known = nodes >= 0
        known, unknown = np.flatnonzero(is_known), np.flatnonzero(~is_known)
        nodes, rows, end = nodes.take(known), changed.row.take(known), changed.end.take(known)
        self._index.set_ends(port, nodes, end)
        self._doubt_late(port, batch, changed, vs, unknown)
        follows = np.flatnonzero(self._policy.follows_input(port, nodes, self))
        shown = self._show(nodes.take(follows), end.take(follows), batch.payload, rows.take(follows))
        self._queue.note_changed(nodes, self.inputs.live_ports())
        return shown

    def _doubt_late(self, port: int, batch: EventBatch, changed: KeyChanges, vs: Ticks, at: Index) -> None:
        """The output has not had these events, or forgot them because they ended before its stable."""
        if not len(at):
            return
        end = changed.end.take(at)
        if len(self._doubts):
            self._doubts.update(port, changed.key.take(at), None, end)
        if self._max_in == FOREVER:
            return
        late = at.compress(changed.is_new.take(at) & (end >= self._max_in) & (end != NONE))
        if len(late):
            payload = take_rows(batch.payload, changed.row.take(late))
            facts = (changed.key.take(late), vs.take(late), changed.end.take(late), payload)
            self._doubts.add(port, *facts, due=self._max_in, low=self._max_in, high=FOREVER)

    def _check(self, port: int, batch: EventBatch, changed: KeyChanges, nodes: Index) -> None:
        """An input may repeat an insert, but not hold two events of one key."""
        held = np.full(len(nodes), NONE)
        if len(self._index):
            held = np.where(nodes >= 0, self._index.ends(port).take(nodes), NONE)
        if (row := changed.find_clash(batch, held, self._repeats)) is not None:
            raise mismatch_error(batch, row, "R3", "the input has this start and payload with another end")

    def _show(self, nodes: Index, end: Ticks, payload: pa.RecordBatch, rows: Index) -> EventBatch:
        """Bring the output to these ends, where a stable does not forbid it (ruling 32)."""
        if not len(nodes):
            return self._nothing
        vs, old = self._index.vs(nodes), self._index.ends(OUT).take(nodes)
        appears = (end == NONE) | (old == NONE)
        allowed = np.where(appears, vs >= self.out_cti, np.minimum(old, end) >= self.out_cti)
        at = np.flatnonzero((old != end) & allowed)
        if len(at) < len(nodes):
            nodes, rows, vs, old, end = (each.take(at) for each in (nodes, rows, vs, old, end))
        self._index.set_ends(OUT, nodes, end)
        shown = take_ascending(payload, rows)
        return changes(vs, np.where(old == NONE, vs, old), np.where(end == NONE, vs, end), shown)

    @property
    def leader_stable(self) -> int:
        return self._max_in

    def pass_over(self, leader: int, t: int) -> list[EventBatch]:
        """The leading input's stable passes over all that start before it."""
        lo = FOREVER if t == FOREVER else max(self.out_cti, t - self._lag)
        nodes = self._queue.pop(leader, t, lo)
        if self._policy.only_final:  # the output's stable waits for the first that is not final
            nodes = self._index.all_nodes()
            nodes = nodes[self._index.vs(nodes) < t]
        vs, out, end = (
            self._index.vs(nodes),
            self._index.ends(OUT).take(nodes),
            self._index.ends(leader).take(nodes),
        )
        kept = (end == NONE) & (out != NONE) & (vs < self.out_cti)
        self._note_lacking(leader, nodes, kept & (out >= self.least_end(leader)))
        end = np.where(kept, out, end)
        gone = end == NONE
        if self._policy.only_final:
            due = done = is_frozen(end, t) & ~gone
            lo = min(lo, int(vs[~gone & ~done].min(initial=FOREVER)))
        else:
            final = is_frozen(end, lo)
            passed = ~gone & (vs < lo)
            due = passed & ((out == NONE) | ((out != end) & (final | (out < lo))))
            done = passed & final
        at = np.flatnonzero(due | (gone & (out != NONE)))
        at = at[self._index.sort_nodes(nodes[at])]
        shown = [self._settle(leader, nodes[at], end[at])]
        leaves = gone | done
        self._compare_others(leader, nodes.compress(leaves))
        if not self._policy.only_final:
            stays = np.flatnonzero(~leaves)
            # What the output could not follow counts as an anomaly with every stable.
            could_not = kept | (due & (self._index.ends(OUT).take(nodes) != end))
            self._queue.keep_looking(nodes.compress(could_not & ~leaves))
            self._look_again(nodes.take(stays), end.take(stays), lo)
        self._index.remove(nodes.compress(leaves))
        changed, self.leader = self.leader != leader, leader
        self._max_in, self.out_cti = t, max(self.out_cti, lo)
        return [*shown, self._follow()] if changed else shown

    def _look_again(self, nodes: Index, end: Ticks, lo: int) -> None:
        """When a stable has to look at nodes that stay, for which the leading input has these ends."""
        vs, out = self._index.vs(nodes), self._index.ends(OUT).take(nodes)
        self._queue.look_again(nodes, np.where(vs >= lo, vs, np.minimum(out, end)))
        self._queue.note_disputes(nodes, self.inputs.live_ports())

    def _settle(self, leader: int, nodes: Index, end: Ticks) -> EventBatch:
        before = self._index.ends(OUT)[nodes]
        shown = self._show(nodes, end, self._index.payload(nodes), np.arange(len(nodes)))
        if (missed := int((before != end).sum()) - len(shown)) > 0:
            wrong = np.flatnonzero(self._index.ends(OUT)[nodes] != end)
            first = nodes[wrong[0]]
            told = lambda: self._describe(first, int(end[wrong[0]]), self._index.ends(OUT)[first])  # noqa: E731
            self.contradictions.note(leader, missed, told)
        return shown

    def _note_lacking(self, port: int, nodes: Index, lacks: Mask) -> None:
        """An input lacks events that the output has and must keep."""
        at = np.flatnonzero(lacks)
        if len(at):
            node = nodes[at[0]]
            out = self._index.ends(OUT)[node]
            self.contradictions.note(port, len(at), lambda: self._describe(node, NONE, out))

    def _describe(self, node: int, end: int, out: int) -> str:
        """How an input's end of an event and the output's do not fit."""
        at = np.array([node])
        row, vs = self._index.payload(at), int(self._index.vs(at)[0])
        if end == NONE:
            return f"lacks {describe_event(row, 0, vs, int(out))}, which the output has"
        return f"has {describe_event(row, 0, vs, end)}, which the output has with the end {out}"

    def _compare_others(self, leader: int, nodes: Index) -> None:
        """Nodes are forgotten: the output's ends for them are final. Which other inputs disagree?"""
        if not len(nodes):
            return
        vs, out = self._index.vs(nodes), self._index.ends(OUT).take(nodes)
        for port in self.inputs.live_ports():
            if port == leader:
                continue
            one, own = self.inputs[port], self._index.ends(port).take(nodes)
            stable = one.stable if one.state == "joined" else BEGINNING
            self._compare(port, stable, nodes, vs, own, out)

    def _compare(self, port: int, stable: int, nodes: Index, vs: Ticks, own: Ticks, out: Ticks) -> None:
        """An input's ends for nodes that are forgotten, and the output's."""
        least, differs, absent = self.least_end(port), own != out, own == NONE
        # What an input does not have yet, it may have before its stable passes the start.
        lacks = np.flatnonzero(differs & absent & (vs < stable) & (out >= least))
        self._note_others(port, nodes.take(lacks), own.take(lacks), out.take(lacks))
        at = np.flatnonzero(differs & ~absent)
        if not len(at):
            return
        nodes, mine, goal = nodes.take(at), own.take(at), out.take(at)
        gone = goal == NONE
        # From then on the input can neither remove its event nor move its end to the output's.
        due = next_tick(np.where(gone, vs.take(at), goal))
        is_final = is_frozen(mine, stable) if stable > BEGINNING else np.zeros(len(at), np.bool_)
        wrong = ((due <= stable) | (is_final & ~gone)) & (mine >= least)
        some = np.flatnonzero(wrong)
        self._note_others(port, nodes.take(some), mine.take(some), goal.take(some))
        self._doubt(port, nodes, mine, goal, due, ~wrong)

    def _doubt(self, port: int, nodes: Index, own: Ticks, goal: Ticks, due: Ticks, which: Mask) -> None:
        """Inputs that have another end than the output's final one may still come to it."""
        at = np.flatnonzero(which)
        nodes, own, goal, due = nodes.take(at), own.take(at), goal.take(at), due.take(at)
        gone = goal == NONE
        facts = (self._index.keys(nodes), self._index.vs(nodes), own, self._index.payload(nodes))
        # Where the output has nothing, every end is wrong; else all but the output's, and no event.
        low, high = np.where(gone, BEGINNING, goal), np.where(gone, FOREVER, goal)
        self._doubts.add(port, *facts, due=due, low=low, high=high, inside=gone, optional=gone)

    def _note_others(self, port: int, nodes: Index, own: Ticks, end: Ticks) -> None:
        if len(nodes):
            told = lambda: self._describe_other(nodes[0], int(own[0]), int(end[0]))  # noqa: E731
            self.contradictions.note(port, len(nodes), told)

    def _describe_other(self, node: int, own: int, end: int) -> str:
        if end != NONE:
            return self._describe(node, own, end)
        at = np.array([node])
        event = describe_event(self._index.payload(at), 0, int(self._index.vs(at)[0]), own)
        return f"has {event}, which the output does not have"

    def _follow(self) -> EventBatch:
        """Another input leads: a policy that follows it brings every node into line."""
        if not self._policy.follows:
            return self._nothing
        nodes = self._queue.disputed_nodes()
        end, out = self._index.ends(self.leader)[nodes], self._index.ends(OUT)[nodes]
        at = np.flatnonzero(end != out)
        at = at[self._index.sort_nodes(nodes[at])]
        nodes, end = nodes[at], end[at]
        shown = self._show(nodes, end, self._index.payload(nodes), np.arange(len(nodes)))
        self._queue.note_changed(nodes, self.inputs.live_ports())
        return shown

    def on_attach(self, port: int) -> None:
        self._index.attach(port)

    def on_detach(self, port: int) -> Output:
        self._doubts.drop(port)
        self._index.detach(port)
        nodes = self._index.all_nodes()
        backed = (self._index.ends(OUT)[nodes] != NONE) | (self._index.vs(nodes) < self._max_in)
        for other in self.inputs.live_ports():
            backed |= self._index.ends(other)[nodes] != NONE
        self._index.remove(nodes[~backed])
        furthest = self.inputs.find_leader()
        if port != self.leader or furthest is None:
            return Output(self._nothing, None)
        self.leader = furthest[0]
        return Output(self._follow(), None)

    def ends(self, port: int) -> Ticks:
        """The end each input, or the output, has for every node."""
        return self._index.ends(port)

    def live_ports(self) -> list[int]:
        """The inputs that have not left."""
        return self.inputs.live_ports()

    def count_unfrozen(self, port: int) -> int:
        """How many events an input has that no stable has passed."""
        nodes = self._index.all_nodes()
        is_so = (self._index.ends(port)[nodes] != NONE) & (self._index.vs(nodes) >= self._max_in)
        return int(is_so.sum())

    def open_events_by_port(self) -> Holdings:
        nodes = self._index.all_nodes()
        for port in (OUT, *self.inputs.live_ports()):
            held = nodes[self._index.ends(port)[nodes] != NONE]
            vs, ve = self._index.vs(held), self._index.ends(port)[held]
            yield Holding(port, changes(vs, vs, ve, self._index.payload(held)))

    def state_rows(self) -> int:
        return len(self._index)

    def state_bytes(self) -> int:
        return self._index.nbytes() + self._queue.nbytes()

    def snapshot_state(self) -> Chunks:
        progress = pa.table({"max_in": [self._max_in], "leader": [self.leader]})
        own = {"furthest": progress, "policy": self._policy.snapshot()}
        return {**super().snapshot_state(), **own, **self._index.parts()}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        furthest = chunks["furthest"].to_pylist()[0]
        self._max_in, self.leader = furthest["max_in"], furthest["leader"]
        self._policy.restore(chunks["policy"])
        ports, nodes = self.inputs.live_ports(), chunks["nodes"]
        given = self._index.restore(chunks, ports)
        if isinstance(nodes, Change) and not nodes.is_whole:
            self._queue.catch_up(given, ports)
        else:
            self._queue.restore(self._max_in, ports)
