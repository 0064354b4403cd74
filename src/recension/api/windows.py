"""Windows: the time axis cut into intervals, with one answer for each that holds an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar

from recension.api.base import StreamBase
from recension.core.calendar import DAY, WHOLE, CalendarLength, ZoneLike, calendar_length, zone_name
from recension.core.errors import SchemaError, TimeError
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.modules.contracts import ArrayFunction
from recension.modules.module import Clipping, Module, Stamping
from recension.modules.registry import module_named
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.answers import VERB, AggregateColumns, require_answer
from recension.plan.expressions import Expr, column
from recension.plan.expressions.tree import AggregateCall, Tree
from recension.plan.module_window import ModuleCall, ModuleWindow, Policies, WindowKind, call_of
from recension.plan.node import Node, Outputs, Speculate, columns_named
from recension.plan.span import Project
from recension.plan.tables import refuse_table
from recension.plan.timed_span import reads_times
from recension.plan.timed_steps import name_timed
from recension.plan.windows import (
    CalendarUnit,
    CalendarWindows,
    CountAggregate,
    CountWindows,
    SessionAggregate,
    SessionWindows,
    WindowAggregate,
    Windows,
)

S = TypeVar("S", bound=StreamBase)
Answer: TypeAlias = Expr | Module | type[Module] | str
"""What is computed from aggregates of the library; or a user-defined one: itself, its class, or its name."""


class WindowedStream(Generic[S]):
    """A stream with windows.

    An event belongs to every window that it overlaps, to a count window if its start (end) is in it, and to
    one session.
    """

    __slots__ = ("_keys", "_policies", "_stream", "_windows")

    def __init__(
        self, stream: S, keys: Outputs, windows: WindowKind, policies: Policies | None = None
    ) -> None:
        if windows is not None:
            refuse_table(stream.plan, "windows")
        self._stream, self._keys, self._windows = stream, keys, windows
        self._policies = policies or Policies()

    def agg(
        self,
        *rows: Expr,
        speculate: Speculate = "perfect",
        recompute: bool = False,
        **named: Answer,
    ) -> S:
        """One row for every window that has an event; the row lives as long as the window.

        Aggregates are the library's or user-defined modules, which may be called by class or by name.
        ``perfect`` and ``ordered`` show a window once it has ended, ``eager`` at once, revising it later.
        The output of modules is kept, to be retracted later; with ``recompute`` it is computed again instead.
        An answer may be computed from several aggregates of the library, and from keys.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> sums = s.tumbling(5).agg(total=rc.sum("x"))
        >>> rc.run(sums, {"s": [rc.Insert({"x": 1}, 1, 2), rc.Insert({"x": 2}, 3, 8)]}, close=True).show()
        _vs  _ve  total
        0    5    3
        5    10   2
        """
        policies = replace(self._policies, speculate=speculate, recompute=recompute)
        plan = self._stream.plan
        return self._stream._then(aggregate_node(plan, self._keys, rows, named, self._windows, policies))

    def apply(
        self, module: Any, *, speculate: Speculate = "perfect", recompute: bool = False, **given: Any
    ) -> S:
        """The rows that a user-defined operator gives for every window that has an event.

        ``module`` is an `rc.Operator` or similar, its class, or the name under which a package offers it. For
        a class or a name, the other arguments are its parameters and the expressions for its inputs. The
        output is kept, to be retracted later; with ``recompute`` it is computed again instead.

        >>> import recension as rc
        >>> class Longest(rc.TimeSensitiveOperator):
        ...     result = {"x": "int64"}
        ...     def compute(self, events, window):
        ...         return [max(events, key=lambda e: e.ve - e.vs)]
        >>> s = rc.source("s", {"x": "int64"})
        >>> longest = s.tumbling(5).stamp_output("keep").apply(Longest)
        >>> rc.run(longest, {"s": [rc.Insert({"x": 1}, 1, 2), rc.Insert({"x": 2}, 3, 8)]}, close=True).show()
        _vs  _ve  x
        3    5    2
        5    8    2
        """
        policies = replace(self._policies, speculate=speculate, recompute=recompute)
        plan = self._stream.plan
        return self._stream._then(apply_node(plan, self._keys, module, given, self._windows, policies))

    def clip_input(self, clip: Clipping) -> WindowedStream[S]:
        """How time-sensitive modules see events that reach beyond their window.

        ``full`` clips them to the window on both sides (the default), ``left`` and ``right`` on one side,
        ``none`` not at all. Without clipping on the right, CTIs wait for the ends of events.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).tumbling(5).clip_input("right")
        <WindowedStream of source s: tumbling windows of 5>
        """
        return self._with_policies(replace(self._policies, clip=clip))

    def stamp_output(self, stamp: Stamping) -> WindowedStream[S]:
        """When the rows of a user-defined operator are true.

        ``align``: as long as the window (the default). ``keep``: as the module says, but not before the
        window. ``clip``: as the module says, clipped to the window. ``time_bound``: like ``keep``, and
        windows are shown as soon as they begin; a change at a time must never alter output before that time,
        and in return all CTIs pass. ``unrestricted``: as the module says; only the last CTI passes.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).tumbling(5).stamp_output("keep")
        <WindowedStream of source s: tumbling windows of 5>
        """
        return self._with_policies(replace(self._policies, stamp=stamp))

    def _with_policies(self, policies: Policies) -> WindowedStream[S]:
        return WindowedStream(self._stream, self._keys, self._windows, policies)

    def __repr__(self) -> str:
        windows = "snapshots" if self._windows is None else self._windows
        return f"<WindowedStream of {self._stream.plan.label}: {windows}>"


def windows_of(
    size: DurationLike,
    hop: DurationLike,
    offset: DurationLike,
    until: TimeLike | None,
    tz: ZoneLike | None,
    max_windows: int,
) -> Windows:
    """The grid, from what a user writes."""
    end = None if until is None else instant(until)
    if tz is None:
        return Windows(duration(size), duration(hop), duration(offset), end, max_windows)
    whole, each = _calendar_steps(size, "size"), _calendar_steps(hop, "hop")
    if bool(each.months) != bool(whole.months):
        raise TimeError(
            f"windows: a size of {size!r} is no multiple of a hop of {hop!r}: months differ in length; give "
            "both in days or weeks, or both in months, quarters or years"
        )
    moved = calendar_length(offset, "offset") if offset else CalendarLength()
    unit: CalendarUnit = "month" if each.months else "week" if each.is_weeks else "day"
    if unit == "week" and whole.days % 7:
        raise TimeError(
            f"windows: a size of {size!r} is no multiple of a hop of {hop!r}; with tz it must be one"
        )
    per = 7 if unit == "week" else 1
    return CalendarWindows(
        whole.months or whole.days // per,
        each.months or each.days // per,
        moved.days * DAY + moved.ticks,
        end,
        max_windows,
        unit,
        zone_name(tz, "tz"),
        moved.months,
    )


def _calendar_steps(value: DurationLike, what: str) -> CalendarLength:
    """A size or a hop of calendar windows: months or days, and nothing else."""
    found = calendar_length(value, what)
    if found.ticks or bool(found.months) == bool(found.days) or min(found.months, found.days) < 0:
        raise TimeError(
            f"{what}: {value!r} with tz; write {WHOLE}, of one kind, such as '1mo'; hours and smaller units "
            "need no tz"
        )
    return found


def aggregate_node(
    plan: Node,
    keys: Outputs,
    rows: tuple[Any, ...],
    named: Mapping[str, Any],
    windows: WindowKind,
    policies: Policies,
) -> Node:
    """The aggregates over windows; those that yield rows need no name."""
    found = [
        *((None, _to_answer(given)) for given in rows),
        *((name, _to_answer(given)) for name, given in named.items()),
    ]
    for name, answer in found:
        _require_answer(name, answer, [key for key, _ in keys])
    plain = [(name or "", a) for name, a in found if not isinstance(a, Tree)]
    columns = AggregateColumns(plain, [*(key for key, _ in keys), *named])
    outputs = [
        (name or "", columns.compute(answer) if isinstance(answer, Tree) else column(name or ""))
        for name, answer in found
    ]
    node = _answers_node(plan, keys, columns.found, windows, policies)
    if len(plain) == len(found):
        return node
    return Project(node, (*columns_named(key for key, _ in keys), *outputs), VERB)


def _answers_node(
    plan: Node,
    keys: Outputs,
    found: Sequence[tuple[str, Any]],
    windows: WindowKind,
    policies: Policies,
) -> Node:
    if any(isinstance(answer, Module) for _, answer in found):
        return ModuleWindow(
            plan, keys, tuple((n, _module_answer(a, plan)) for n, a in found), windows, policies
        )
    _refuse_policies(policies)
    plan, aggregates = _name_times(plan, [(name or aggregate.name, aggregate) for name, aggregate in found])
    parts = plan, keys, aggregates, policies.speculate
    match windows:
        case Windows():
            return WindowAggregate(*parts, windows)
        case CountWindows():
            return CountAggregate(*parts, windows)
        case SessionWindows():
            return SessionAggregate(*parts, windows)
        case None:
            return SnapshotAggregate(*parts)


def _name_times(
    plan: Node, aggregates: list[tuple[str, Aggregate]]
) -> tuple[Node, tuple[tuple[str, Aggregate], ...]]:
    """Aggregates of times and lifetimes, as aggregates of columns that contain these."""
    for _, aggregate in aggregates:
        if aggregate.yields_rows and any(map(reads_times, aggregate.inputs)):
            raise SchemaError(
                f"agg: {aggregate} yields rows, so it can only order them by one of their columns; make "
                "it a column first, as in with_columns(lasted=rc.lifetime())"
            )
    read = list(dict.fromkeys(computed for _, aggregate in aggregates for computed in aggregate.inputs))
    below, columns = name_timed(plan, read, "agg")
    if below is plan:
        return plan, tuple(aggregates)
    column_of = dict(zip(read, columns, strict=True))
    return below, tuple((name, aggregate.map_inputs(column_of.__getitem__)) for name, aggregate in aggregates)


def _to_answer(given: Any) -> Any:
    """The module that the user gave by class or name; modules, aggregates and expressions unchanged."""
    if isinstance(given, str) or (isinstance(given, type) and issubclass(given, Module)):
        return module(given)
    tree = given.tree if isinstance(given, Expr) else None
    return tree.aggregate if isinstance(tree, AggregateCall) else given if tree is None else tree


def _require_answer(name: str | None, answer: Any, keys: Sequence[str]) -> None:
    if not isinstance(answer, Aggregate | Module | Tree):
        raise SchemaError(f"agg: {answer!r} is not an aggregate; use rc.count(), rc.sum('column'), ...")
    if isinstance(answer, Tree):
        require_answer(answer, keys)
    if isinstance(answer, Module) and answer.yields_rows:
        raise SchemaError(f"agg: {answer.name} yields rows; use apply(...)")
    if name is None and (isinstance(answer, Tree) or not answer.yields_rows):
        call = f"rc.{answer}" if isinstance(answer, Aggregate) else str(answer)
        call = str(Expr(answer, None)) if isinstance(answer, Tree) else call
        raise SchemaError(f"agg: name each aggregate, as in agg(answer={call})")


def _module_answer(answer: Aggregate | Module, plan: Node) -> ModuleCall | Aggregate:
    """Next to modules, a user's own function counts as a module."""
    if isinstance(answer, FunctionOf):
        if answer.where is not None:
            raise SchemaError(
                f"agg: {answer} cannot have where= together with modules; set the other values to null "
                "with rc.when(...).then(...)"
            )
        answer = ArrayFunction(answer.fn, answer.result, answer.argument)
    return call_of(answer, plan.schema) if isinstance(answer, Module) else answer


