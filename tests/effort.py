"""How much of a costly test `make test` runs. `make soak` runs all of it.

A test with ``@pytest.mark.pairs`` has parameters in many combinations. `make test` runs enough of them that
every two values of two parameters meet in one; the others are for `make soak`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest


def mark_repeats(items: Sequence[Any]) -> None:
    """Mark for `make soak` what the tests with `pairs` need not run."""
    tests: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("pairs") is not None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        wanted = choose_pairs([case.callspec.params.items() for case in cases])
        for number, case in enumerate(cases):
            if number not in wanted:
                case.add_marker(pytest.mark.soak)


def choose_pairs(cases: Sequence[Iterable[tuple[str, Any]]]) -> set[int]:
    """The numbers of cases that have, together, every pair of values that occurs in any."""
    values = [sorted((name, repr(value)) for name, value in case) for case in cases]
    pairs = [set(combinations(case, min(2, len(case)))) for case in values]
    chosen, missing = set[int](), set[Any]().union(*pairs)
    while missing:
        best = max(range(len(pairs)), key=lambda number: len(pairs[number] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen
