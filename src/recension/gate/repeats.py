"""Elements that were sent again: a producer numbers what it sends, and a number seen before is a repeat.

A producer that crashes sends again what it cannot know to have arrived. What it numbers rises, so the highest
number of each of its runs is all that must be remembered: a run that begins anew, at 0, is another one.

Assumes     within one run and partition, sequences rise but for repeats.
Guarantees  an element whose sequence is not above all before it of its run and partition is a repeat. One
            without a sequence never is.
State       per run and partition the highest sequence.
Cost        O(n log n) in the rows that have a sequence.
Source      rulings P9 and P10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import RecensionError
from recension.core.placement import Placement
from recension.core.rows import Rows
from recension.core.segments import group_starts, rank_rows, running_max, stable_order
from recension.gate.step import Arrival, Step, Verdict

REPEATED: Final = "a repeat of an element that came before"
Highest: TypeAlias = Mapping[tuple[str, str], tuple[int, ...]]
"""By run and partition, the highest sequence."""


class Repeats(Step):
    """The step *repeats*, for a source that is one stream: what its producer sent again is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._sequences = Sequences()

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The rows that are no repeats."""
        places = rows.placement
        if places is None or not places.sequence:
            return rows, None
        is_repeat, highest = self._sequences.find_repeats(places, places.code, places.names)
        counted = is_repeat if arrival.counts_ctis else is_repeat & (rows.batch.kind != CTI)
        take_over = partial(self._take_over, highest, int(counted.sum()))
        if not bool(is_repeat.any()):
            return rows, take_over
        batch, origin = rows.batch.filter(~is_repeat), rows.origin.take(~is_repeat)
        return replace(rows, batch=batch, origin=origin), take_over

    def _take_over(self, highest: Highest, repeats: int, batch: EventBatch) -> EventBatch:
        self._sequences.note(highest)
        self.counts[REPEATED] += repeats
        return batch

    def snapshot(self) -> dict[str, pa.Table]:
        """The highest sequences, if there are any."""
        return self._sequences.snapshot() if self._sequences else {}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self._sequences.restore(chunks)


class Sequences:
    """The highest sequences of all runs and partitions."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], tuple[int, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._highest)

    def find_repeats(
        self, placement: Placement, partition: Index, names: Sequence[str]
    ) -> tuple[Mask, Highest]:
        """Which rows are repeats, and the highest sequences after them; nothing is remembered yet.

        ``partition`` numbers the partitions of the rows, of which ``names`` has all.
        """
        size = len(partition)
        is_repeat = np.zeros(size, np.bool_)
        if not placement.sequence or not size:
            return is_repeat, {}
        runs = np.zeros(size, np.int64) if placement.run is None else placement.run
        group = runs * len(names) + partition
        at = stable_order(group, int(group.max()) + 1)
        if placement.numbered is not None:
            at = at[placement.numbered[at]]
        if not len(at):
            return is_repeat, {}
        first = group_starts(group[at])
        numbers = group[at[first]].tolist()
        keys = [(placement.runs[number // len(names)], names[number % len(names)]) for number in numbers]
        known = [self._highest_of(key, len(placement.sequence)) for key in keys]
        columns = tuple(column[at] for column in placement.sequence)
        rank, floor = _rank_with(columns, known)
        top = running_max(rank, first)
        before = np.append(np.int64(-1), top)[:-1]
        before[first] = -1
        sizes = np.diff(np.append(first, len(at)))
        is_repeat[at] = rank <= np.maximum(before, np.repeat(floor, sizes))
        highest = {}
        for key, values, start, length in zip(keys, known, first.tolist(), sizes.tolist(), strict=True):
            best = start + int(np.argmax(rank[start : start + length]))
            mine = tuple(int(column[best]) for column in columns)
            highest[key] = mine if values is None else max(mine, values)
        return is_repeat, highest

    def _highest_of(self, key: tuple[str, str], width: int) -> tuple[int, ...] | None:
        values = self._highest.get(key)
        if values is not None and len(values) != width:
            raise RecensionError(
                f"the sequence of run {key[0]!r} had {len(values)} numbers before, and has {width} now"
            )
        return values

    def note(self, highest: Highest) -> None:
        """Remember what `find_repeats` gave."""
        self._highest |= highest

    def snapshot(self) -> dict[str, pa.Table]:
        """The highest sequences as a table."""
        runs, partitions = [run for run, _ in self._highest], [name for _, name in self._highest]
        table = {
            "run": pa.array(runs, pa.string()),
            "partition": pa.array(partitions, pa.string()),
            "sequence": pa.array(list(self._highest.values()), pa.list_(pa.int64())),
        }
        return {"sequences": pa.table(table)}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave; earlier snapshots have none."""
        rows = chunks["sequences"].to_pylist() if "sequences" in chunks else []
        self._highest = {(row["run"], row["partition"]): tuple(row["sequence"]) for row in rows}


def _rank_with(columns: tuple[Index, ...], known: list[tuple[int, ...] | None]) -> tuple[Index, Index]:
    """Ranks of the rows, and of what is known of each group: -1 where that is nothing."""
    nothing = (0,) * len(columns)
    floors = np.array([values or nothing for values in known], np.int64)
    return rank_rows(columns, tuple(floors.T), np.array([values is not None for values in known]))
