"""The lineage of each kind of node: its denotation's, with the node's own expressions and columns.

Expressions are evaluated by the kernels that the engines run; what is asked of their values is in `denote`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import payload_of
from recension.core.calendar import DAY
from recension.core.errors import RecensionError
from recension.core.events import Event, Payload
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.values import rows_of, values_of
from recension.denote import aggregates as counting
from recension.denote.alter_lifetime import (
    Back,
    ClipLineage,
    Moment,
    alter_lifetime,
    anywhere,
    deletes,
    extend,
    extend_back,
    hop_lifetime,
    hop_lifetime_back,
    inserts,
    set_duration,
    set_duration_back,
    shift,
    shift_back,
    start_back,
    to_points,
)
from recension.denote.coalesce import CoalesceLineage, RunLineage
from recension.denote.edges import EdgesLineage
from recension.denote.extents import RangeLineage, RowsLineage
from recension.denote.grouped import EachGroup
from recension.denote.interval_join import MatchByStartLineage, PairByStartLineage, pair_lifetime
from recension.denote.intervals import plus
from recension.denote.join import CoverageJoinLineage, InnerJoinLineage, PairRule
from recension.denote.keyed import ChangesLineage, RecordLineage, RowMeaning
from recension.denote.lineage import Bases, Basis, EachEvent, EqualEvents, Lineage, Region, Seen, Words
from recension.denote.order import History, Key, key_of, value_order
from recension.denote.patterns import PatternLineage, PatternRule
from recension.denote.windowed import (
    CountLineage,
    GridLineage,
    GroupLineage,
    GroupOf,
    Relevant,
    SessionLineage,
    SnapshotLineage,
)
from recension.plan import aggregates as specs
from recension.plan import lifetimes, nodes
from recension.plan.aggregate import AggregateNode
from recension.plan.consistency import Consistency
from recension.plan.each_group import Port
from recension.plan.evaluation import Predicate, evaluate
from recension.plan.expressions import Expression, result_type
from recension.plan.extents import Range
from recension.plan.join import Join
from recension.plan.node import Node, Outputs, walk
from recension.plan.parts import OfAllParts, OfOnePart
from recension.plan.schemas import START
from recension.plan.span import SpanNode
from recension.plan.windows import CalendarWindows, CountWindows, SessionWindows, Windows

Counting: TypeAlias = Callable[[Event, History], History]

_LONGEST: Final = {"day": DAY, "week": 7 * DAY, "month": 31 * DAY}


@singledispatch
def lineage_of(node: Node) -> Lineage:
    """What the answers of a node rest on; a node that has no rule is refused."""
    raise RecensionError(f"why: nothing says what the answers of {node.label!r} rest on")


# Each event by itself.


@lineage_of.register
def _span(node: SpanNode) -> Lineage:
    kernel, schema = node.kernel(), node.input.schema

    def image(events: History) -> list[Event | None]:
        if not events:
            return []
        keep, payload = kernel(payload_of([e.payload for e in events], schema))
        rows = rows_of(payload) if payload.num_columns else None
        shown = np.arange(len(events)) if keep is None else np.flatnonzero(keep)
        made: list[Event | None] = [None] * len(events)
        for number, at in enumerate(shown.tolist()):
            made[at] = Event(rows[number] if rows else {}, events[at].vs, events[at].ve)
        return made

    return EachEvent(node.kept_columns(), image)


@lineage_of.register
def _timed_span(node: nodes.TimedSpan) -> Lineage:
    gate, rewrite, schema = node.gate(), node.rewrite(), node.input.schema

    def image(events: History) -> list[Event | None]:
        made: list[Event | None] = [None] * len(events)
        if not events:
            return made
        payload = payload_of([e.payload for e in events], schema)
        vs, ve = (np.array([getattr(e, end) for e in events], np.int64) for end in ("vs", "ve"))
        at = np.arange(len(events))
        if gate is not None:
            at = np.flatnonzero(gate(payload, vs))
            payload, vs, ve = payload.take(pa.array(at)), vs[at], ve[at]
        shown, payload, vs, ve = rewrite(payload, vs, ve)
        rows = rows_of(payload) if payload.num_columns else [{}] * len(vs)
        for place, row, start, end in zip(at[shown].tolist(), rows, vs.tolist(), ve.tolist(), strict=True):
            made[place] = Event(row, start, end)
        return made

    if not node.is_altering:
        return EachEvent(node.kept_columns(), image)
    keeps_start = node.start is None or node.start.column == START
    back = start_back() if keeps_start else anywhere()
    return EachEvent(node.kept_columns(), image, back)


@lineage_of.register
def _alter_lifetime(node: nodes.AlterLifetime) -> Lineage:
    alter, back = _lifetime(node.lifetime)

    def image(events: History) -> list[Event | None]:
        return [next(iter(alter([event])), None) for event in events]

    return EachEvent(node.kept_columns(), image, back)


def _lifetime(rule: lifetimes.Lifetime) -> tuple[Callable[[History], History], Back]:
    match rule:
        case lifetimes.Shift(delta):
            return lambda h: shift(h, delta), shift_back(delta)
        case lifetimes.SetDuration(duration):
            return lambda h: set_duration(h, duration), set_duration_back(duration)
        case lifetimes.ToPoints():
            return to_points, set_duration_back(1)
        case lifetimes.Extend(delta):
            return lambda h: extend(h, delta), extend_back(delta)
        case lifetimes.Hop(size, hop):
            return lambda h: hop_lifetime(h, size, hop), hop_lifetime_back(size, hop)
        case lifetimes.Inserts():
            return inserts, start_back()
        case lifetimes.Deletes():
            return deletes, start_back()
        case lifetimes.Custom(start, duration):
            return lambda h: alter_lifetime(h, *_custom(start, duration)), anywhere()
    raise RecensionError(f"why: nothing says where events were that {rule} has moved")


def _custom(start: Any, duration: Any) -> tuple[Moment, Moment]:
    def at(rule: Any, vs: int, ve: int) -> int:
        return int(rule(np.array([vs]), np.array([ve]))[0])

    def begin(vs: int, ve: int) -> int:
        return vs if start is None else at(start, vs, ve)

    def end(vs: int, ve: int) -> int:
        if duration is None:
            length = FOREVER if ve == FOREVER or vs == BEGINNING else ve - vs
        else:
            length = at(duration, vs, ve)
        return FOREVER if length == FOREVER else plus(begin(vs, ve), length)

    return begin, end


# Events as they are.


@lineage_of.register
def _consistency(node: Consistency) -> Lineage:
    """Of a clock no events are read."""
    lineage = EqualEvents([node.every_column()])
    return lineage if len(node.inputs) == 1 else _BesideClock(lineage)


class _BesideClock(Lineage):
    """The lineage of the first input; the second says only how far time has got."""

    is_whole = True

    def __init__(self, lineage: Lineage) -> None:
        super().__init__([*lineage.columns, {}])
        self._lineage = lineage

    def reach(self, region: Region) -> list[Region]:
        return [*self._lineage.reach(region), region.below({})]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        return [*self._lineage.presence(event, inputs[:1]), Basis()]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        return [*self._lineage.absence(region, inputs[:1], output), Basis()]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return self._lineage.sentence(event, bases[:1], words)


@lineage_of.register
def _progress(node: nodes.Progress) -> Lineage:
    """Nobody asks of it: whoever reads it wants to know how far time is."""
    return _AtAnyTime([{}])


@lineage_of.register(nodes.Union)
@lineage_of.register(nodes.Merge)
def _equal(node: Node) -> Lineage:
    return EqualEvents([node.every_column() for _ in node.inputs])


# Joins.


@lineage_of.register
def _join(node: Join) -> Lineage:
    rule = PairRule(
        node.on,
        node.suffix,
        node.left.schema.names,
        node.right.schema.names,
        _condition(node.where, node.pair_schema),
        node.null_matches,
    )
    if isinstance(node, nodes.IntervalJoin):
        return _by_start(node, replace(rule, lifetime=pair_lifetime(node.low, node.high)))
    return InnerJoinLineage(rule) if node.how == "inner" else CoverageJoinLineage(rule, node.how)


def _by_start(node: nodes.IntervalJoin, rule: PairRule) -> Lineage:
    if node.how == "inner":
        return PairByStartLineage(rule, node.low, node.high)
    within = node.within if isinstance(node, nodes.Unless) else None
    return MatchByStartLineage(rule, (node.low, node.high), node.how, within)


@lineage_of.register
def _pattern(node: nodes.Pattern) -> Lineage:
    rule = PatternRule(
        {name: part.schema.names for name, part in zip(node.names, node.parts, strict=True)},
        node.on,
        node.within,
        node.size,
        node.in_order,
        node.has_absent,
        _condition(node.where, node.schema),
        node.null_matches,
    )
    return PatternLineage(rule)


def _condition(where: Expression | None, schema: pa.Schema) -> Callable[[list[Payload]], list[Any]] | None:
    """A condition that is asked of many payloads at once."""
    if where is None:
        return None
    predicate = Predicate(where)
    return lambda payloads: list(predicate(payload_of(payloads, schema), len(payloads)))


@lineage_of.register
def _clip(node: nodes.Clip) -> Lineage:
    def match(one: Payload, other: Payload) -> bool:
        has_null = any(one[key] is None for key in node.on if key not in node.null_matches)
        return not has_null and key_of(one, node.on) == key_of(other, node.on)

    return ClipLineage([node.every_column(), {name: name for name in node.on}], match)


# Facts.


@lineage_of.register
def _distinct(node: nodes.Distinct) -> Lineage:
    return CoalesceLineage(node.schema.names)


@lineage_of.register
def _coalesce(node: nodes.Coalesce) -> Lineage:
    return CoalesceLineage(node.columns) if node.equivalence is None else RunLineage(node.group_by)


@lineage_of.register
def _edges(node: nodes.Edges) -> Lineage:
    return EdgesLineage(node.group_by)


@lineage_of.register(nodes.CoalesceExtent)
@lineage_of.register(nodes.CoalesceMany)
def _extent(node: Any) -> Lineage:
    if isinstance(node.window, Range):
        return RangeLineage(node.window.span, node.window.slide, list(node.kept_columns()))
    return RowsLineage(node.window.size, node.window.slide)


# Keyed sources.


@lineage_of.register
def _records(node: nodes.RestateByKey) -> Lineage:
    is_plain = node.policy == "raise" and node.forget is None
    return RecordLineage(RowMeaning(node.schema.names, node.key, node.version, node.deleted), is_plain)


@lineage_of.register
def _changes(node: nodes.ChangesByKey) -> Lineage:
    by_start = node.policy == "raise" and node.order == "start"
    return ChangesLineage(RowMeaning(node.schema.names, node.key, node.version, node.deleted), by_start)


# Windows.


@lineage_of.register
def _snapshot_aggregate(node: nodes.SnapshotAggregate) -> Lineage:
    return SnapshotLineage(*_grouped(node, _relevant(node)))


@lineage_of.register(nodes.WindowAggregate)
@lineage_of.register(nodes.CountAggregate)
@lineage_of.register(nodes.SessionAggregate)
def _window_aggregate(node: Any) -> Lineage:
    return _windowed(node.windows, _grouped(node, _relevant(node)))


@lineage_of.register
def _module_window(node: nodes.ModuleWindow) -> Lineage:
    """A module is opaque: all events of its window may matter."""
    of = _grouped(node, lambda event, members: members)
    if node.policies.stamp == "align":
        return SnapshotLineage(*of) if node.windows is None else _windowed(node.windows, of)
    if node.policies.stamp == "clip" and isinstance(node.windows, Windows):
        return _Clipped(*of, length=_length(node.windows))
    return _AtAnyTime([of[1]])


@lineage_of.register(OfOnePart)
@lineage_of.register(OfAllParts)
def _part(node: AggregateNode) -> Lineage:
    """Parts are made for Spark when a query has been understood; nobody asks of them."""
    return _AtAnyTime([{} for _ in node.inputs])


class _AtAnyTime(Lineage):
    """A step of which only the columns are known that keep events apart."""

    def reach(self, region: Region) -> list[Region]:
        return [there.for_ever() for there in super().reach(region)]


class _Clipped(GridLineage):
    """Rows that lie somewhere within their window."""

    presence = Lineage.presence


def _windowed(windows: Windows | CountWindows | SessionWindows, of: tuple[Any, ...]) -> GroupLineage:
    match windows:
        case CountWindows(n, by):
            return CountLineage(*of, n=n, by=by)
        case SessionWindows(gap):
            return SessionLineage(*of, gap=gap)
        case _:
            return GridLineage(*of, length=_length(windows))


def _length(windows: Windows) -> int:
    """No window is longer; a change of clocks may add hours."""
    if isinstance(windows, CalendarWindows):
        return windows.size * _LONGEST[windows.unit] + 2 * DAY
    return windows.size


def _grouped(node: Any, relevant: Relevant) -> tuple[list[str], Mapping[str, str], GroupOf, Relevant]:
    keys: Outputs = node.keys
    schema = node.input.schema
    values = [_values(computed, schema) for _, computed in keys]

    def group_of(events: History) -> list[Key]:
        found = [[value_order(v) for v in value(events)] for value in values]
        return list(zip(*found, strict=True)) if found else [()] * len(events)

    return [name for name, _ in keys], node.kept_columns(), group_of, relevant


def _values(computed: Expression, schema: pa.Schema) -> Callable[[History], list[Any]]:
    """What an expression says of each event."""
    if computed.column is not None:
        name = computed.column
        return lambda events: [event.payload[name] for event in events]
    kind = result_type(computed, schema, "why")

    def values(events: History) -> list[Any]:
        payload = payload_of([event.payload for event in events], schema)
        return values_of(evaluate([computed], [kind], payload, len(events))[0])

    return values


def _relevant(node: AggregateNode) -> Relevant:
    """The events on which one of the answers rests."""
    each = [_counting(aggregate, node.event_schema) for _, aggregate in node.aggregates]

    def relevant(event: Event, members: History) -> History:
        found = {id(one): one for counts in each for one in counts(event, members)} if members else {}
        return list(found.values())

    return relevant


def _counting(aggregate: specs.Aggregate, schema: pa.Schema) -> Counting:
    """Of an answer and the events of its window, those on which an aggregate rests."""
    value = None if aggregate.argument is None else _values(aggregate.argument, schema)
    if isinstance(aggregate, specs.ArgExtreme):
        value = _values(aggregate.by, schema)
    condition = getattr(aggregate, "where", None)
    holds = None if condition is None else _values(condition, schema)

    def counts(event: Event, members: History) -> History:
        counted = members
        if holds is not None:
            counted = [one for one, is_true in zip(members, holds(members), strict=True) if is_true]
        if not counted:
            return members
        values = [None] * len(counted) if value is None else value(counted)
        return _rule(aggregate, event)(counted, values)

    return counts


def _rule(aggregate: specs.Aggregate, event: Event) -> counting.Counting:
    match aggregate:
        case specs.Min():
            return counting.counting_extreme(min)
        case specs.Max():
            return counting.counting_extreme(max)
        case specs.AnyTrue():
            return counting.counting_truth(True)
        case specs.AllTrue():
            return counting.counting_truth(False)
        case specs.First():
            return counting.counting_end(0)
        case specs.Last():
            return counting.counting_end(-1)
        case specs.ArgMin():
            return counting.counting_first_extreme(min)
        case specs.ArgMax():
            return counting.counting_first_extreme(max)
        case specs.TopK():
            return counting.counting_top(event.payload["rank"], aggregate.descending)
        case specs.Count(argument=None) | specs.FilteredAggregate():
            return counting.counting_all
        case _:
            return counting.counting_known


# Group and apply.


@lineage_of.register
def _group_apply(node: nodes.GroupApply) -> Lineage:
    keys = {name: name for name in node.keys}
    columns = [keys if number < node.split else {} for number in range(len(node.streams))]
    return EachGroup(columns, lambda region: _reach_ports(node, region))


def _reach_ports(node: nodes.GroupApply, region: Region) -> dict[int, Region]:
    """Where the ports of a group's plan must be known, by their numbers."""
    known: dict[Node, Region] = {node.plan: Region(region.start, region.end)}
    for step in reversed(list(walk(node.plan))):
        if not isinstance(step, Port):
            for child, there in zip(step.inputs, lineage_of(step).reach(known[step]), strict=True):
                known[child] = there.hull(known.get(child))
    return {step.number: there for step, there in known.items() if isinstance(step, Port)}
