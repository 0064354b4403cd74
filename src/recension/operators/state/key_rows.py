"""The key row of each number, where numbers go from one key to another.

    numbers     0 1 2 3 4 5          the place of the row of each
    blocks      . . x . | x . x . . |  .  .       x: its number has gone to another key

A row stands in the block in which it came, so that it is found by its place without a search. A block of
which most rows are of no use is written anew, behind the others, as is one of several that are about equally
short. No call copies more than a few times `_LONGEST` rows, or rows in proportion to those it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, null_payload, take_rows
from recension.core.memory import keep_batch, keep_columns, longest_copy
from recension.operators.state.arena import Arena

_LONGEST: Final = 1 << 17
_ALIKE: Final = 4  # so many blocks of about the same length become one


@dataclass(slots=True, eq=False)
class _Block:
    """Rows that lie at places from ``first`` on, and the numbers they came for; ``left`` are still in use."""

    rows: pa.RecordBatch
    numbers: Index
    first: int
    left: int

    @property
    def is_mostly_gone(self) -> bool:
        """Are less than half of the rows in use?"""
        return 2 * self.left < len(self.numbers)


class KeyRows:
    """Rows of one schema, which has columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._places = Arena({"place": np.int64})
        self._blocks: list[_Block] = []
        self._firsts = np.zeros(0, np.int64)
        self._next = 0

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return sum(int(block.rows.nbytes) + block.numbers.nbytes for block in self._blocks)

    def put(self, numbers: Index, rows: pa.RecordBatch) -> None:
        """The rows of numbers, each named once: first some that had others, then the next ones in order."""
        again = int(np.count_nonzero(numbers < len(self._places)))
        if again:
            self._release(self._places["place"][numbers[:again]])
        self._places.append({"place": np.zeros(len(numbers) - again, np.int64)})
        for at in range(0, len(numbers), _LONGEST):
            self._append(numbers[at : at + _LONGEST], rows.slice(at, _LONGEST))
        self._tidy()

    def take(self, numbers: Index) -> pa.RecordBatch:
        """The rows of these numbers, in this order."""
        if not len(numbers):
            return null_payload(0, self._schema)
        places = self._places["place"][numbers]
        if len(self._blocks) == 1:
            return take_rows(self._blocks[0].rows, places - self._blocks[0].first)
        block = self._block_of(places)
        used = np.flatnonzero(np.bincount(block)).tolist()
        if len(used) == 1:
            return take_rows(self._blocks[used[0]].rows, places - self._firsts[used[0]])
        # Block by block: Arrow may copy all blocks into one to take rows of several.
        parts, order = list[pa.RecordBatch](), np.empty(len(places), np.int64)
        taken = 0
        for number in used:
            own = np.flatnonzero(block == number)
            parts.append(take_rows(self._blocks[number].rows, places[own] - self._firsts[number]))
            order[own] = np.arange(taken, taken + len(own))
            taken += len(own)
        return take_rows(pa.concat_batches(parts), order)

    def look_at(self, numbers: Index) -> pa.RecordBatch:
        """The same, to be looked at and forgotten: a single row is not copied, and so holds a whole block."""
        if len(numbers) != 1:
            return self.take(numbers)
        place = int(self._places["place"][numbers[0]])
        block = self._blocks[int(self._firsts.searchsorted(place, "right")) - 1]
        return block.rows.slice(place - block.first, 1)

    def _block_of(self, places: Index) -> Index:
        found: Index = np.searchsorted(self._firsts, places, "right") - 1
        return found

    def _release(self, places: Index) -> None:
        """The rows at these places are of no use any more."""
        for block, gone in zip(self._blocks, np.bincount(self._block_of(places)).tolist(), strict=False):
            block.left -= gone

    def _append(self, numbers: Index, rows: pa.RecordBatch) -> None:
        """Rows behind all others."""
        first, self._next = self._next, self._next + len(numbers)
        self._places["place"][numbers] = np.arange(first, self._next)
        own = keep_columns({"number": numbers})["number"]
        self._set_blocks([*self._blocks, _Block(keep_batch(rows), own, first, len(numbers))])

    def _set_blocks(self, blocks: list[_Block]) -> None:
        self._blocks = blocks
        self._firsts = np.array([block.first for block in blocks], np.int64)

    def _tidy(self) -> None:
        """Write blocks anew that are mostly gone, and one of several that are alike."""
        if not any(block.is_mostly_gone for block in self._blocks) and len(self._blocks) < _ALIKE:
            return
        chosen, alike = list[_Block](), dict[int, list[_Block]]()
        for block in self._blocks:
            if block.is_mostly_gone:
                chosen.append(block)
            elif 2 * block.left <= _LONGEST:
                alike.setdefault(block.left.bit_length() // 2, []).append(block)
        chosen += [block for blocks in alike.values() if len(blocks) >= _ALIKE for block in blocks]
        if not chosen:
            return
        self._set_blocks([block for block in self._blocks if block not in chosen])
        run, size, copied = list[_Block](), 0, 0
        for block in chosen:
            size, copied = size + block.left, copied + block.rows.nbytes
            if run and (size > _LONGEST or copied > longest_copy()):
                self._unite(run)
                run, size, copied = [], block.left, block.rows.nbytes
            run.append(block)
        self._unite(run)

    def _unite(self, blocks: list[_Block]) -> None:
        """What is left of some blocks, behind all others."""
        parts = [self._live_part(block) for block in blocks if block.left]
        if parts:
            numbers = np.concatenate([numbers for numbers, _ in parts])
            self._append(numbers, pa.concat_batches([rows for _, rows in parts]))

    def _live_part(self, block: _Block) -> tuple[Index, pa.RecordBatch]:
        """The rows in use, and their numbers."""
        if block.left == len(block.numbers):
            return block.numbers, block.rows
        places = np.arange(block.first, block.first + len(block.numbers))
        at = np.flatnonzero(self._places["place"][block.numbers] == places)
        return block.numbers[at], take_rows(block.rows, at)
