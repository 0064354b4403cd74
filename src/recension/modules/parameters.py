"""Parameters of modules: written as annotated class attributes, checked when a query is built."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from recension.core.errors import SchemaError
from recension.modules.value_types import is_of

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


def taken_apart(module: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is mapped to inputs, and the parameters."""
    inputs: Mapping[str, Any] | None = getattr(module, "inputs", None)
    known = parameters_of(module)
    mapped = {n: v for n, v in given.items() if n not in known and (inputs is None or n in inputs)}
    rest = {name: value for name, value in given.items() if name not in mapped}
    return mapped, rest


def checked(module: type, given: Mapping[str, Any]) -> dict[str, Any]:
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
