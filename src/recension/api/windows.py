"""Windows: the time axis cut into intervals, with one answer for each that holds an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar

from recension.api.base import StreamBase
from recension.core.errors import SchemaError
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.modules.contracts import ArrayFunction
from recension.modules.module import Clipping, Module, Stamping
from recension.modules.registry import module_named
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.module_window import ModuleCall, ModuleWindow, Policies, WindowKind, call_of
from recension.plan.node import Node, Outputs, Speculate
from recension.plan.tables import refuse_table
from recension.plan.windows import CountAggregate, CountWindows, WindowAggregate, Windows

S = TypeVar("S", bound=StreamBase)
Answer: TypeAlias = Aggregate | Module | type[Module] | str
"""An aggregate of the library, or a user-defined one: itself, its class, or its name."""


class WindowedStream(Generic[S]):
    """A stream seen through windows.

    An event belongs to every window it overlaps, and to a count window if its start (end) lies in it.
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
        *rows: Aggregate,
        speculate: Speculate = "perfect",
        recompute: bool = False,
        **named: Answer,
    ) -> S:
        """One row for every window that holds an event, as long as the window.

        Aggregates are the library's or user-defined modules, which may be called by class or by name.
        ``perfect`` and ``ordered`` show a window once it has ended, ``eager`` at once, revising it later.
        The output of modules is kept, to be retracted later; with ``recompute`` it is computed again instead.

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
        """The rows that a user-defined operator gives for every window that holds an event.

        ``module`` is an `rc.Operator` or the like, its class, or the name under which a package offers it;
        of a class or a name, the other arguments are its parameters and what is mapped to its inputs. What
        was shown is kept to be taken back, or with ``recompute`` computed again.

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
        """What time-sensitive modules see of events that reach beyond their window.

        ``full`` cuts them to the window on both sides (the default), ``left`` and ``right``
        on one, ``none`` leaves them. Unless they are cut on the right, CTIs wait for their ends.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).tumbling(5).clip_input("right")
        <WindowedStream of source s: tumbling windows of 5>
        """
        return self._with_policies(replace(self._policies, clip=clip))

    def stamp_output(self, stamp: Stamping) -> WindowedStream[S]:
        """When the rows of a user-defined operator are true.

        ``align``: as long as the window (the default). ``keep``: as the module says, but not before the
        window. ``clip``: as it says, cut to the window. ``time_bound``: as ``keep``, and windows are shown as
        soon as they begin. The module must never revise what is older than the cause of the revision; in
        return all CTIs pass. ``unrestricted``: as it says; then there are no CTIs.

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
    size: DurationLike, hop: DurationLike, offset: DurationLike, until: TimeLike | None, max_windows: int
) -> Windows:
    """The grid, from what a user writes."""
    end = None if until is None else instant(until)
    return Windows(duration(size), duration(hop), duration(offset), end, max_windows)


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
        *((None, made) for made in map(_to_module, rows)),
        *((name, _to_module(a)) for name, a in named.items()),
    ]
    for name, aggregate in found:
        _require_aggregate(name, aggregate)
    if any(isinstance(aggregate, Module) for _, aggregate in found):
        answers = tuple((name or "", _answer(aggregate, plan)) for name, aggregate in found)
        return ModuleWindow(plan, keys, answers, windows, policies)
    _refuse_policies(policies)
    aggregates = tuple((name or aggregate.name, aggregate) for name, aggregate in found)
    parts = plan, keys, aggregates, policies.speculate
    match windows:
        case Windows():
            return WindowAggregate(*parts, windows)
        case CountWindows():
            return CountAggregate(*parts, windows)
        case None:
            return SnapshotAggregate(*parts)


def _to_module(aggregate: Any) -> Any:
    """A module that is named, or given as its class, as the module itself."""
    is_module = isinstance(aggregate, str) or (isinstance(aggregate, type) and issubclass(aggregate, Module))
    return module(aggregate) if is_module else aggregate


def _require_aggregate(name: str | None, aggregate: Any) -> None:
    if not isinstance(aggregate, Aggregate | Module):
        raise SchemaError(f"agg: {aggregate!r} is not an aggregate; use rc.count(), rc.sum('column'), ...")
    if isinstance(aggregate, Module) and aggregate.yields_rows:
        raise SchemaError(f"agg: {aggregate.name} yields rows; use apply(...)")
    if name is None and not aggregate.yields_rows:
        call = str(aggregate) if isinstance(aggregate, Module) else f"rc.{aggregate}"
        raise SchemaError(f"agg: name each aggregate, as in agg(answer={call})")


def _answer(aggregate: Any, plan: Node) -> ModuleCall | Aggregate:
    if isinstance(aggregate, FunctionOf):
        aggregate = ArrayFunction(aggregate.fn, aggregate.result, aggregate.argument)
    return call_of(aggregate, plan.schema) if isinstance(aggregate, Module) else aggregate


def _refuse_policies(policies: Policies) -> None:
    """Aggregates of the library see no lifetimes and give none."""
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
    """A user-defined operator over windows: an instance, a class or a name with what it is to be given."""
    made = module(asked, **given)
    if not made.yields_rows:
        raise SchemaError(f"apply: {made.name} gives one value; use agg(name={made})")
    return ModuleWindow(plan, keys, (("rows", call_of(made, plan.schema)),), windows, policies)


def module(named: Any, /, **given: Any) -> Module:
    """A user-defined module by the name under which a package offers it, with what it is to be given.

    Parameters
    ----------
    named
        The name; or the class of a module, or a module that has its parameters already.
    given
        Its parameters, and what is mapped to its inputs.

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
