"""When files of a history table are rewritten: merged with others of their size, or once half is settled.

A row takes part in one merge per size class, so it is rewritten O(log n) times, and no step rewrites more
than a few full files: the cost of a micro-batch does not grow with the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar

from recension.core.formats.manifest import DataFile

FULL = 1 << 20
SMALLEST = 1 << 12
FAN_IN = 8


class Sized(Protocol):
    """Something with rows."""

    @property
    def rows(self) -> int:
        """How many."""


S = TypeVar("S", bound=Sized)


def mergeable(files: Sequence[S]) -> list[S]:
    """Files of about one size that are worth merging now; none if there are too few."""
    classes: defaultdict[int, list[S]] = defaultdict(list)
    for file in files:
        if file.rows < FULL:
            members = classes[_size_class(file.rows)]
            members.append(file)
            if len(members) == FAN_IN or (len(members) > 1 and sum(f.rows for f in members) >= FULL):
                return members
    return []


def _size_class(rows: int) -> int:
    size, limit = 0, SMALLEST
    while rows >= limit:
        size, limit = size + 1, limit * FAN_IN
    return size


def is_worn(file: DataFile, cti: int) -> bool:
    """Is it worth rewriting a file that is too large to merge? Then at least half of it will be settled."""
    if file.rows < FULL:
        return False
    if file.is_final(cti):
        return file.deleted > 0
    return 2 * file.deleted >= file.rows or file.half_end < cti


def to_rewrite(files: Sequence[DataFile], cti: int) -> list[list[DataFile]]:
    """What to rewrite in one step: a group of live files, one of final files, or else a worn one."""
    tiers = [[f for f in files if f.is_final(cti) == final] for final in (False, True)]
    groups = [group for tier in tiers if (group := mergeable(tier))]
    worn = [[file] for file in files if is_worn(file, cti)]
    return groups or worn[:1]
