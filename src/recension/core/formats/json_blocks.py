"""JSON Lines in blocks of whole lines, looked at before any parser sees them.

Arrow's parser takes time with the square of the depth of an object and overruns the stack in the end; and it
makes a cell for every name of a block in every row of it. Both are bounded here, in time linear in the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index
from recension.core.errors import FormatError

DEEPEST: Final = 100
MOST_CELLS: Final = 1 << 25
_OPEN, _CLOSE, _QUOTE, _BACKSLASH = (ord(letter) for letter in '{}"\\')

_IS_SPACE: Final = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))
# What a bracket does to the depth.
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, so many of which hold something.

    In a block ``is_objects`` every line has an object's first and last bracket, and what it opens it closes.
    """

    text: bytes
    file: str
    first_row: int
    size: int
    is_objects: bool

    @staticmethod
    def of(text: bytes, file: str, first_row: int) -> Block:
        """A block, or an error if one of its objects is nested too deep."""
        raw = np.frombuffer(text, np.uint8)
        lines = _Lines(raw)
        opened, closed = (np.count_nonzero(raw == bracket) for bracket in (_OPEN, _CLOSE))
        is_flat = opened == closed == len(lines.starts) and b"[" not in text
        # A line with one bracket of each kind, at its ends, needs no closer look.
        is_objects = lines.are_braced() and (is_flat or lines.are_balanced())
        if not (is_objects and is_flat) and (row := lines.first_deep()) is not None:
            reason = f"nested more than {DEEPEST} levels deep"
            raise FormatError(reason, file=file, row=first_row + row)
        return Block(text, file, first_row, len(lines.starts), is_objects)

    def lines(self) -> list[bytes]:
        """The lines that hold something."""
        return [line for line in self.text.split(b"\n") if line.strip()]

    def parts(self, columns: int | None = None) -> Iterator[Block]:
        """The block in parts with a bounded number of cells; unless told, every colon may make a column."""
        names = self.text.count(b":") if columns is None else columns
        # Half of the lines with half of the names have a quarter of the cells.
        number = 1 + math.isqrt(2 * names * self.size // MOST_CELLS)
        texts = _cut(self.text, number) if names * self.size > MOST_CELLS else []
        if len(texts) < 2:
            yield self
            return
        first_row = self.first_row
        for text in texts:
            part = Block.of(text, self.file, first_row)
            first_row += part.size
            yield from part.parts(columns) if part.size else ()


def _cut(text: bytes, parts: int) -> list[bytes]:
    """About so many parts of about one length, cut where lines end."""
    targets = range(len(text) // parts, len(text), max(1, len(text) // parts))
    cuts = dict.fromkeys(text.find(b"\n", target) + 1 or len(text) for target in targets)
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if a < b]


class _Lines:
    """The lines of a text that hold something: where they start and stop, white space aside at the start."""

    def __init__(self, raw: npt.NDArray[np.uint8]) -> None:
        self._raw = raw
        breaks = np.flatnonzero(raw == ord("\n"))
        starts, ends = np.append(0, breaks + 1), np.append(breaks, len(raw))
        if starts[-1] == len(raw):
            starts, ends = starts[:-1], ends[:-1]
        # Only a line that begins with white space can be blank, and few do.
        doubtful = np.flatnonzero(raw[starts] <= ord(" "))
        if len(doubtful):
            letters = np.append(np.flatnonzero(~_IS_SPACE[raw]), len(raw))
            starts[doubtful] = letters[np.searchsorted(letters, starts[doubtful])]
        kept = starts < ends
        self.starts, self.ends = starts[kept], ends[kept]

    def are_braced(self) -> bool:
        """Does every line begin with { and end with }?"""
        raw, last = self._raw, self.ends - 1
        if not bool((raw[self.starts] == _OPEN).all()):
            return False
        trailing = np.flatnonzero(raw[last] != _CLOSE)
        if len(trailing):
            letters = np.flatnonzero(~_IS_SPACE[raw])
            last[trailing] = letters[np.searchsorted(letters, self.ends[trailing]) - 1]
        return bool((raw[last] == _CLOSE).all())

    def are_balanced(self) -> bool:
        """Does every line close what it opens, texts aside?"""
        depth, at, quotes = self._depths
        return bool((quotes % 2 == 0).all() and (depth[at[:, 1]] == depth[at[:, 0]]).all())

    def first_deep(self) -> int | None:
        """The first line that is nested too deep."""
        depth, at, _ = self._depths
        if int(depth.max()) - int(depth.min()) <= DEEPEST:
            return None
        for line, (first, last) in enumerate(at.tolist()):
            if last - first > DEEPEST and int(depth[first : last + 1].max()) - int(depth[first]) > DEEPEST:
                return line
        return None

    @cached_property
    def _depths(self) -> tuple[Index, npt.NDArray[Any], Index]:
        """The depth after each bracket, where in that each line begins and ends, and quotes a line."""
        quotes = self._quotes()
        at = np.searchsorted(quotes, np.stack([self.starts, self.ends], axis=1))
        brackets = np.flatnonzero(_STEP[self._raw])
        before = np.searchsorted(quotes, brackets)
        line = np.maximum(np.searchsorted(self.starts, brackets, side="right") - 1, 0)
        outside = brackets[(before - at[line, 0]) % 2 == 0] if len(at) else brackets
        depth = np.append(0, np.cumsum(_STEP[self._raw[outside]], dtype=np.int64))
        return (
            depth,
            np.searchsorted(outside, np.stack([self.starts, self.ends], axis=1)),
            at[:, 1] - at[:, 0],
        )

    def _quotes(self) -> Index:
        """The quotes that no backslash takes for a letter: those after an even number of backslashes."""
        quotes = np.flatnonzero(self._raw == _QUOTE)
        slashes = np.flatnonzero(self._raw == _BACKSLASH)
        if not len(slashes):
            return quotes
        first = np.flatnonzero(np.append(True, np.diff(slashes) > 1))
        runs, lengths = slashes[first], np.diff(np.append(first, len(slashes)))
        escaped = (runs + lengths)[lengths % 2 == 1]
        return quotes[~np.isin(quotes, escaped)]
