"""Late elements: what breaks a CTI, its stream's own or one made above it, and all that later corrects it.

A late insert starts at the CTI instead, a late retraction takes effect there; what ends before the CTI is
left out. An event that was altered, or left out, is from then on known by an identity of which the output
knows nothing: a correction of it is told of the event as it is shown, or left out as well.

Assumes     a valid stream but for the CTIs it breaks.
Guarantees  what is left is a valid stream; each element passes, is altered or is left out.
State       what was altered or left out, until the CTI has passed the end it is shown with; how far back the
            ends told of it reach.
Cost        O(n log n) in the retractions and late elements of a batch.
Source      The Extensibility Framework in Microsoft StreamInsight, §II.A; rulings A1 to A4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.bag import EventBag
from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask
from recension.core.netting import expand, group_sizes, maybe_in
from recension.core.orphans import Steps, steps_in_vain, steps_of
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch with its late elements altered, and which of its rows are not as they came.

    What an altered row tells is from then on not what is shown. A row that corrects takes away an event that
    was altered before.
    """

    batch: EventBatch
    is_lost: Mask
    is_moved: Mask
    is_altered: Mask
    corrects: Mask


class LateElements:
    """Settles them batch by batch."""

    def __init__(self, *, adjusts: bool) -> None:
        self._adjusts = adjusts
        self._known = AlteredEvents()
        self._cut = CutEvents()

    def __len__(self) -> int:
        return len(self._known)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._known.nbytes()

    def count(self, keys: Hashes) -> Index:
        """How many altered events there are of each identity that the stream knows them by."""
        return self._known.count(keys)

    def settle(self, batch: EventBatch, before: Ticks, considered: Mask | None = None) -> Settled:
        """What becomes of a batch whose rows come after the CTIs ``before`` them; of those considered."""
        is_late = batch.is_data() & (batch.sync() < before)
        is_retract = batch.kind == RETRACT
        if considered is not None:
            is_late, is_retract = is_late & considered, is_retract & considered
        nothing = np.zeros(len(batch), np.bool_)
        if not is_late.any() and not (len(self._known) and is_retract.any()):
            return Settled(batch, nothing, nothing, nothing, nothing)
        rows = np.flatnonzero(is_late | is_retract)
        part = batch.take(rows)
        steps = steps_of(part, np.ones(len(part), np.bool_))
        known = self._known.take_out(np.unique(steps.key[steps.step < 0]))
        links = _linked(steps, is_late[rows], known)
        lives = _lives(part, before[rows], links, known, adjusts=self._adjusts)
        self._remember(steps, links, lives)
        self._note_cut(part, links, lives)
        return _written(batch, rows, links, lives)

    def _remember(self, steps: Steps, links: _Links, lives: _Lives) -> None:
        """What was altered and is not yet corrected, in order of arrival."""
        size, stays = len(links.parent), links.is_altered & ~links.is_corrected()
        told = steps.take((steps.step > 0) & stays[steps.row])
        told = told.take(np.argsort(told.row))
        row = np.concatenate([size + np.flatnonzero(stays[size:]), told.row])
        key = np.concatenate([links.known_key[stays[size:]], told.key])
        self._known.put(Altered(key, lives.start[row], lives.end[row]))

    def _note_cut(self, part: EventBatch, links: _Links, lives: _Lives) -> None:
        told, shown = _told_end(part), lives.end[: len(part)]
        is_cut = links.is_altered[: len(part)] & (lives.start != NOT_SHOWN)[: len(part)] & (told < shown)
        self._cut.note(told[is_cut], shown[is_cut])

    def settled(self, t: int) -> int:
        """The CTI is ``t``: corrections of events that were told to end before this time are all left out."""
        return self._cut.settled(t)

    def forget_before(self, t: int) -> None:
        """The CTI is ``t``: events shown with an end before it are final."""
        self._known.forget_before(t)

    def snapshot(self) -> dict[str, pa.Table]:
        """What is remembered."""
        return {"altered": self._known.snapshot(), "cut": self._cut.snapshot()}

    def restore(self, chunks: Mapping[str, pa.Table], frontier: int) -> None:
        """Remember what `chunks` gave."""
        self._known.restore(chunks["altered"], frontier)
        self._cut.restore(chunks["cut"])


