"""Temporal join: payloads of matching events joined, lifetimes intersected.

Source: [TR] Definition 4; rulings, C (anti join) and the guide (keys, suffix, semi, anti, left). Null
keys match nothing, as in SQL; NaN matches NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from recension.core.errors import SchemaError
from recension.core.events import Event, Payload
from recension.denote.intervals import Interval, common, merge_intervals, uncovered_parts
from recension.denote.order import Columns, History, key_of, names

How: TypeAlias = Literal["inner", "left", "full", "semi", "anti"]
Match: TypeAlias = tuple[Payload, Interval]


def join(
    left: History,
    right: History,
    on: Columns = (),
    where: Callable[[Payload], Any] | None = None,
    how: How = "inner",
    suffix: str = "_right",
    right_columns: Sequence[str] = (),
    left_columns: Sequence[str] = (),
) -> History:
    """Join on equal keys and a predicate over the joined payload.

    ``right_columns`` names the columns that a left join fills with nulls when ``right`` is empty, and
    ``left_columns`` those that a full one fills when ``left`` is.

    >>> print(*join([Event({"k": 1, "x": 2}, 0, 9)], [Event({"k": 1, "x": 3}, 4, 12)], on="k"))
    [4, 9) {'k': 1, 'x': 2, 'x_right': 3}
    """
    result: History = []
    for event in left:
        matches = _matches(event, right, names(on), where, suffix)
        covered = [lifetime for _, lifetime in matches]
        if how in ("inner", "left", "full"):
            result += [Event(payload, *lifetime) for payload, lifetime in matches]
        if how == "semi":
            result += [Event(event.payload, *part) for part in merge_intervals(covered)]
        if how in ("anti", "left", "full"):
            nulls = dict.fromkeys(right[0].payload if right else right_columns)
            payload = (
                event.payload if how == "anti" else join_payloads(event.payload, nulls, names(on), suffix)
            )
            result += [Event(payload, *part) for part in uncovered_parts((event.vs, event.ve), covered)]
    for other in right if how == "full" else ():
        found = [_matches(event, [other], names(on), where, suffix) for event in left]
        covered = [lifetime for matches in found for _, lifetime in matches]
        nulls = dict.fromkeys(left[0].payload if left else left_columns)
        keys = {key: other.payload[key] for key in names(on)}
        payload = join_payloads(nulls | keys, other.payload, names(on), suffix)
        result += [Event(payload, *part) for part in uncovered_parts((other.vs, other.ve), covered)]
    return result


def _matches(
    event: Event,
    right: History,
    keys: Sequence[str],
    where: Callable[[Payload], Any] | None,
    suffix: str,
) -> list[Match]:
    """The joined payload and the common lifetime for every right event that matches and overlaps."""
    matches = []
    for other in right:
        lifetime = common((event.vs, event.ve), (other.vs, other.ve))
        if lifetime and keys_match(event.payload, other.payload, keys):
            payload = join_payloads(event.payload, other.payload, keys, suffix)
            if where is None or where(payload):
                matches.append((payload, lifetime))
    return matches


def join_payloads(left: Payload, right: Payload, keys: Sequence[str], suffix: str) -> Payload:
    """The left columns, then the right ones but the keys; right names that clash get the suffix."""
    payload = dict(left)
    for name, value in right.items():
        if name not in keys:
            unique = name + suffix if name in left else name
            if unique in payload:
                raise SchemaError(f"the join has two columns {unique!r}; choose another suffix")
            payload[unique] = value
    return payload


def keys_match(left: Payload, right: Payload, keys: Columns) -> bool:
    """Are all keys equal and none null?"""
    has_null = any(left[key] is None for key in names(keys))
    return not has_null and key_of(left, keys) == key_of(right, keys)
