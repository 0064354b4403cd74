"""What was chosen for each step of a query, in the words that explain shows."""

from __future__ import annotations

from functools import singledispatch

from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER
from recension.core.wall_clock import Length, WallClock
from recension.lowering import schemes
from recension.lowering.windowed import aggregate_spec, shares_panes, view_of, waits_for
from recension.modules.module import Module
from recension.operators.windowed.accumulators import Accumulator
from recension.plan import lifetimes, nodes
from recension.plan.aggregate import AggregateNode
from recension.plan.node import Node
from recension.plan.parts import PartialSums
from recension.plan.source import Leaf
from recension.plan.span import SpanNode


@singledispatch
def describe_choice(node: Node) -> str | None:
    """In words, what was chosen for a node and why; None where there was nothing to choose."""
    raise RecensionError(f"explain cannot say how {node.label!r} is done")


@describe_choice.register(Leaf)
@describe_choice.register(SpanNode)
@describe_choice.register(nodes.Union)
@describe_choice.register(nodes.Distinct)
@describe_choice.register(nodes.Edges)
@describe_choice.register(nodes.ByKey)
@describe_choice.register(nodes.Clip)
@describe_choice.register(nodes.Cleanse)
@describe_choice.register(nodes.Progress)
@describe_choice.register(nodes.AdvanceTime)
@describe_choice.register(nodes.AdvanceTimeByClock)
@describe_choice.register(nodes.AlignByClock)
@describe_choice.register(nodes.ImportTime)
def _no_choice(node: Node) -> None:
    return None


@describe_choice.register
def _aggregate(node: nodes.SnapshotAggregate) -> str:
    return _describe_measures(node, _VARIANTS[node.speculate])


@describe_choice.register
def _window_aggregate(node: nodes.WindowAggregate) -> str:
    return _describe_measures(node, _WINDOW_VARIANTS[node.speculate])


@describe_choice.register
def _count_aggregate(node: nodes.CountAggregate) -> str:
    return _describe_measures(node, _COUNT_VARIANTS[node.speculate])


@describe_choice.register
def _session_aggregate(node: nodes.SessionAggregate) -> str:
    return _describe_measures(node, _SESSION_VARIANTS[node.speculate])


@describe_choice.register
def _partial_sums(node: PartialSums) -> str:
    return "gives what each batch changes in the sums; it keeps nothing"


@describe_choice.register
def _module_window(node: nodes.ModuleWindow) -> str:
    return _describe_modules(node)


@describe_choice.register
def _join(node: nodes.Join) -> str:
    if node.how == "inner":
        return "symmetric join by key and overlap; the other side's cti frees the state it has passed"
    return f"{node.how} join by coverage: the parts of each left lifetime are kept and corrected"


@describe_choice.register
def _interval_join(node: nodes.IntervalJoin) -> str:
    if node.how == "inner":
        return "symmetric join by key and start; the other side's cti frees the starts it has passed"
    return "ctis wait for the first start whose range is not past; matched and unmatched events stand apart"


@describe_choice.register
def _pattern(node: nodes.Pattern) -> str:
    limit = (
        "" if node.most is None else f"; at most {node.most} answers an event, else {_LIMITS[node.on_limit]}"
    )
    return f"events are kept, not parts of answers: a change looks for the answers that it is in{limit}"


@describe_choice.register
def _coalesce(node: nodes.Coalesce) -> str:
    return "equal facts by their end points" if node.equivalence is None else "neighbours, linked into runs"


@describe_choice.register(nodes.CoalesceExtent)
@describe_choice.register(nodes.CoalesceMany)
def _extents(node: nodes.CoalesceExtent | nodes.CoalesceMany) -> str:
    return schemes.describe_scheme(node)


@describe_choice.register
def _align(node: nodes.Align) -> str:
    return _describe_block(node.block)


@describe_choice.register(nodes.Due)
@describe_choice.register(nodes.DueBy)
def _due(node: Node) -> str:
    return "holds what is not due by its start; what is refuted before is never shown"


@describe_choice.register
def _finalize(node: nodes.Finalize) -> str:
    return f"ctis where the past is proven complete{_describe_memory(node.remember)}"


@describe_choice.register
def _group_apply(node: nodes.GroupApply) -> str:
    return "runs group by group, a pipeline for each: its steps have no form for all groups at once"


@describe_choice.register
def _merge(node: nodes.Merge) -> str:
    return "{}: {}".format(*node.choose_case())


@describe_choice.register
def _alter_lifetime(node: nodes.AlterLifetime) -> str | None:
    if isinstance(node.lifetime, lifetimes.Custom):
        return "ctis wait for the end of time: what a function does to ends cannot be foreseen"
    return None


