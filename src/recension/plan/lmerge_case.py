"""Which LMerge algorithm the inputs of a merge allow, from what is known of them before they run.

Source      LMerge technical report, §III-C (the cases) and §IV-G (choosing one); rulings B15 and 31.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from recension.plan.properties import Properties, meet

Case: TypeAlias = Literal["R0", "R1", "R2", "R3", "R3-", "R4"]


class CaseChoice(NamedTuple):
    """A case and why it is the one."""

    case: Case
    reason: str


def lmerge_case(*inputs: Properties, ties_alike: bool = True) -> CaseChoice:
    """The most restricted case that all inputs are known to satisfy.

    ``ties_alike`` says that where each puts events of equal start into a fixed order, it is the same for all.

    >>> lmerge_case(Properties(has_key=True), Properties(is_strictly_increasing=True)).case
    'R3'
    """
    known = meet(*inputs)
    if known.is_strictly_increasing:
        return CaseChoice("R0", "insert-only, starts strictly increasing")
    if known.is_perfect and known.has_deterministic_ties and ties_alike:
        return CaseChoice("R1", "insert-only, ordered, events of equal start in a fixed order")
    if known.is_perfect and known.has_key:
        return CaseChoice("R2", "insert-only, ordered, (vs, payload) is a key")
    if known.has_key:
        return CaseChoice("R3", f"(vs, payload) is a key, but {_lacking(known)}")
    return CaseChoice("R4", "(vs, payload) may not be a key")


def _lacking(known: Properties) -> str:
    missing = [] if known.is_insert_only else ["there may be retractions"]
    return " and ".join(missing + ([] if known.is_ordered else ["order is not assured"]))
