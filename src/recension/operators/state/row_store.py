"""Payload rows known by number: appended in blocks, taken in any order, dropped a few at a time.

    numbers     0 1 2 3 | 4 5 6 7 8 9 | 10 11      given in order of arrival, and never again
    blocks      . . x . | x . x x . . |  .  .      x: dropped; where most are, a block is written anew

Numbers only grow, so that no row has to be numbered anew, and a block stands for a range of numbers. No call
copies more than a few times `_LONGEST` rows, or rows in proportion to those it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, can_repeat, null_payload, repeat_row, take_rows
from recension.core.change_log import Change
from recension.core.memory import keep_batch, longest_copy
from recension.operators.state.block_table import BlockTable
from recension.operators.state.leaf_table import LeafTable, unique_numbers

_RATIO: Final = 4
_LONGEST: Final = 1 << 17
_SMALL: Final = 1024
_MANY: Final = 32
_FEW: Final = 64


@dataclass(slots=True, eq=False)
class _Block:
    """Rows in order of their numbers, which are consecutive unless given; ``left`` of them are there."""

    rows: pa.RecordBatch
    first: int
    size: int
    numbers: Index | None = None
    gone: Mask | None = None
    left: int = 0

    def all_numbers(self) -> Index:
        """The numbers of all rows."""
        return np.arange(self.first, self.first + self.size) if self.numbers is None else self.numbers

    def places(self, numbers: Index) -> Index:
        """The place of each number in this block's range, or any place if it has none."""
        return numbers - self.first if self.numbers is None else self._search(self.numbers, numbers)

    def has(self, numbers: Index) -> Mask:
        """Whether the row of each number in this block's range is there."""
        at = self.places(numbers)
        is_there = at < self.size if self.numbers is None else self.numbers[at] == numbers
        return is_there if self.gone is None else is_there & ~self.gone[np.minimum(at, self.size - 1)]

    def _search(self, own: Index, numbers: Index) -> Index:
        """The place of each number, or any place if it is not there."""
        span = int(own[-1]) - self.first + 1
        if span > _RATIO * len(numbers):
            return np.minimum(np.searchsorted(own, numbers), self.size - 1)
        # For many, a table of all places pays: they are in any order, and each search would be a far one.
        places = np.zeros(span, np.int64)
        places[own - self.first] = np.arange(self.size)
        return places[np.minimum(numbers - self.first, span - 1)]

    def drop(self, numbers: Index) -> None:
        """Let go of rows that are there."""
        if self.gone is None:
            self.gone = np.zeros(self.size, np.bool_)
        self.gone[self.places(numbers)] = True
        self.left -= len(numbers)

    def live_part(self, first: int = 0) -> tuple[Index, pa.RecordBatch]:
        """The numbers from ``first`` on and the rows that are there."""
        numbers = self.all_numbers()
        start = int(np.searchsorted(numbers, first))
        if self.gone is None or not bool(self.gone[start:].any()):
            return numbers[start:], self.rows.slice(start) if self.rows.num_columns else self.rows
        at = np.flatnonzero(~self.gone[start:]) + start
        return numbers[at], take_rows(self.rows, at)


