"""Modules by name: what packages offer under the entry point group ``recension.modules``.

[project.entry-points."recension.modules"]
"acme.head_and_shoulders" = "acme_charts:HeadAndShoulders"
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from recension.core.errors import RecensionError, SchemaError, describe_error
from recension.modules.module import Module

GROUP: Final = "recension.modules"


def installed_modules() -> dict[str, EntryPoint]:
    """What is offered, by name. Two packages may not offer one name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise RecensionError(
                f"two packages offer the module {point.name!r}: {other.value} and {point.value}; remove one"
            )
    return dict(sorted(found.items()))


def module_named(name: str) -> type[Module]:
    """The module class of that name."""
    known = installed_modules()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else "; `recension modules` lists what is installed"
        raise SchemaError(f"there is no module {name!r}{hint}")
    return load_module(known[name])


def load_module(point: EntryPoint) -> type[Module]:
    """The module class of an entry point, by whose name it is then known."""
    try:
        kind = point.load()
    except Exception as why:
        reason = describe_error(why)
        raise RecensionError(
            f"the module {point.name!r} cannot be loaded from {point.value}: {reason}"
        ) from why
    if not (isinstance(kind, type) and issubclass(kind, Module)):
        reason = f"the module {point.name!r}, {point.value}, is not a class of modules, as rc.Aggregate is"
        raise RecensionError(reason)
    kind.registered_as = point.name  # type: ignore[attr-defined]
    return kind


def make_module(named: Any, given: Mapping[str, Any] | None = None) -> Module:
    """A module by its name or class, with its arguments; or one that has them already."""
    given = given or {}
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
