"""The LMerge paper's test stream: inserts in application time, some moved back, and CTIs between them.

Every element comes a random gap after the one before. A CTI stands at the time it comes; a disordered
insert is moved back behind an event already sent, but never behind the last CTI. Chunks of elements are
drawn each from its own random numbers, so memory is bounded and a seed always gives the same stream.

Source      LMerge technical report, §VI-B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recension.core.batch import CTI, INSERT, Index, Mask
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.testing.generator.draft import Draft, GeneratedPayloads, rows_at_once
from recension.testing.generator.settings import StreamSettings

_NEARBY = 32


@dataclass(frozen=True, slots=True)
class DraftChunk:
    """A run of elements, and the clock when it ends: nothing later starts before, once put in order."""

    draft: Draft
    clock: int


@dataclass(slots=True)
class _Carry:
    """What a chunk needs to know of those before it."""

    clock: int
    stable: int = BEGINNING
    highest: int = BEGINNING
    number: int = 0
    after_cti: bool = True


def chunks(settings: StreamSettings) -> Iterator[DraftChunk]:
    """The stream without payloads and without its closing CTI."""
    left = settings.size - int(settings.close)
    carry = _Carry(settings.start)
    payloads = GeneratedPayloads(settings.seed, settings.string_size)
    index = 0
    while left:
        size = min(left, rows_at_once(settings.string_size))
        rng = np.random.default_rng([settings.seed, 0, index])
        yield DraftChunk(_chunk(settings, payloads, rng, size, carry), carry.clock)
        left, index = left - size, index + 1


def _chunk(
    settings: StreamSettings, payloads: GeneratedPayloads, rng: np.random.Generator, size: int, carry: _Carry
) -> Draft:
    is_cti = place_ctis(rng, size, settings.stable_freq, carry.after_cti)
    # The closing CTI, too, comes after an insert.
    is_cti[-1] &= not (settings.close and carry.number + size == settings.size - 1)
    clock = carry.clock + np.cumsum(_gaps(settings, rng, is_cti))
    stable = np.maximum.accumulate(np.where(is_cti, clock, carry.stable))
    vs = _move_back(settings, rng, clock, stable, is_cti, carry)
    number = carry.number + np.arange(size)
    ve = np.where(is_cti, FOREVER, vs + _lifetimes(settings, rng, size))
    draft = Draft(np.where(is_cti, CTI, INSERT).astype(np.uint8), vs, ve, np.full(size, FOREVER), number)
    if settings.duplicates:
        draft = _repeat_earlier(draft, stable, settings, rng)
    if settings.case == "R1":
        draft = _sort_ties(draft, payloads)
    carry.clock, carry.stable = int(clock[-1]), int(stable[-1])
    carry.highest = max(carry.highest, int(vs[~is_cti].max(initial=BEGINNING)))
    carry.number, carry.after_cti = carry.number + size, bool(is_cti[-1])
    return draft


def place_ctis(rng: np.random.Generator, size: int, frequency: float, after_cti: bool) -> Mask:
    """Which elements are CTIs: a fraction ``frequency``, never two in a row (so at most every second)."""
    # After a CTI comes an insert; after an insert, a CTI with the chance that gives the fraction asked for.
    chance = min(1.0, frequency / (1 - frequency)) if frequency < 1 else 1.0
    drawn = np.concatenate([[after_cti], rng.random(size) < chance])
    rows = np.arange(size + 1)
    run_start = np.maximum.accumulate(np.where(drawn, -1, rows)) + 1
    # In a run of drawn ones every second counts, the first one included.
    kept: Mask = (drawn & ((rows - run_start) % 2 == 0))[1:]
    return kept


def _gaps(settings: StreamSettings, rng: np.random.Generator, is_cti: Mask) -> Index:
    """Gaps before each element; a CTI always advances, and starts never tie in R0."""
    least = 1 if settings.case == "R0" else 0
    gaps = rng.integers(least, settings.max_gap, len(is_cti), endpoint=True)
    if settings.ties:
        gaps[rng.random(len(gaps)) < settings.ties] = 0
    gaps[is_cti] = np.maximum(gaps[is_cti], 1)
    # Events of equal start stay in one chunk, where they can be sorted.
    gaps[0] = max(gaps[0], 1)
    return gaps


def _move_back(
    settings: StreamSettings,
    rng: np.random.Generator,
    clock: Ticks,
    stable: Ticks,
    is_cti: Mask,
    carry: _Carry,
) -> Ticks:
    """Starts of the inserts, a fraction of them before the highest start so far, none before the last CTI."""
    if not settings.disorder:
        return clock
    moved = ~is_cti & (rng.random(len(clock)) < settings.disorder)
    stays = np.where(moved | is_cti, BEGINNING, clock)
    highest = np.maximum.accumulate(np.append(carry.highest, stays))[:-1]
    behind = np.maximum(np.maximum(highest, settings.start) - settings.reach, settings.start)
    lowest = np.maximum(stable, behind)
    room = np.maximum(highest, lowest) - lowest
    target = lowest + (rng.random(len(clock)) * room).astype(np.int64)
    return np.where(moved & (room > 0), target, clock)


def _lifetimes(settings: StreamSettings, rng: np.random.Generator, size: int) -> Index:
    wide = int(settings.event_duration * settings.duration_spread)
    if not wide:
        return np.full(size, settings.event_duration)
    return np.maximum(1, settings.event_duration + rng.integers(-wide, wide, size, endpoint=True))


def _sort_ties(draft: Draft, payloads: GeneratedPayloads) -> Draft:
    """Inserts of equal start in (payload, ve) order; assumes starts that never fall."""
    at = np.flatnonzero(draft.kind == INSERT)
    at = at[is_tied(draft.vs[at])]
    number = draft.number[at]
    texts = payloads.text_keys(number)[::-1]
    order = np.lexsort((draft.ve[at], *texts, payloads.values(number), draft.vs[at]))
    rows = np.arange(len(draft))
    rows[at] = at[order]
    return draft.take(rows)


def is_tied(sorted_times: Ticks) -> Mask:
    """Which of the times, in order, are equal to a neighbour."""
    same = sorted_times[1:] == sorted_times[:-1]
    tied: Mask = np.append(False, same) | np.append(same, False)
    return tied


def _repeat_earlier(draft: Draft, stable: Ticks, settings: StreamSettings, rng: np.random.Generator) -> Draft:
    """Turn some inserts into copies of one a little earlier: half of them exact, half with another end.

    Best effort: what lies before the last CTI cannot be sent again.
    """
    size = len(draft)
    source = np.maximum(np.arange(size) - rng.integers(1, _NEARBY, size, endpoint=True), 0)
    wanted = (draft.kind == INSERT) & (rng.random(size) < settings.duplicates)
    original = (draft.kind == INSERT) & ~wanted
    copies = wanted & original[source] & (draft.vs[source] >= stable)
    source = np.where(copies, source, np.arange(size))
    other_end = draft.vs[source] + rng.integers(1, 2 * settings.event_duration, size, endpoint=True)
    exact = ~copies | (rng.random(size) < 0.5)
    vs, number = draft.vs[source], draft.number[source]
    return Draft(draft.kind, vs, np.where(exact, draft.ve[source], other_end), draft.new_ve, number)