@describe_choice.register
def _timed_span(node: nodes.TimedSpan) -> str | None:
    if node.holds_ctis:
        return (
            "ctis wait for the starts of events whose ends are not final: an end that moves revises its "
            "event from the start on"
        )
    return "ctis pass as the new lifetimes allow; it keeps nothing" if node.is_altering else None


def _describe_block(block: Length) -> str:
    if isinstance(block, WallClock):
        return "shows an event once the block has passed on the wall clock, or a cti its changes"
    return _BLOCKS.get(block, "shows an event once the block has passed its start, or a cti its changes")


def _describe_memory(remember: Length) -> str:
    if remember == FOREVER:
        return ""
    if isinstance(remember, WallClock):
        return ", or where the stream was so long ago on the wall clock: what is later is dropped"
    return f", or {remember} behind: what is later is dropped"


def _describe_measures(node: AggregateNode, variant: str) -> str:
    measures = [
        (name, made.measure)
        for (name, _), made in zip(node.aggregates, aggregate_spec(node).aggregations, strict=True)
    ]
    sums = [name for name, measure in measures if isinstance(measure, Accumulator)]
    others = [name for name, measure in measures if name not in sums]
    parts = [variant]
    if sums:
        parts.append(f"{', '.join(sums)} by differences")
    if others:
        parts.append(f"{', '.join(others)} from the live events")
    if node.breaks_ties:
        parts.append("ctis wait until ties between live events are settled")
    return "; ".join(parts)


def _describe_modules(node: nodes.ModuleWindow) -> str:
    parts = [_VIEWS[view_of(node)], _describe_ctis(node)]
    parts.append("old output computed again" if node.policies.recompute else "old output kept")
    for call in node.calls:
        module = call.module
        how = "by states" if module.is_incremental else "from the events of each window"
        if shares_panes(node, module):
            how = "by states, panes shared by overlapping windows"
        parts.append(f"{module.name} {how}{_describe_hints(module)}")
    return "; ".join(parts)


def _describe_ctis(node: nodes.ModuleWindow) -> str:
    match node.policies.stamp:
        case "time_bound":
            return "all ctis pass"
        case "unrestricted":
            return "no cti but the last"
    ends = ", and until ends that are seen are final" if waits_for(node) else ""
    ends += ", and until ties are settled" if node.breaks_ties else ""
    return f"ctis wait for the first window that can still change{ends}"


def _describe_hints(module: Module) -> str:
    """What its author says of it, and what comes of that."""
    hints = [
        *(["members in any order"] if not module.is_order_sensitive else []),
        *([f"ignores {', '.join(module.ignores)}"] if module.ignores else []),
        *(
            [f"filters on {', '.join(module.partitioned_by)} {_describe_filters(module)}"]
            if module.partitioned_by
            else []
        ),
        *(["rows are never taken back from windows of a grid"] if module.is_monotone else []),
    ]
    return f" ({'; '.join(hints)})" if hints else ""


def _describe_filters(module: Module) -> str:
    return "move below" if module.is_empty_preserving else "stay above, for it has rows for what is not there"


_LIMITS = {"raise": "an error", "drop": "the event is dropped"}
_VIEWS = {
    "ended": "shows a window once it has ended",
    "begun": "shows a window once it has begun, corrects it by moving ends",
    "all": "shows every window at once",
}
_VARIANTS = {
    "perfect": "perfect: shows what has ended, holds its cti at the open snapshot",
    "ordered": "ordered: shows the present as endless, corrects it by moving ends",
    "eager": "eager: shows everything at once, corrects it by moving ends",
}
_BLOCKS = {
    0: "passes everything at once",
    FOREVER: "shows what a cti has passed, in order",
}
_WINDOW_VARIANTS = {
    "perfect": "perfect: shows a window once it has ended, panes shared by overlapping windows",
    "ordered": "ordered: shows a window once it has ended, panes shared by overlapping windows",
    "eager": "eager: shows every window at once, panes shared by overlapping windows",
}
_COUNT_VARIANTS = {
    "perfect": "perfect: shows a window once it has ended, holds its cti at the first that can still fill",
    "ordered": "ordered: shows a window once it has ended, holds its cti at the first that can still fill",
    "eager": "eager: shows every window at once, holds its cti at the first that can still fill",
}
_SESSION_VARIANTS = {
    "perfect": "perfect: shows a session once its gap has passed, holds its cti at the first that is open",
    "ordered": "ordered: shows a session once its gap has passed, holds its cti at the first that is open",
    "eager": "eager: shows every session at once, holds its cti at the first that is open",
}