def _refuse_policies(policies: Policies) -> None:
    """Refuse clipping and stamping for the library's aggregates: they do not see lifetimes and give none."""
    if policies.stamp != "align":
        raise SchemaError(
            f"stamp_output({policies.stamp!r}): aggregates give values, which live as long as their window; "
            "only 'align' is possible"
        )
    if policies.recompute:
        raise SchemaError("agg: recompute=True is for modules; the library's aggregates keep no output")


def apply_node(
    plan: Node, keys: Outputs, asked: Any, given: Mapping[str, Any], windows: WindowKind, policies: Policies
) -> Node:
    """A user-defined operator over windows: an instance; or a class or name, with its arguments."""
    made = module(asked, **given)
    if not made.yields_rows:
        raise SchemaError(f"apply: {made.name} gives one value; use agg(name={made})")
    return ModuleWindow(plan, keys, (("rows", call_of(made, plan.schema)),), windows, policies)


def module(named: Any, /, **given: Any) -> Module:
    """A user-defined module by the name under which a package offers it, with its arguments.

    Parameters
    ----------
    named
        The name; or the class of a module, or a module with its parameters.
    given
        Its parameters, and the expressions for its inputs.

    >>> from recension.testing.modules import Total
    >>> print(module(Total, v="speed"))
    Total()
    """
    kind = module_named(named) if isinstance(named, str) else named
    if isinstance(kind, type) and issubclass(kind, Module):
        try:
            return kind(**given)
        except TypeError as why:  # a method is missing
            raise SchemaError(f"{kind.__name__}: {why}") from None
    if isinstance(kind, Module) and not given:
        return kind
    if isinstance(kind, Module):
        raise SchemaError(f"apply: {kind} has its parameters already; give them once")
    raise SchemaError(f"apply: {named!r} is not a module; give an rc.Operator, or the name of one")
