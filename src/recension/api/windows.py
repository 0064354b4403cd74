"""Windows: the time axis cut into intervals, with one answer for each that holds an event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar

from recension.api.base import StreamBase
from recension.modules.module import Clipping, Module, Stamping
from recension.modules.registry import make_module
from recension.plan.expressions import Expr
from recension.plan.module_window import Policies, WindowKind
from recension.plan.node import Outputs, Speculate
from recension.plan.tables import refuse_table
from recension.plan.window_answers import answer_windows, apply_module

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
        return self._stream._then(answer_windows(plan, self._keys, rows, named, self._windows, policies))

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
        return self._stream._then(apply_module(plan, self._keys, module, given, self._windows, policies))

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
    return make_module(named, given)
