"""What Finalize finds out about a batch before it changes anything: what is late, and which chains break."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core import ticks
from recension.core.bag import LiveEnds
from recension.core.batch import RETRACT, EventBatch, Index, Mask
from recension.core.orphans import Steps, find_orphans
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import new_end, old_end
from recension.operators.state.external_ctis import ExternalCtis
from recension.operators.state.proof import Proof
from recension.operators.state.retraction_chains import RetractionChains


@dataclass(frozen=True, slots=True)
class Past:
    """Where Finalize stands before a batch: the last CTI, the latest time seen, what age has closed."""

    last: int
    latest: int
    aged: int


class Arrival:
    """Row by row: how far the past is closed when it comes (``before``), whether it is late or broken.

    ``start`` is the hash of (payload, start), the name of an event's chain.
    """

    def __init__(self, batch: EventBatch, past: Past, remember: int, known: ExternalCtis) -> None:
        sync, is_data = batch.sync(), batch.is_data()
        seen = np.where(is_data, sync, np.int64(BEGINNING))
        self.latest = max(past.latest, int(seen.max(initial=BEGINNING)))
        self.aged = _aged(seen, past, remember)
        self.proof: Proof = known.weigh(batch, sync, self.aged, past.last)
        self.aged_before = _shifted(self.aged, past.aged)
        self.before = _shifted(self.proof.frontier, past.last)
        is_before = sync < self.before
        self.is_late: Mask = is_before & is_data
        self.is_in_time: Mask = is_data & ~is_before
        self.start: Hashes = combine(row_hash(batch.payload, len(batch)), batch.vs)
        # Nothing that waits holds the CTI back to before what age has closed (F8).
        self._is_doubtful = is_before & (sync >= np.maximum(self.aged_before, past.last))

    def find_broken(self, batch: EventBatch, live: LiveEnds, chains: RetractionChains) -> Mask:
        """The rows of chains that are broken, or that break in this batch."""
        is_broken = chains.holds(self.start) if len(chains) else np.zeros(len(batch), np.bool_)
        orphan = find_orphans(self._steps(batch), _Known(self.start, batch, live), len(batch))
        if bool(orphan.any()):
            is_broken |= np.isin(self.start, np.unique(self.start[orphan]))
        return is_broken

    def doubt(self) -> int:
        """The first row whose lateness depends on what waits for its predecessor when it comes; 0 if none.

        The first row never does: what waits before the batch is known. With right external CTIs none does.
        """
        return int(np.argmax(self._is_doubtful[1:])) + 1 if bool(self._is_doubtful[1:].any()) else 0

    def _steps(self, batch: EventBatch) -> Steps:
        down = np.flatnonzero(self.is_in_time & (batch.kind == RETRACT))
        end = new_end(batch)
        up = np.flatnonzero(self.is_in_time & (end > batch.vs)) if len(down) else down
        row = np.concatenate([down, up])
        ends = np.concatenate([batch.ve[down], end[up]])
        return Steps(row, combine(self.start[row], ends), np.repeat([-1, 1], [len(down), len(up)]), ends)


class _Known:
    """How often events are alive, asked by the identities that a batch names."""

    def __init__(self, start: Hashes, batch: EventBatch, live: LiveEnds) -> None:
        rows = np.flatnonzero(batch.kind == RETRACT)
        named = combine(start[rows], batch.ve[rows])
        order = np.argsort(named)
        self._named, self._rows = named[order], rows[order]
        self._start, self._batch, self._live = start, batch, live

    def count(self, keys: Hashes) -> Index:
        """How often each is alive; what no retraction names is not looked for."""
        at = np.minimum(np.searchsorted(self._named, keys), len(self._named) - 1)
        rows = self._rows[at]
        found = self._live.count(self._start[rows], self._batch.ve[rows])
        return np.where(self._named[at] == keys, found, 0)


def ends_of(batch: EventBatch, start: Hashes) -> tuple[Hashes, Ticks, Index]:
    """What changes take away from the ends that are alive, and what they add."""
    old, new = old_end(batch), new_end(batch)
    gone, come = np.flatnonzero(old != batch.vs), np.flatnonzero(new != batch.vs)
    delta = np.repeat([-1, 1], [len(gone), len(come)])
    return np.concatenate([start[gone], start[come]]), np.concatenate([old[gone], new[come]]), delta


def _aged(seen: Ticks, past: Past, remember: int) -> Ticks:
    """Up to where age has closed the past after each row."""
    if remember == FOREVER:
        return np.full(len(seen), past.aged)
    latest = np.maximum.accumulate(np.maximum(seen, past.latest))
    return np.maximum(ticks.add(latest, -remember), past.aged)


def _shifted(after: Ticks, first: int) -> Ticks:
    return np.append(np.int64(first), after[:-1])
