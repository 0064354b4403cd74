"""What every module has: inputs that the query maps, parameters that are checked at once, and hints.

class TopK(rc.Operator):
    inputs = {"v": "float64"}                          what it reads; the query maps columns to it
    result = {"v": "float64", "rank": "int64"}         what it gives
    k: int = 3                                         a parameter

TopK(v=col("speed"), k=2)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from recension.core.errors import SchemaError
from recension.modules.members import Events, Payloads, Window
from recension.modules.parameters import check_parameters, name_of, parameters_of, split_inputs

Clipping: TypeAlias = Literal["none", "left", "right", "full"]
Stamping: TypeAlias = Literal["align", "keep", "clip", "time_bound", "unrestricted"]


class Module(ABC):
    """A module with its parameters and the expressions that the query maps to its inputs.

    The same events must always give the same answer: it may be computed again, to retract an earlier one.
    """

    inputs: ClassVar[Mapping[str, Any] | None] = None
    """The columns it reads with their types (None: any type). Without it, it gets what the query maps, or
    else the whole payload."""
    result: ClassVar[Any]
    """The type of the value, or the columns of the rows, that it gives."""

    is_time_sensitive: ClassVar[bool] = False
    is_incremental: ClassVar[bool] = False
    yields_rows: ClassVar[bool] = False

    is_order_sensitive: ClassVar[bool] = True
    """Hint: False if members may come in any order, which saves sorting those that start together."""
    ignores: ClassVar[tuple[str, ...]] = ()
    """Hint: columns of the whole payload that it does not look at; they are dropped below it."""
    partitioned_by: ClassVar[tuple[str, ...]] = ()
    """Hint: columns it gives back as they came, each row made from members that agree in them alone. A filter
    on them moves below it."""
    is_empty_preserving: ClassVar[bool] = True
    """Hint: False if it has rows for what is not there, such as a zero for each name in a parameter. A window
    without events is never asked about, but then filters stay above: they could leave a window empty."""

    is_monotone: ClassVar[bool] = False
    """Hint, for operators: True if more members never take a row back. Over a grid of windows insert-only
    input then gives insert-only output."""

    compute: Callable[..., Any]
    """Given the members of a window (and the window, if it is time sensitive): the answer."""

    def __init__(self, **given: Any) -> None:
        self._name = name_of(type(self))
        self.mapping, parameters = split_inputs(type(self), given)
        self.parameters = check_parameters(type(self), parameters)
        for name, value in self.parameters.items():
            object.__setattr__(self, name, value)
        try:
            self.check()
        except SchemaError:
            raise
        except Exception as why:
            raise SchemaError(f"{self.name}: {why}") from why

    def check(self) -> None:
        """Raise ValueError with a sentence if the parameters do not fit together."""

    @property
    def name(self) -> str:
        """The name of the module."""
        return self._name

    def structure_parts(self) -> tuple[Any, ...]:
        """What makes two modules equal; what the query maps to their inputs is not part of it."""
        return type(self), *self.parameters.items()

    def _identity(self) -> Hashable:
        return _hash_key(self.structure_parts())

    def __eq__(self, other: object) -> bool:
        """Of the same class, with equal parameters; what the query maps to their inputs does not count."""
        return isinstance(other, Module) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{n}={v!r}' for n, v in self.parameters.items())})"

    @classmethod
    def signature(cls) -> str:
        """Inputs and parameters, as in Python."""
        inputs = [f"{name}: {kind or 'any'}" for name, kind in (cls.inputs or {}).items()]
        return f"({', '.join([*inputs, *map(str, parameters_of(cls).values())])})"


class Incremental(Module):
    """A module that keeps a state for each window; members are added to it and removed from it.

    ``initial() -> state``, ``add(state, members) -> state``, ``remove(state, members) -> state`` and
    ``compute(state)``; time-sensitive ones get the window as last argument of each. A state may be changed in
    place and returned. It is stored if it is made of plain values (numbers, text, times, arrays and
    containers of them). For other states define `stored` and `restored`, which convert to such values and
    back.

    ``merge(a, b) -> state`` is optional, for modules that do not see time. It gives the state of two sets of
    members together. It must be a new state that shares no mutable part with them. Overlapping windows then
    share the states of their panes.
    """

    is_incremental: ClassVar[bool] = True
    initial: Callable[..., Any]
    add: Callable[..., Any]
    remove: Callable[..., Any]
    merge: Callable[[Any, Any], Any] | None = None

    def stored(self, state: Any) -> Any:
        """A state as plain values."""
        return state

    def restored(self, stored: Any) -> Any:
        """The state that these stand for."""
        return stored


def _hash_key(value: Any) -> Hashable:
    if type(value) is tuple:
        return tuple(map(_hash_key, value))
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value).__name__, value)


class IncrementalOnPayloads(Incremental):
    """An incremental module whose state is made of payloads."""

    @abstractmethod
    def initial(self) -> Any:
        """The state of no payloads."""

    @abstractmethod
    def add(self, state: Any, payloads: Payloads) -> Any:
        """The state with these payloads added."""

    @abstractmethod
    def remove(self, state: Any, payloads: Payloads) -> Any:
        """The state without these payloads, which were added before."""


class IncrementalOnEvents(Incremental):
    """An incremental module whose state is made of events.

    An event whose lifetime changes is removed and added.
    """

    is_time_sensitive: ClassVar[bool] = True

    @abstractmethod
    def initial(self, window: Window) -> Any:
        """The state of no events."""

    @abstractmethod
    def add(self, state: Any, events: Events, window: Window) -> Any:
        """The state with these events added."""

    @abstractmethod
    def remove(self, state: Any, events: Events, window: Window) -> Any:
        """The state without these events, which were added before."""
