"""Late elements: what breaks a CTI, its stream's own or one made above it, and all that later corrects it.

A late insert starts at the CTI instead, and a late retraction takes effect there. What ends before the CTI
is dropped. From then on the output holds such an event with another lifetime than the input gives it, or not
at all: the event is *altered*. A later retraction names it as the input knows it; it is rewritten for the
event as the output has it, or dropped as well.

Assumes     a valid stream but for the CTIs it breaks.
Guarantees  what is left is a valid stream; each element passes, is altered or is dropped.
State       the altered events, until the CTI has passed the end they have in the output; the least end that
            the input gave to those cut off at the last CTI.
Cost        O(n log n) in the retractions and late elements of a batch.
Source      The Extensibility Framework in Microsoft StreamInsight, §II.A; rulings A1 to A4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask, new_end
from recension.core.event_bag import BagChanges, bag_changes, find_unmatched
from recension.core.netting import distinct, expand, group_sizes, maybe_in, running_totals
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks

NO_OUTPUT: Final = FOREVER
"""The start of an event that is not in the output."""


@dataclass(frozen=True, slots=True)
class AdjustedBatch:
    """A batch with its late elements altered, and which of its rows are not as they came.

    An altered row produces an altered event. A row that corrects takes away one altered before.
    """

    batch: EventBatch
    is_dropped: Mask
    is_moved: Mask
    is_altered: Mask
    corrects: Mask


class LateElements:
    """Alters or drops late elements batch by batch, with all that corrects them."""

    def __init__(self, *, adjusts: bool) -> None:
        self._adjusts = adjusts
        self._known = _AlteredEvents()
        self._cut = _CutEvents()

    def __len__(self) -> int:
        return len(self._known)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._known.nbytes()

    def count(self, keys: Hashes) -> Index:
        """How many altered events there are of each identity that the input knows them by."""
        found = self._known.find_rows(distinct(keys))["key"]
        return np.searchsorted(found, keys, "right") - np.searchsorted(found, keys)

    def adjust(
        self,
        batch: EventBatch,
        before: Ticks,
        considered: Mask | None = None,
        salt: Hashes | None = None,
    ) -> AdjustedBatch:
        """The batch with late elements adjusted, given the CTI before each row; only rows ``considered``.

        ``salt`` tells equal events of different sub-streams apart.
        """
        is_late = batch.is_data() & (batch.sync() < before)
        is_retract = batch.kind == RETRACT
        if considered is not None:
            is_late, is_retract = is_late & considered, is_retract & considered
        nothing = np.zeros(len(batch), np.bool_)
        if not is_late.any() and not (len(self._known) and is_retract.any()):
            return AdjustedBatch(batch, nothing, nothing, nothing, nothing)
        rows = np.flatnonzero(is_late | is_retract)
        part = batch.take(rows)
        changes = bag_changes(part, np.ones(len(part), np.bool_), None if salt is None else salt[rows])
        known = self._known.take_out(distinct(changes.key[changes.delta < 0]))
        links = _link(changes, is_late[rows], known)
        lifetimes = _output_lifetimes(part, before[rows], links, known, adjusts=self._adjusts)
        self._remember(changes, links, lifetimes)
        self._note_cut(part, links, lifetimes)
        return _rewrite(batch, rows, links, lifetimes)

    def _remember(self, changes: BagChanges, links: _CorrectionLinks, lifetimes: _Lifetimes) -> None:
        """What was altered and is not yet corrected, in order of arrival."""
        size, stays = len(links.parent), links.is_altered & ~links.is_corrected()
        added = changes.take((changes.delta > 0) & stays[changes.row])
        added = added.take(np.argsort(added.row))
        row = np.concatenate([size + np.flatnonzero(stays[size:]), added.row])
        key = np.concatenate([links.known_key[stays[size:]], added.key])
        self._known.put(_MovedEvents(key, lifetimes.start[row], lifetimes.end[row]))

    def _note_cut(self, part: EventBatch, links: _CorrectionLinks, lifetimes: _Lifetimes) -> None:
        given, end = new_end(part), lifetimes.end[: len(part)]
        is_cut = links.is_altered[: len(part)] & (lifetimes.start != NO_OUTPUT)[: len(part)] & (given < end)
        self._cut.note(given[is_cut], end[is_cut])

    def no_effect_before(self, cti: int) -> int:
        """With this CTI, corrections of events that the input ended before the time given are all dropped."""
        return self._cut.no_effect_before(cti)

    def forget_before(self, t: int) -> None:
        """The CTI is ``t``: events whose end in the output is before it are final."""
        self._known.forget_before(t)

    def snapshot(self) -> dict[str, pa.Table]:
        """What is remembered."""
        return {"altered": self._known.snapshot(), "cut": self._cut.snapshot()}

    def restore(self, chunks: Mapping[str, pa.Table], frontier: int) -> None:
        """Become what `snapshot` gave."""
        self._known.restore(chunks["altered"], frontier)
        self._cut.restore(chunks["cut"])


@dataclass(frozen=True, slots=True)
class _MovedEvents:
    """Identities that the input knows events by, and their lifetimes in the output, in order of arrival."""

    key: Hashes
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.key)

    def take(self, at: Index | Mask) -> _MovedEvents:
        """Some of them."""
        return _MovedEvents(self.key[at], self.start[at], self.end[at])


class _AlteredEvents(SortedRuns):
    """What was altered and can still be corrected: it ends at or after the last CTI.

    Of equal identities the one that came last is taken away first; it is also the one that ends last.
    """

    def __init__(self) -> None:
        super().__init__({"key": np.uint64, "start": np.int64, "end": np.int64}, expiry="end")

    def take_out(self, keys: Hashes) -> _MovedEvents:
        """All events of the given (sorted) identities, which are forgotten: what stays is put back."""
        found = _MovedEvents(**self.find_rows(keys))
        self.remove(keys)
        return found

    def put(self, events: _MovedEvents) -> None:
        """Remember events; equal identities stand in order of arrival."""
        events = events.take(np.argsort(events.key, kind="stable"))
        self.push(events.key, events.start, events.end, is_run=True)


class _CutEvents:
    """The last CTI at which events were cut off, and the least end that the input gave to them.

    An event that the input ends before the CTI stays in the output until the CTI, and is final once a later
    one comes. So only those cut off at the last CTI matter. Their least end stays, even when it is corrected.
    """

    def __init__(self) -> None:
        self._cti, self._least = BEGINNING, FOREVER

    def note(self, given: Ticks, cti: Ticks) -> None:
        """The input ended events at ``given``; in the output they last until ``cti``."""
        if not len(cti):
            return
        last = int(cti.max())
        if last > self._cti:
            self._cti, self._least = last, FOREVER
        if last == self._cti:
            self._least = min(self._least, int(given[cti == last].min()))

    def no_effect_before(self, cti: int) -> int:
        """With this CTI, no event that the input ended before the time given can be corrected."""
        return min(cti, self._least) if cti <= self._cti < FOREVER else cti

    def snapshot(self) -> pa.Table:
        """Both, as a table of one row."""
        return pa.table({"cti": [self._cti], "least": [self._least]})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        self._cti, self._least = table["cti"][0].as_py(), table["least"][0].as_py()


@dataclass(frozen=True, slots=True)
class _CorrectionLinks:
    """Which rows concern altered events, and which row before them, or known event, left each such event.

    Known events are numbered on after the rows. A row without ``parent`` (-1) concerns an event that is not
    altered, or a new one.
    """

    is_altered: Mask
    parent: Index
    known_key: Hashes

    def is_corrected(self) -> Mask:
        """Which of the altered events a later row takes away."""
        corrected = np.zeros(len(self.is_altered), np.bool_)
        corrected[self.parent[self.parent >= 0]] = True
        return corrected


def _link(changes: BagChanges, is_late: Mask, known: _MovedEvents) -> _CorrectionLinks:
    changes = _sort_changes(changes, len(is_late), known)
    is_altered, corrects = _find_altered(changes, np.append(is_late, np.ones(len(known), np.bool_)))
    parent = np.full(len(is_late), -1)
    concerns = np.where(changes.delta < 0, corrects[changes.row], is_altered[changes.row])
    row, of = _pair(changes.take(concerns))
    parent[row] = of
    return _CorrectionLinks(is_altered, parent, known.key)


def _sort_changes(changes: BagChanges, size: int, known: _MovedEvents) -> BagChanges:
    """The changes to events that some retraction may name, by identity, then by arrival."""
    changes = changes.take(maybe_in(changes.key, changes.key[changes.delta < 0]))
    changes = BagChanges(
        np.concatenate([size + np.arange(len(known)), changes.row]),
        np.concatenate([known.key, changes.key]),
        np.concatenate([np.ones(len(known), np.int64), changes.delta]),
        np.concatenate([known.end, changes.end]),
    )
    return changes.take(np.lexsort((np.where(changes.row < size, changes.row, -1), changes.key)))


def _find_altered(changes: BagChanges, is_altered: Mask) -> tuple[Mask, Mask]:
    """Which rows are altered in the end, and which because they correct an event that is.

    They alter it again, so that their own corrections are found in turn. More altered events only ever make
    for more corrections: what is found stands.
    """
    is_altered, corrects = _follow_chains(changes, is_altered), np.zeros(len(is_altered), np.bool_)
    group, sizes = group_sizes(changes.key)
    last = np.cumsum(sizes)
    added = np.full(len(is_altered), -1)
    added[changes.row[changes.delta > 0]] = group[changes.delta > 0]
    touched = distinct(added[is_altered & (added >= 0)])
    while len(touched):
        near = changes.take(expand((last - sizes)[touched], last[touched])[1])
        near = near.take((near.delta < 0) | is_altered[near.row])
        down = near.row[near.delta < 0]
        corrects[down] = True
        corrects[find_unmatched(near)] = False
        fresh = down[corrects[down] & ~is_altered[down]]
        is_altered[fresh] = True
        touched = distinct(added[fresh][added[fresh] >= 0])
    return is_altered, corrects


def _follow_chains(changes: BagChanges, is_altered: Mask) -> Mask:
    """The altered rows and those that surely correct one: it was the last before them to leave its event.

    A long chain of revisions is found in few leaps. Only among equal events is there more to find.
    """
    follows = (changes.delta[1:] < 0) & (changes.delta[:-1] > 0) & (changes.key[1:] == changes.key[:-1])
    to = np.arange(len(is_altered))
    to[changes.row[1:][follows]] = changes.row[:-1][follows]
    is_altered = is_altered | is_altered[to]
    while not np.array_equal(to, further := to[to]):
        to = further
        is_altered |= is_altered[to]
    return is_altered


def _pair(changes: BagChanges) -> tuple[Index, Index]:
    """Each row that takes an event away, and the row that had last left it."""
    group, _ = group_sizes(changes.key)
    total = running_totals(changes.key, changes.delta)
    # Added on one level and taken away on it again, events of one identity nest like brackets.
    order = np.lexsort((total + (changes.delta < 0), group))
    closing = np.flatnonzero(changes.delta[order] < 0)
    return changes.row[order[closing]], changes.row[order[closing - 1]]


@dataclass(frozen=True, slots=True)
class _Lifetimes:
    """The lifetime that each row leaves its event with in the output, and the end it had until then.

    ``NO_OUTPUT`` is the start of an event that is not there. Where the end is the start, nothing is left.
    """

    start: Ticks
    end: Ticks
    old_end: Ticks


def _output_lifetimes(
    part: EventBatch, cti: Ticks, links: _CorrectionLinks, known: _MovedEvents, *, adjusts: bool
) -> _Lifetimes:
    """From the CTI on the input decides, if the output still has the event."""
    is_insert = part.kind == INSERT
    end = np.append(np.maximum(new_end(part), cti), known.end)
    first = np.where(adjusts & (part.ve >= cti), np.where(is_insert, cti, part.vs), NO_OUTPUT)
    old_end = np.where(links.parent >= 0, end[links.parent], np.where(is_insert, first, part.ve))
    is_open = np.append((links.parent < 0) | (old_end >= cti), np.ones(len(known), np.bool_))
    origin, has_output = _origins(links.parent, is_open)
    start = np.where(has_output, np.append(first, known.start)[origin], NO_OUTPUT)
    return _Lifetimes(start, end, old_end)


def _origins(parent: Index, is_open: Mask) -> tuple[Index, Mask]:
    """The row that first gave each row's event, and whether all from there on found it open to change."""
    to = np.arange(len(is_open))
    to[: len(parent)] = np.where(parent >= 0, parent, to[: len(parent)])
    while not np.array_equal(to, further := to[to]):
        is_open = is_open & is_open[to]
        to = further
    return to, is_open & is_open[to]