@dataclass(frozen=True, slots=True)
class _Links:
    """Which rows tell of altered events, and of which: that of a row before, or a known one (numbered on).

    A row without ``parent`` (-1) tells of an event that is shown as it was told, or of a new one.
    """

    is_altered: Mask
    parent: Index
    known_key: Hashes

    def is_corrected(self) -> Mask:
        """Which of the altered events are told otherwise by a later row."""
        corrected = np.zeros(len(self.is_altered), np.bool_)
        corrected[self.parent[self.parent >= 0]] = True
        return corrected


def _linked(steps: Steps, is_late: Mask, known: Altered) -> _Links:
    walk = _walk(steps, len(is_late), known)
    is_altered, corrects = _spread(walk, np.append(is_late, np.ones(len(known), np.bool_)))
    parent = np.full(len(is_late), -1)
    row, of = _pairs(walk.take(np.where(walk.step < 0, corrects[walk.row], is_altered[walk.row])))
    parent[row] = of
    return _Links(is_altered, parent, known.key)


def _spread(walk: Steps, is_altered: Mask) -> tuple[Mask, Mask]:
    """Which rows are altered in the end, and which because they correct an event that is.

    They alter it again, so that their own corrections are found in turn. More altered events only ever make
    for more corrections: what is found stands.
    """
    is_altered, corrects = _passed_on(walk, is_altered), np.zeros(len(is_altered), np.bool_)
    group, sizes = group_sizes(walk.key)
    last = np.cumsum(sizes)
    told = np.full(len(is_altered), -1)
    told[walk.row[walk.step > 0]] = group[walk.step > 0]
    touched = np.unique(told[is_altered & (told >= 0)])
    while len(touched):
        near = walk.take(expand((last - sizes)[touched], last[touched])[1])
        near = near.take((near.step < 0) | is_altered[near.row])
        down = near.row[near.step < 0]
        corrects[down] = True
        corrects[steps_in_vain(near, EventBag())] = False
        fresh = down[corrects[down] & ~is_altered[down]]
        is_altered[fresh] = True
        touched = np.unique(told[fresh][told[fresh] >= 0])
    return is_altered, corrects


def _passed_on(walk: Steps, is_altered: Mask) -> Mask:
    """The altered rows and those that surely correct one: it was the last before them to tell of its event.

    A long chain of revisions is found in few leaps. Only among equal events is there more to find.
    """
    follows = (walk.step[1:] < 0) & (walk.step[:-1] > 0) & (walk.key[1:] == walk.key[:-1])
    to = np.arange(len(is_altered))
    to[walk.row[1:][follows]] = walk.row[:-1][follows]
    is_altered = is_altered | is_altered[to]
    while not np.array_equal(to, further := to[to]):
        to = further
        is_altered |= is_altered[to]
    return is_altered


def _walk(steps: Steps, size: int, known: Altered) -> Steps:
    """The steps that a retraction may have to do with, by identity, then by arrival."""
    steps = steps.take(maybe_in(steps.key, steps.key[steps.step < 0]))
    walk = Steps(
        np.concatenate([size + np.arange(len(known)), steps.row]),
        np.concatenate([known.key, steps.key]),
        np.concatenate([np.ones(len(known), np.int64), steps.step]),
        np.concatenate([known.end, steps.end]),
    )
    return walk.take(np.lexsort((np.where(walk.row < size, walk.row, -1), walk.key)))


def _pairs(walk: Steps) -> tuple[Index, Index]:
    """Each row that takes an event away, and the row that had last told of it."""
    group, sizes = group_sizes(walk.key)
    level = np.cumsum(walk.step)
    first = np.cumsum(sizes) - sizes
    level -= (level[first] - walk.step[first])[group]
    # Announced on one level and taken away on it again, events of one identity nest like brackets.
    order = np.lexsort((level + (walk.step < 0), group))
    closing = np.flatnonzero(walk.step[order] < 0)
    return walk.row[order[closing]], walk.row[order[closing - 1]]


@dataclass(frozen=True, slots=True)
class _Lives:
    """The lifetime each row's event is shown with from then on, and the end it had until then.

    No start: it is not shown. Where the end is the start, nothing is there to be seen of it.
    """

    start: Ticks
    end: Ticks
    old_end: Ticks


def _lives(part: EventBatch, cti: Ticks, links: _Links, known: Altered, *, adjusts: bool) -> _Lives:
    """What the stream says of the time from the CTI on holds, if the event is shown until then."""
    is_insert = part.kind == INSERT
    end = np.append(np.maximum(_told_end(part), cti), known.end)
    first = np.where(adjusts & (part.ve >= cti), np.where(is_insert, cti, part.vs), NOT_SHOWN)
    old_end = np.where(links.parent >= 0, end[links.parent], np.where(is_insert, first, part.ve))
    is_open = np.append((links.parent < 0) | (old_end >= cti), np.ones(len(known), np.bool_))
    origin, is_shown = _origins(links.parent, is_open)
    start = np.where(is_shown, np.append(first, known.start)[origin], NOT_SHOWN)
    return _Lives(start, end, old_end)


