"""Parameters of modules: written as annotated class attributes, checked when a query is built."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal

from recension.core.errors import SchemaError

_MISSING: Final = object()
_RESERVED: Final = frozenset({"mapping", "parameters", "name"})


@dataclass(frozen=True)
class Parameter:
    """A parameter with its type and what it is if it is not given."""

    name: str
    kind: Any
    default: Any = _MISSING

    @property
    def is_required(self) -> bool:
        """Must it be given?"""
        return self.default is _MISSING

    def fits(self, value: Any) -> bool:
        """Is the value of the type?"""
        return is_of(value, self.kind)

    def __str__(self) -> str:
        is_plain = isinstance(self.kind, type) and not typing.get_args(self.kind)
        kind = self.kind.__name__ if is_plain else str(self.kind).removeprefix("typing.")
        return f"{self.name}: {kind}" + ("" if self.is_required else f" = {self.default!r}")


def parameters_of(module: type) -> dict[str, Parameter]:
    """The parameters of a module class: what its author annotated, base classes first."""
    found: dict[str, Parameter] = {}
    contract: set[str] = set()
    for kind in reversed(module.__mro__):
        if kind.__module__.startswith("recension.modules."):
            contract |= inspect.get_annotations(kind).keys()
            continue
        for name, annotation in _hints(kind).items():
            is_own = not name.startswith("_") and name not in contract
            if is_own and typing.get_origin(annotation) is not ClassVar:
                found[name] = Parameter(name, annotation, getattr(module, name, _MISSING))
    if clash := _RESERVED & found.keys():
        raise SchemaError(f"{module.__name__}: a parameter cannot be named {sorted(clash)[0]!r}")
    if torn := found.keys() & (getattr(module, "inputs", None) or {}).keys():
        raise SchemaError(f"{module.__name__}: {min(torn)!r} is an input and a parameter; rename one")
    return found


def _hints(kind: type) -> dict[str, Any]:
    own = inspect.get_annotations(kind)
    if not own:
        return {}
    try:
        known = typing.get_type_hints(kind)
    except Exception:  # names that exist for type checkers only
        return own
    return {name: known.get(name, annotation) for name, annotation in own.items()}


def name_of(module: type) -> str:
    """The name under which a package offers the module, or that of its class."""
    return str(vars(module).get("registered_as", module.__name__))


def split_inputs(module: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is mapped to inputs, and the parameters."""
    inputs: Mapping[str, Any] | None = getattr(module, "inputs", None)
    known = parameters_of(module)
    mapped = {n: v for n, v in given.items() if n not in known and (inputs is None or n in inputs)}
    rest = {name: value for name, value in given.items() if name not in mapped}
    return mapped, rest


def check_parameters(module: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters by name; or an error that says which one is wrong."""
    known = parameters_of(module)
    name = name_of(module)
    for strange in given.keys() - known.keys():
        takes = ", ".join([*(getattr(module, "inputs", None) or {}), *known]) or "nothing"
        raise SchemaError(f"{name}: there is no input or parameter {strange!r}; it takes {takes}")
    for parameter in known.values():
        if parameter.name not in given and parameter.is_required:
            raise SchemaError(f"{name}: give the parameter {parameter}")
        if parameter.name in given and not parameter.fits(given[parameter.name]):
            raise SchemaError(f"{name}: the parameter {parameter} cannot be {given[parameter.name]!r}")
    return {p.name: given.get(p.name, p.default) for p in known.values()}


_NUMBERS: Final[dict[Any, type]] = {int: Integral, float: Real}


def is_of(value: Any, kind: Any) -> bool:
    """Is a value of a type as Python's annotations write it? What cannot be looked into takes anything.

    Whole numbers are floats too, NumPy's are numbers, truth values are none.

    >>> is_of([1, 2], list[int]), is_of(["one"], list[int]), is_of("up", Literal["up", "down"])
    (True, False, True)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    plain = origin or kind
    if plain in _NUMBERS:
        return isinstance(value, _NUMBERS[plain]) and not isinstance(value, bool)
    if not isinstance(plain, type) or not _can_be_asked(plain):
        return True
    return isinstance(value, plain) and _holds(value, plain, arguments)


def _holds(value: Any, plain: type, arguments: tuple[Any, ...]) -> bool:
    """Do the items of a container have the right types?"""
    if plain is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(is_of, value, arguments))
    if issubclass(plain, Mapping) and len(arguments) == 2:
        return all(is_of(key, arguments[0]) and is_of(one, arguments[1]) for key, one in value.items())
    if issubclass(plain, Collection) and arguments:
        return all(is_of(one, arguments[0]) for one in value)
    return True


def _can_be_asked(plain: type) -> bool:
    ask: Callable[[Any], bool] = plain.__instancecheck__
    try:
        ask(None)
    except TypeError:  # a protocol that exists for type checkers only
        return False
    return True
