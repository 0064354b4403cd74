"""What a plan says about time that is hardly what its author meant, each in one line.

A row lives as long as its source says (docs/guide/data.md, "How long does a row live?"). From that follows
which steps can only be empty, or go on for ever. Nothing here is an error: rows of one tick do meet, if they
are at the very same tick.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.plan.aggregate import GroupedNode
from recension.plan.consistency import Consistency
from recension.plan.each_group import GroupApply
from recension.plan.interval_join import IntervalJoin
from recension.plan.join import Join
from recension.plan.keyed import ByKey, ChangesByKey
from recension.plan.lifetime import AlterLifetime
from recension.plan.lifetimes import Deletes, Inserts, Shift
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node, each_once, rebuild
from recension.plan.source import Source, Table
from recension.plan.span import Distinct, SpanNode, Union
from recension.plan.windows import SessionAggregate, SessionWindows, WindowAggregate, Windows


def describe_lifetimes(node: Node) -> str | None:
    """How long the rows of a source live; None for other steps and for rows of a step above."""
    match node:
        case ChangesByKey():
            return "a row lives until the next row of its key; the last one for ever"
        case ByKey(input=Source() as source):
            return f"{_describe_rows(source)}; the next row of a key replaces it"
        case Table(refresh=None):
            return "rows live for ever, from the beginning of time on"
        case Table():
            return "rows live until a later version of the table lacks them"
        case Source(are_rows=False):
            return _describe_rows(node)
    return None


def _describe_rows(source: Source) -> str:
    if source.start is None:
        return "rows live from _vs to _ve; without _ve, for ever"
    if source.end is None:
        return "rows are instants: one tick; end=, .set_duration() or .inserts() give them length"
    return f"rows live from {source.start} to {source.end}; where {source.end} is null, for ever"


def find_warnings(
    plans: Sequence[Node], instants: Collection[str] | None = None, endless: Collection[str] = ()
) -> list[str]:
    """What to tell the author of some queries.

    ``instants`` are the sources whose rows last one tick; without it those that have a start and no end.
    The rows of ``endless`` sources never end.
    """
    found = [text for node in each_once(plans) for text in _warnings_of_keys(node)]
    for node in each_once(_with_instants(plans, instants)):
        is_by_overlap = isinstance(node, Join) and not isinstance(node, IntervalJoin)
        if is_by_overlap and all(side.properties.is_point for side in node.inputs):
            found.append(
                f"{node.label}: both sides are instants, which meet only at the very same tick; give one of "
                "them a length, with end= or .set_duration(...), or put both into windows first"
            )
        if (effect := _describe_endless(node)) is not None and _never_ends(node.inputs[0], endless):
            found.append(f"{node.label}: rows that never end {effect}")
    return list(dict.fromkeys(found))


def _with_instants(plans: Sequence[Node], instants: Collection[str] | None) -> list[Node]:
    """The same queries over sources that say what their rows are: properties then say where instants go."""

    def step(node: Node) -> Node:
        if not isinstance(node, Source) or node.start is None or node.end is not None or node.are_rows:
            return node
        is_meant = instants is None or node.name in instants
        if not is_meant or node.declared.constant_duration is not None:
            return node
        return replace(node, declared=replace(node.declared, is_point=True))

    try:
        return rebuild(plans, step)
    except RecensionError:  # a step that these properties do not suit: its author meant something else
        return list(plans)


def _describe_endless(node: Node) -> str | None:
    """What becomes of rows that never end in windows without a last one."""
    windows = node.windows if isinstance(node, WindowAggregate | SessionAggregate | ModuleWindow) else None
    if isinstance(windows, Windows) and windows.until is None:
        return (
            "are in every window from their start on; name a last start with until=, or give the rows an end"
        )
    if isinstance(windows, SessionWindows):
        return "are in a session that is never over; give them an end, or put .to_points() before .sessions"
    return None


def _never_ends(node: Node, endless: Collection[str]) -> bool:
    """Do all rows here live for ever?"""
    match node:
        case Source():
            return node.name in endless
        case AlterLifetime(lifetime=Inserts() | Deletes()):
            return True
        case AlterLifetime(lifetime=Shift()) | SpanNode() | Distinct() | Union() | Consistency():
            return bool(node.event_inputs) and all(_never_ends(one, endless) for one in node.event_inputs)
    return False


def _warnings_of_keys(node: Node) -> Iterator[str]:
    """Keys of which nearly every row has its own.

    A day is no moment: many rows start on it. And what is known, or joined, by a moment and something else
    may well be meant: the reading of a sensor at a time.
    """
    found = [_find_origin(below, key) for below, key in _keys_of(node)]
    times = [(source, name) for source, name in found if source is not None and _is_moment(source, name)]
    needs_all = isinstance(node, Join) or (isinstance(node, ByKey) and not isinstance(node, ChangesByKey))
    if not needs_all or len(times) == len(found):
        for source, name in times:
            yield (
                f"{node.label}: the key {name} is the {'start' if name == source.start else 'end'} column of "
                f"source {source.name}, so nearly every row has a key of its own; times are no keys: leave "
                "it out, or use windows"
            )


def _is_moment(source: Source, name: str) -> bool:
    """Is it a column of times, finer than days?"""
    return name in (source.start, source.end) and not pa.types.is_date(source.columns.field(name).type)


def _keys_of(node: Node) -> list[tuple[Node, str]]:
    """The columns that are keys of a step, each with the stream that has it."""
    match node:
        case ByKey():
            return [(node.input, key) for key in node.key]
        case GroupedNode():
            return [(node.input, key.column) for _, key in node.keys if key.column]
        case GroupApply():
            return [(node.streams[0], key) for key in node.keys]
        case Join():
            return [(node.left, key) for key in node.on]
    return []


def _find_origin(node: Node, name: str) -> tuple[Source | None, str]:
    """The source that a column comes from unchanged, and its name there."""
    while not isinstance(node, Source):
        kept = node.kept_columns()
        if name not in kept or not node.inputs:
            return None, name
        node, name = node.inputs[0], kept[name]
    return node, name