def _told_end(part: EventBatch) -> Ticks:
    """The end that the stream tells with each element."""
    return np.where(part.kind == INSERT, part.ve, part.new_ve)


def _origins(parent: Index, is_open: Mask) -> tuple[Index, Mask]:
    """The row that first told of each row's event, and whether all from there on found it open to change."""
    to = np.arange(len(is_open))
    to[: len(parent)] = np.where(parent >= 0, parent, to[: len(parent)])
    while not np.array_equal(to, further := to[to]):
        is_open = is_open & is_open[to]
        to = further
    return to, is_open & is_open[to]


def _written(batch: EventBatch, rows: Index, links: _Links, lives: _Lives) -> Settled:
    at = np.flatnonzero(links.is_altered[: len(rows)])
    start, old, new = lives.start[at], lives.old_end[at], lives.end[at]
    is_shown = (start != NOT_SHOWN) & (old != new)
    is_lost, is_moved, is_altered, corrects = np.zeros((4, len(batch)), np.bool_)
    is_altered[rows[at]], corrects[rows] = True, links.parent >= 0
    is_lost[rows[at[~is_shown]]] = True
    at, start, old, new = rows[at[is_shown]], start[is_shown], old[is_shown], new[is_shown]
    kind, vs, ve, new_ve = batch.kind.copy(), batch.vs.copy(), batch.ve.copy(), batch.new_ve.copy()
    is_insert = old == start
    kind[at], vs[at] = np.where(is_insert, INSERT, RETRACT), start
    ve[at], new_ve[at] = np.where(is_insert, new, old), np.where(is_insert, FOREVER, new)
    is_moved[at] = ((kind != batch.kind) | (vs != batch.vs) | (ve != batch.ve) | (new_ve != batch.new_ve))[at]
    settled = EventBatch(kind, vs, ve, new_ve, batch.count, batch.payload)
    return Settled(settled, is_lost, is_moved, is_altered, corrects)


NOT_SHOWN: Final = FOREVER
"""The start of an event that is not shown at all."""


@dataclass(frozen=True, slots=True)
class Altered:
    """Identities by which events are known, and the lifetimes they are shown with, in order of arrival."""

    key: Hashes
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.key)

    def take(self, at: Index | Mask) -> Altered:
        """Some of them."""
        return Altered(self.key[at], self.start[at], self.end[at])


class AlteredEvents(SortedRuns):
    """What was altered and can still be corrected: it ends at or after the last CTI."""

    def __init__(self) -> None:
        super().__init__({"key": np.uint64, "start": np.int64, "end": np.int64}, expiry="end")

    def count(self, keys: Hashes) -> Index:
        """How many events of each of the given identities can still be corrected."""
        found = self.matching(np.unique(keys))["key"]
        return np.searchsorted(found, keys, "right") - np.searchsorted(found, keys)

    def take_out(self, keys: Hashes) -> Altered:
        """All events of the given (sorted) identities, which are forgotten: what stays is put back."""
        found = Altered(**self.matching(keys))
        self.erase(keys)
        return found

    def put(self, events: Altered) -> None:
        """Remember events; equal identities stand in order of arrival."""
        events = events.take(np.argsort(events.key, kind="stable"))
        self.push(events.key, events.start, events.end, is_run=True)


class CutEvents:
    """The last CTI at which events were cut off, and the least end they were told with."""

    def __init__(self) -> None:
        self._cti, self._least = BEGINNING, FOREVER

    def note(self, told: Ticks, cti: Ticks) -> None:
        """Events were told to end at ``told``, and are shown until ``cti``."""
        if not len(cti):
            return
        last = int(cti.max())
        if last > self._cti:
            self._cti, self._least = last, FOREVER
        if last == self._cti:
            self._least = min(self._least, int(told[cti == last].min()))

    def settled(self, cti: int) -> int:
        """A time such that no event that was told to end before it can be corrected, when this is the CTI."""
        return min(cti, self._least) if cti <= self._cti < FOREVER else cti

    def snapshot(self) -> pa.Table:
        """Both, as a table of one row."""
        return pa.table({"cti": [self._cti], "least": [self._least]})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        self._cti, self._least = table["cti"][0].as_py(), table["least"][0].as_py()
