"""``recension modules``: the modules that installed packages offer."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from recension.cli.root import app
from recension.core.errors import RecensionError
from recension.modules.module import Module
from recension.modules.registry import installed_modules, load_module, module_named
from recension.plan.schemas import schema_of, type_name, type_of


@app.command()
def modules(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show only this module, with its whole documentation."),
    ] = None,
) -> None:
    """The modules that installed packages offer, with signatures and documentation."""
    if name is not None:
        print(_describe(name, module_named(name), whole=True))
        return
    found = installed_modules()
    if not found:
        print("no modules are installed; packages offer them under the entry points recension.modules")
    for offered, point in found.items():
        try:
            print(_describe(offered, load_module(point), whole=False))
        except RecensionError as why:
            print(f"{offered}\n    {why}")


def _describe(name: str, module: type[Module], *, whole: bool) -> str:
    documented = inspect.getdoc(module) or "no documentation"
    text = documented if whole else documented.splitlines()[0]
    kind = "operator" if module.yields_rows else "aggregate"
    words = [
        *(["incremental"] if module.is_incremental else []),
        *(["time-sensitive"] if module.is_time_sensitive else []),
        kind,
    ]
    lines = [
        f"{name}{module.signature()} -> {_result_types(name, module)}",
        f"{' '.join(words)} ({module.__module__})",
        *text.splitlines(),
    ]
    return "\n    ".join(lines)


def _result_types(name: str, module: type[Module]) -> str:
    if not hasattr(module, "result"):
        return "?"
    if not module.yields_rows:
        return type_name(type_of(module.result, name))
    return ", ".join(f"{field.name}: {type_name(field.type)}" for field in schema_of(module.result, name))