class RowStore:
    """Rows of one schema. Blocks are united so that each is several times as long as the next.

    Without ``notes_gone`` changes do not say which rows went: who loads them knows.
    """

    def __init__(self, schema: pa.Schema, *, notes_gone: bool = True) -> None:
        self.schema, self._notes_gone = schema, notes_gone
        name = "#"
        while name in schema.names:
            name += "#"
        self.key = (name,)
        self._can_repeat = can_repeat(schema)
        self.clear()

    def clear(self) -> None:
        """Forget all rows; numbers start from 0 again."""
        self._blocks: list[_Block] = []
        self._firsts = np.zeros(0, np.int64)
        self._size = self._next = 0
        # The first number that no checkpoint has stored (-1: all), and stored rows that have gone since.
        self._stored = -1
        self._dropped: list[Index] = []
        # The checkpoint that stored all rows, after they had been numbered from 0 again.
        self._base = 0

    def __len__(self) -> int:
        return self._size

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return sum(int(block.rows.nbytes) for block in self._blocks)

    def append(self, rows: pa.RecordBatch, size: int) -> Index:
        """The numbers of the added rows; ``size`` is how many, for a schema without columns."""
        numbers = np.arange(self._next, self._next + size)
        if size:
            self._append(numbers, rows)
        return numbers

    def _append(self, numbers: Index, rows: pa.RecordBatch) -> None:
        keep, end = self._count_kept(len(numbers)), len(self._blocks)
        starts = range(0, len(numbers), _LONGEST)
        parts = [(numbers[at : at + _LONGEST], rows.slice(at, _LONGEST)) for at in starts]
        self._put(end, end, [_make_block(*part) for part in parts])
        self._size += len(numbers)
        self._next = int(numbers[-1]) + 1
        self._unite(keep, len(self._blocks))

    def _put(self, start: int, stop: int, blocks: list[_Block]) -> None:
        """Other blocks in place of some."""
        self._blocks[start:stop] = blocks
        firsts = [block.first for block in blocks]
        self._firsts = np.concatenate([self._firsts[:start], firsts, self._firsts[stop:]]).astype(np.int64)

    def _count_kept(self, size: int) -> int:
        """How many blocks stay as they are when so many rows come; the others become one with them."""
        keep, total = len(self._blocks), size
        while keep and self._blocks[keep - 1].left <= _RATIO * total:
            keep -= 1
            total += self._blocks[keep].left
        return keep

    def _unite(self, start: int, stop: int) -> None:
        """One block from neighbours, or from as many of the last ones as may be copied at once."""
        size, copied = 0, 0
        for place in reversed(range(start, stop)):
            size, copied = size + self._blocks[place].left, copied + self._blocks[place].rows.nbytes
            if size > _LONGEST or copied > longest_copy():
                start = place + 1
                break
        if start < stop - 1:
            parts = [block.live_part() for block in self._blocks[start:stop]]
            numbers = np.concatenate([numbers for numbers, _ in parts])
            self._put(start, stop, [_make_block(numbers, pa.concat_batches([rows for _, rows in parts]))])

    def take(self, numbers: Index) -> pa.RecordBatch:
        """The rows with these numbers, in this order."""
        if not len(numbers) or not self.schema.names:
            return null_payload(0, self.schema)
        self._before_taking(len(numbers))
        if self._can_repeat and len(numbers) <= _FEW and bool((numbers == numbers[0]).all()):
            return repeat_row(self.look_at(numbers[:1]), len(numbers))
        blocks, order = self._split(numbers)
        parts = [take_rows(block.rows, block.places(own)) for block, own in blocks]
        if len(parts) == 1:
            return parts[0]
        gathered = pa.concat_batches(parts)
        in_order = bool((order[1:] > order[:-1]).all())
        return gathered if in_order else take_rows(gathered, order.argsort())

    def look_at(self, numbers: Index) -> pa.RecordBatch:
        """The same, to be looked at and forgotten: a single row is not copied, and so holds a whole block."""
        if len(numbers) != 1 or not self.schema.names:
            return self.take(numbers)
        block = self._blocks[int(self._firsts.searchsorted(numbers[0], "right")) - 1]
        return block.rows.slice(int(block.places(numbers)[0]), 1)

    def take_at(self, numbers: Index, at: Index) -> pa.RecordBatch:
        """The rows with the numbers at these places. The other numbers may be of rows that are not there."""
        if len(numbers) > len(at) or not self.schema.names:
            return self.take(numbers.take(at))
        self._before_taking(len(at))
        if len(self._blocks) != 1:
            return self.take(numbers.take(at))
        # Each row is taken several times: it is looked up once.
        block = self._blocks[0]
        return take_rows(block.rows, block.places(np.maximum(numbers, block.first)).take(at))

    def _before_taking(self, rows: int) -> None:
        if len(self._blocks) > 1 and _RATIO * rows >= self._size:
            self._unite(0, len(self._blocks))

    def _split(self, numbers: Index) -> tuple[list[tuple[_Block, Index]], Index]:
        """The numbers block by block (Arrow would copy all blocks into one), and the order that makes."""
        if len(self._blocks) == 1:
            return [(self._blocks[0], numbers)], np.arange(len(numbers))
        block = self._firsts.searchsorted(numbers, "right") - 1
        if bool((block == block[0]).all()):
            return [(self._blocks[int(block[0])], numbers)], np.arange(len(numbers))
        order = block.argsort(kind="stable")
        block, numbers = block[order], numbers[order]
        ends = [*((block[1:] != block[:-1]).nonzero()[0] + 1).tolist(), len(block)]
        starts = [0, *ends[:-1]]
        used = (self._blocks[i] for i in block[starts].tolist())
        return [(one, numbers[start:end]) for one, start, end in zip(used, starts, ends, strict=True)], order

    def drop(self, numbers: Index) -> None:
        """Let go of rows that are there, each named once; their numbers are not given again."""
        if not len(numbers):
            return
        touched = self._split(numbers)[0]
        for block, own in touched:
            block.drop(own)
        self._size -= len(numbers)
        if self._stored >= 0 and self._notes_gone:
            self._dropped.append(numbers[numbers < self._stored])
        budget = max(_LONGEST, _RATIO * len(numbers))
        for block, _ in touched:
            if not block.left or (2 * block.left < block.size and budget > 0):
                budget -= block.left
                self._write_anew(block)

    def _write_anew(self, block: _Block) -> None:
        """Without what is gone; together with neighbours that are no longer than what is left."""
        place = int(np.searchsorted(self._firsts, block.first, "right")) - 1
        if place < 0 or self._blocks[place] is not block:  # united with a neighbour just before
            return
        if not block.left:
            self._put(place, place + 1, [])
            return
        self._put(place, place + 1, [_make_block(*block.live_part())])
        near = [p for p in (place - 1, place + 1) if 0 <= p < len(self._blocks)]
        near = [p for p in near if self._blocks[p].left <= min(block.left, _LONGEST // _RATIO)]
        self._unite(min([place, *near]), max([place, *near]) + 1)

    def retain(self, numbers: Index) -> None:
        """Let go of all rows but these; looks at all rows."""
        own = self._rows_from(0)[0].to_numpy()
        self.drop(own[~np.isin(own, numbers)])

    def snapshot(self) -> pa.Table:
        """All rows, after their numbers."""
        return self._rows_from(0)

    def _rows_from(self, first: int) -> pa.Table:
        """The rows from a number on."""
        start = max(int(np.searchsorted(self._firsts, first, "right")) - 1, 0)
        parts = [block.live_part(first) for block in self._blocks[start:]]
        numbers = np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in parts)])
        batches = [rows for _, rows in parts if self.schema.names]
        rows = pa.Table.from_batches(batches, self.schema)
        return pa.table([pa.array(numbers), *rows.columns], names=[self.key[0], *self.schema.names])

    def restore(self, table: pa.Table | Change) -> None:
        """Become the store that `snapshot` gave, or take over changes."""
        rows: pa.Table = table.rows if isinstance(table, Change) else table
        if isinstance(table, Change) and not table.is_whole:
            self.drop(self.find_there(table.gone[0].to_numpy()))
        else:
            self.clear()
        fresh = rows.slice(int(np.searchsorted(rows[0].to_numpy(), self._next)))
        if len(fresh):
            self._append(fresh[0].to_numpy(), one_batch(fresh.drop_columns(self.key[0])))
        if isinstance(table, Change):
            self._next, self._base = (int(table.memo[name]) for name in ("next", "base"))
            self._stored, self._dropped = self._next, []

    def find_there(self, numbers: Index) -> Index:
        """Those of the numbers whose rows are there."""
        if self._blocks:
            numbers = numbers[numbers >= self._blocks[0].first]
        if not len(numbers) or not self._blocks:
            return numbers[:0]
        return np.concatenate([own[block.has(own)] for block, own in self._split(numbers)[0]])

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        first, self._stored, dropped = self._stored, self._next, self._dropped
        rows, self._dropped = self._rows_from(max(first, 0)), []
        if first < 0:
            self._base = version
        gone = np.sort(np.concatenate([np.zeros(0, np.int64), *dropped]))
        memo = {"next": self._next, "base": self._base}
        return Change(rows, pa.table({self.key[0]: gone}), first < 0, memo)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        numbers, is_valid = change.rows[0].to_numpy(), version >= self._base
        is_there = np.isin(numbers, self.find_there(numbers)) & is_valid
        return is_there, np.full(len(change.gone), is_valid)


def _make_block(numbers: Index, rows: pa.RecordBatch) -> _Block:
    first, size = int(numbers[0]), len(numbers)
    is_dense = int(numbers[-1]) - first + 1 == size
    return _Block(keep_batch(rows), first, size, None if is_dense else numbers, left=size)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table together."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else null_payload(0, table.schema)


def drop_unused_rows(store: RowStore, table: BlockTable | LeafTable, *columns: str) -> int:
    """Keep the rows that columns of a table name; how many there are. Looks at all of them."""
    rows = table.snapshot()
    used = unique_numbers(np.concatenate([rows[column].to_numpy() for column in columns]))
    store.retain(used)
    return len(used)


class PayloadStore(RowStore):
    """A store for big payloads, on which a merge spends its memory: each row is copied once.

    Long blocks are never united, only written anew when most of their rows are gone. Short blocks are united,
    or there would be too many.
    """

    def _count_kept(self, size: int) -> int:
        blocks, total = len(self._blocks), len(self) + size
        if blocks >= _MANY and total < _MANY * _SMALL:
            return 0
        return blocks - bool(blocks and self._blocks[-1].size + size <= _SMALL)

    def _before_taking(self, rows: int) -> None:
        """Unites nothing."""