def _rewrite(batch: EventBatch, rows: Index, links: _CorrectionLinks, lifetimes: _Lifetimes) -> AdjustedBatch:
    at = np.flatnonzero(links.is_altered[: len(rows)])
    start, old, new = lifetimes.start[at], lifetimes.old_end[at], lifetimes.end[at]
    stays = (start != NO_OUTPUT) & (old != new)
    is_dropped, is_moved, is_altered, corrects = np.zeros((4, len(batch)), np.bool_)
    is_altered[rows[at]], corrects[rows] = True, links.parent >= 0
    is_dropped[rows[at[~stays]]] = True
    at, start, old, new = rows[at[stays]], start[stays], old[stays], new[stays]
    kind, vs, ve, new_ve = batch.kind.copy(), batch.vs.copy(), batch.ve.copy(), batch.new_ve.copy()
    is_insert = old == start
    kind[at], vs[at] = np.where(is_insert, INSERT, RETRACT), start
    ve[at], new_ve[at] = np.where(is_insert, new, old), np.where(is_insert, FOREVER, new)
    is_moved[at] = ((kind != batch.kind) | (vs != batch.vs) | (ve != batch.ve) | (new_ve != batch.new_ve))[at]
    adjusted = EventBatch(kind, vs, ve, new_ve, batch.count, batch.payload)
    return AdjustedBatch(adjusted, is_dropped, is_moved, is_altered, corrects)
