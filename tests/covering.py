"""A few cases that stand for many, for runners that take their time over each: `make soak` has them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from recension.testing.transcripts import Transcript

Case = TypeVar("Case")


def covering(cases: Sequence[Case], traits: Callable[[Case], set[str]]) -> list[Case]:
    """As few as have every trait that any has: the next is always one with most of those still missing."""
    known = [(case, traits(case)) for case in cases]
    missing = {trait for _, own in known for trait in own}
    found: list[Case] = []
    while missing:
        case, own = max(known, key=lambda pair: len(pair[1] & missing))
        found.append(case)
        missing -= own
    return found


def one_of_every_method(transcripts: Sequence[Transcript]) -> list[Transcript]:
    """As few as call every method that any calls."""
    return covering(transcripts, lambda one: set(re.findall(r"\.(\w+)\(", str(one.query))))
