"""The times that a query names itself, each with its kind: they must be of the kind of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from recension.core.time_kind import OneKind, TimeKind, kind_of
from recension.plan.node import Node, walk


def times_in(plans: Iterable[Node]) -> Iterator[tuple[str, int]]:
    """Where a time stands, and the time."""
    for node in (node for plan in plans for node in walk(plan)):
        yield from times_in(node.own_plans)
        yield from node.named_times


def require_one_kind(plan: Node, inputs: Mapping[str, TimeKind]) -> TimeKind:
    """The kind of all times of a run; an error that names the input or the time in the query that differs."""
    times = OneKind()
    for where, ticks in times_in([plan]):
        times.note_named(kind_of(ticks), where)
    for name, kind in inputs.items():
        times.note(kind, name)
    return times.kind
