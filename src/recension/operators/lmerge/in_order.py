"""What the cases R0, R1 and R2 share: insert-only inputs in order of start, followed at the furthest start.

An element that starts before the furthest start shown, or before the output's stable, is ignored. What an
input sends before it has joined waits, if it starts at the joining time or later (ruling 42).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti, inserts
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks, Output
from recension.operators.lmerge.merge import OUT, Holding, Holdings, LogicalMerge, is_frozen, mismatch_error
from recension.operators.lmerge.tail import Finding, Tail, compare, compare_ties
from recension.operators.state.chunks import cut_table, unite_table


class InOrderMerge(LogicalMerge):
    """Each batch gives a part of itself."""

    makes_ctis = True
    case = ""
    strict = False
    repeats = False
    """Does an input that sends an event again mean the same one?"""

    def __init__(self, schema: pa.Schema, ports: int, *, remembers: bool = False) -> None:
        super().__init__(schema, ports)
        self.max_vs = BEGINNING
        self._last = [BEGINNING] * ports
        self._waiting: dict[int, list[EventBatch]] = {}
        # What a more general case would need to take over: only kept if that may happen.
        self._remembers = remembers
        self._memory: list[Holding] = []
        # The last events shown; of each input the last start, and how many of its events have it.
        self._tail = Tail(self._nothing, BEGINNING)
        self._compared: dict[int, tuple[int, int]] = {}

    @abstractmethod
    def select_new(self, port: int, batch: EventBatch) -> EventBatch:
        """The part of a joined input's next elements, in order, that has not been shown."""

    def check(self, port: int, batch: EventBatch) -> None:
        """Raise if an element is not what the case allows."""
        if bool(batch.kind.any()):
            raise mismatch_error(
                batch, int(batch.kind.argmax()), self.case, "there are no retractions in this case"
            )
        before = np.concatenate([[np.int64(self._last[port])], batch.vs[:-1]])
        wrong = batch.vs <= before if self.strict else batch.vs < before
        wrong[0] &= self._last[port] > BEGINNING
        if bool(wrong.any()):
            reason = f"it starts {'at or ' if self.strict else ''}before the element before it"
            raise mismatch_error(batch, int(wrong.argmax()), self.case, reason)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        one = self.inputs[port]
        if not len(batch) or not one.is_live:
            return self._nothing
        self.check(port, batch)
        self._last[port] = int(batch.vs[-1])
        if one.state == "joining":
            first = int(np.searchsorted(batch.vs, one.since))
            self._waiting.setdefault(port, []).append(batch.slice(first, len(batch)))
            return self._nothing
        return self._with_joiners([self._take(port, batch)])

    def _take(self, port: int, batch: EventBatch) -> EventBatch:
        before = max(self.max_vs, self.out_cti - 1) if self.out_cti > BEGINNING else self.max_vs
        shown = self.select_new(port, batch)
        self._compare(port, batch, shown, before)
        if self._remembers:
            held = [Holding(port, batch), Holding(OUT, shown)]
            self._memory += [one for one in held if not is_frozen(one.events.ve, self.out_cti).all()]
        return shown

    def _compare(self, port: int, batch: EventBatch, shown: EventBatch, before: int) -> None:
        """Compare what an input sends up to the start that the output had reached with the tail."""
        since, count = self._compared.get(port, (max(self.inputs[port].since, BEGINNING + 1) - 1, 0))
        last, tied = int(batch.vs[-1]), 1
        if len(batch) > 1 and batch.vs[-2] == last:
            tied = len(batch) - int(np.searchsorted(batch.vs, last))
        self._compared[port] = (last, tied + (count if last == since else 0))
        tail, self._tail = self._tail, self._tail.extended(shown)
        least, lower = self.least_end(port), max(since, tail.after)
        found = list[Finding]()
        if count and tail.after < since < last:
            more = int(np.searchsorted(batch.vs, since, side="right"))
            found += compare_ties(tail, since, count + more, least)
        if lower < before and lower < last:
            tail = tail.extended_to(shown, before)
            found += compare(tail, batch, lower, before, least, repeats=self.repeats)
        for one in found:
            self.contradictions.note(port, one.number, one.describe)

    def advance(self) -> Output:
        return self._advance_output([])

    def _advance_output(self, shown: list[EventBatch]) -> Output:
        """The furthest stable, then what those show that join at it; their stables may be further."""
        reached: int | None = None
        while True:
            furthest = self.inputs.find_leader()
            if furthest is not None and furthest[1] > self.out_cti:
                self.out_cti = reached = furthest[1]
            joining = self.inputs.join(max(self.max_vs, self.out_cti))
            if not joining:
                break
            for port in joining:
                shown += [self._take(port, batch) for batch in self._waiting.pop(port, []) if len(batch)]
        if reached is not None:
            self.inputs.mark_left()
            self._forget(reached)
        given = [batch for batch in shown if len(batch)]
        return Output(concat(given) if given else self._nothing, reached)

    def _with_joiners(self, shown: list[EventBatch]) -> EventBatch:
        """What was shown, and what those show that join because of it: their stables may come with it."""
        if all(state != "joining" for state in self.inputs.states()):
            return shown[0]
        answer = self._advance_output(shown)
        return answer.batch if answer.cti is None else concat([answer.batch, cti(answer.cti, self.schema)])

    def on_attach(self, port: int) -> None:
        self._last.append(BEGINNING)

    def on_detach(self, port: int) -> Output:
        self._waiting.pop(port, None)
        self._memory = [held for held in self._memory if held.port != port]
        return super().on_detach(port)

    def _forget(self, t: int) -> None:
        self._memory = [held for held in self._memory if not is_frozen(held.events.ve, t).all()]

    def open_events_by_port(self) -> Holdings:
        for held in self._memory:
            yield Holding(held.port, held.events.filter(held.events.ve >= self.out_cti))
        for port, batches in self._waiting.items():
            for batch in batches:
                yield Holding(port, batch)

    def state_rows(self) -> int:
        waiting = sum(len(batch) for batches in self._waiting.values() for batch in batches)
        return waiting + sum(len(held.events) for held in self._memory)

    def state_bytes(self) -> int:
        kept = [held.events for held in self._memory]
        kept += [batch for batches in self._waiting.values() for batch in batches]
        return sum(int(batch.payload.nbytes) + 33 * len(batch) for batch in kept)

    def snapshot_state(self) -> Chunks:
        progress = pa.table({"last": pa.array(self._last, pa.int64())})
        chunks = {**super().snapshot_state(), "last": progress, "max_vs": pa.table({"vs": [self.max_vs]})}
        kept = [("waiting", port, batch) for port, batches in self._waiting.items() for batch in batches]
        kept += [("memory", held.port, held.events) for held in self._memory]
        for number, (kind, port, batch) in enumerate(kept):
            chunks |= cut_table(f"kept/{kind}/{port}/{number}", _to_arrow(batch))
        tail = pa.table({"after": pa.array([self._tail.after], pa.int64())})
        compared = [(port, *done) for port, done in self._compared.items()]
        chunks |= {"tail": tail, "compared": pa.table({"done": pa.array(compared, pa.list_(pa.int64()))})}
        chunks |= cut_table("tail/events", _to_arrow(self._tail.events))
        names = [f"kept/{kind}/{port}/{number}" for number, (kind, port, _) in enumerate(kept)]
        return {**chunks, "kept": pa.table({"name": pa.array(names, pa.string())})}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._last = chunks["last"]["last"].to_pylist()
        self.max_vs = chunks["max_vs"]["vs"][0].as_py()
        self._restore_tail(chunks)
        self._waiting, self._memory = {}, []
        for name in chunks["kept"]["name"].to_pylist():
            _, kind, port, _ = name.split("/")
            batch = _from_arrow(unite_table(name, chunks), self.schema)
            if kind == "waiting":
                self._waiting.setdefault(int(port), []).append(batch)
            else:
                self._memory.append(Holding(int(port), batch))

    def _restore_tail(self, chunks: Chunks) -> None:
        """State of an earlier version has none: what was shown before it is not compared."""
        self._tail, self._compared = Tail(self._nothing, max(self.max_vs, self.out_cti)), {}
        if "tail" in chunks:
            events = _from_arrow(unite_table("tail/events", chunks), self.schema)
            self._tail = Tail(events, chunks["tail"]["after"][0].as_py())
            compared = chunks["compared"]["done"].to_pylist()
            self._compared = {port: (vs, count) for port, vs, count in compared}


def _to_arrow(batch: EventBatch) -> pa.Table:
    names = [f"payload.{name}" for name in batch.schema.names]
    return pa.table([pa.array(batch.vs), pa.array(batch.ve), *batch.payload.columns], ["vs", "ve", *names])


def _from_arrow(table: pa.Table, schema: pa.Schema) -> EventBatch:
    columns = [table.column(2 + i).combine_chunks() for i in range(len(schema))]
    payload = pa.RecordBatch.from_arrays(columns, schema=schema)
    return inserts(table["vs"].to_numpy(), table["ve"].to_numpy(), payload)
