"""Coalescing: equal facts that overlap or meet become one fact with a maximal lifetime.

Source: temporal coalescing §3 and Appendix B; coalescing ruling 23; the guide (as a set). For readings,
make lifetimes with ``edges`` first; for a window extent see ``extents``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from recension.core.events import Event, Payload
from recension.denote.edges import readings_by_group
from recension.denote.grouped import groups, with_keys
from recension.denote.intervals import merge_intervals
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words
from recension.denote.order import Columns, History, names

Equivalence: TypeAlias = Callable[[Payload, Payload], Any]


def coalesce(
    history: History,
    on: Columns,
    group_by: Columns = (),
    equivalence: Equivalence | None = None,
) -> History:
    """The group and ``on`` columns with maximal lifetimes.

    An ``equivalence`` compares the ``on`` columns of an event with those of the one before it in its
    group, as "increasing" or "bounded" do; it need not be transitive. A run of such neighbours, none starting
    after the run so far has ended, becomes one event that shows the run's first values. Two events of a group
    that start together are refused: which comes before the other would depend on ends that may still move.

    >>> x = {"v": "x"}
    >>> print(*coalesce([Event(x, 1, 3), Event(x, 3, 5), Event(x, 2, 4)], on="v"))
    [1, 5) {'v': 'x'}
    """
    if equivalence is None:
        return _coalesce_equal(history, [*names(group_by), *names(on)])
    result = []
    for group in readings_by_group(history, group_by):
        for run in _runs(group, on, equivalence):
            payload = with_keys(run[0].payload, pick_columns(run[0].payload, on), group_by)
            result.append(Event(payload, run[0].vs, max(event.ve for event in run)))
    return result


def _coalesce_equal(history: History, columns: Sequence[str]) -> History:
    return [
        Event(pick_columns(equal[0].payload, columns), start, end)
        for equal in groups(history, columns)
        for start, end in merge_intervals((event.vs, event.ve) for event in equal)
    ]


def _runs(events: History, on: Columns, equivalence: Equivalence) -> list[History]:
    runs: list[History] = []
    for event in events:
        if (
            runs
            and event.vs <= max(member.ve for member in runs[-1])
            and equivalence(pick_columns(runs[-1][-1].payload, on), pick_columns(event.payload, on))
        ):
            runs[-1].append(event)
        else:
            runs.append([event])
    return runs


def pick_columns(payload: Payload, columns: Columns) -> Payload:
    """These columns only."""
    return {column: payload[column] for column in names(columns)}


def distinct(history: History) -> History:
    """Equal payloads that overlap or meet become one event.

    >>> from recension.core.events import Event
    >>> print(*distinct([Event({"x": 1}, 0, 5), Event({"x": 1}, 3, 9), Event({"x": 1}, 3, 9)]))
    [0, 9) {'x': 1}
    """
    return coalesce(history, on=list(history[0].payload)) if history else []


class CoalesceLineage(Lineage):
    """What a maximal lifetime rests on: all events of which it is made, and that none goes on from there."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__([{name: name for name in columns}])

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        events = bases[0].kept
        return f"{words.count(0, events)} that overlap or meet, as one: {words.names(events)}"


class RunLineage(Lineage):
    """What a run of equivalent neighbours rests on: all events of its group without a gap in time.

    Which run an event extends depends on the events before it, back to a time at which there was none.
    """

    def __init__(self, group_by: Columns) -> None:
        super().__init__([{name: name for name in names(group_by)}])

    def reach(self, region: Region) -> list[Region]:
        return [super().reach(region)[0].for_ever()]

    def everything(self, region: Region, inputs: Sequence[Seen]) -> Bases:
        there = super().reach(region)[0]
        found = inputs[0].touching(there.for_ever())
        while (wider := there.around([event for event in found if there.touches(event)])) != there:
            there = wider
        return [Basis([event for event in found if there.touches(event)], [there])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return f"a run among {words.count(0, bases[0].kept)}: {words.names(bases[0].kept)}"
