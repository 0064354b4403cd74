"""The API reference of the site: a page for each group of public names, made from their docstrings.

`mkdocs.yml` names this file as a hook, so that the pages are made while the site is built and lie nowhere
else. They follow the guide in the navigation.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import recension as rc
from recension.api.windows import WindowedStream

FOLDER = "reference"
TITLES = {
    "streams": "Streams and windows",
    "aggregates": "Aggregates and functions",
    "expressions": "Expressions",
    "intervals": "Intervals and durations",
    "modules": "Modules",
    "running": "Running, results and elements",
    "spark": "Spark",
    "kafka": "Kafka without Spark",
}
# The page of a name, by the module that defines it; the longest prefix counts.
HOMES = {
    "recension": "running",
    "recension.api": "streams",
    "recension.api.functions": "aggregates",
    "recension.api.running": "running",
    "recension.api.spark": "spark",
    "recension.api.why": "running",
    "recension.plan.expressions": "expressions",
    "recension.plan.intervals": "intervals",
    "recension.modules": "modules",
}
SPACES = ("str", "dt", "list", "struct", "name")


def on_config(config: Any) -> Any:
    """The pages go to the end of the navigation."""
    pages = [{title: f"{FOLDER}/{name}.md"} for name, title in TITLES.items()]
    config.nav.append({"API reference": pages})
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages join those of the guide."""
    from mkdocs.structure.files import File

    for name, text in reference_pages().items():
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=text))
    return files


def reference_pages() -> dict[str, str]:
    """The text of every page, by name."""
    entries: dict[str, list[str]] = {name: [] for name in TITLES}
    for name in sorted(rc.__all__, key=str.lower):
        value = getattr(rc, name)
        if inspect.ismodule(value):
            page = name if name in TITLES else "streams"
            for inner in sorted(value.__all__ if hasattr(value, "__all__") else _public(value)):
                entries[page].append(_entry(f"rc.{name}.{inner}", getattr(value, inner)))
        else:
            entries[_page_of(value)].append(_entry(f"rc.{name}", value))
    entries["streams"].append(_entry("WindowedStream", WindowedStream))
    spaces = {space: type(getattr(rc.col("x"), space)) for space in SPACES}
    entries["expressions"] += [_entry(f"Expr.{space}", kind) for space, kind in spaces.items()]
    return {name: "\n".join([f"# {TITLES[name]}\n", *parts]) for name, parts in entries.items()}


def _page_of(value: Any) -> str:
    home = getattr(value, "__module__", "recension") or "recension"
    return HOMES[
        max((known for known in HOMES if f"{home}.".startswith(f"{known}.")), key=len, default="recension")
    ]


def _public(home: Any) -> list[str]:
    own = [name for name in vars(home) if not name.startswith("_")]
    return [name for name in own if getattr(getattr(home, name), "__module__", None) == home.__name__]


def _entry(name: str, value: Any) -> str:
    """A name with its signature, what it does and, of a class, its methods."""
    if not callable(value):
        return f"## `{name}`\n\n`{value!r}`\n"
    parts = [f"## `{name}`\n", _signature(name, value), to_markdown(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        short = name.removeprefix("rc.")
        parts += [_member(f"{short}.{inner}", member) for inner, member in members(value)]
    return "\n".join(parts)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, those that it inherits from ours among them."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        member = inspect.getattr_static(kind, name)
        is_ours = owner.__module__.startswith("recension")
        is_shown = callable(getattr(kind, name, None)) or isinstance(member, property)
        if not name.startswith("_") and is_ours and is_shown and not inspect.isclass(member):
            yield name, member


def _member(name: str, member: Any) -> str:
    doc = to_markdown(inspect.getdoc(member) or "")
    if isinstance(member, property):
        return f"### `{name}`\n\n{doc}"
    function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    return (
        f"### `{name}`\n\n{_signature(name, function, is_bound=not isinstance(member, staticmethod))}\n{doc}"
    )


def _signature(name: str, value: Any, *, is_bound: bool = False) -> str:
    """How it is called, a parameter a line if that is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(found.parameters.values())[1 if is_bound else 0 :]
    written, is_keyword = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            written.append("*")
        is_keyword = is_keyword or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        written.append(_parameter(parameter))
    gives = _annotation(found.return_annotation)
    tail = "" if gives is inspect.Signature.empty or inspect.isclass(value) else f" -> {gives}"
    line = f"{name}({', '.join(written)}){tail}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in written), f"){tail}"])
    return f"```python\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = _annotation(parameter.annotation)
    kind = "" if annotation is parameter.empty else f": {annotation}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{kind}{default}"


def _annotation(given: Any) -> Any:
    if given is inspect.Parameter.empty or isinstance(given, str):
        return given
    return getattr(given, "__name__", str(given))


def to_markdown(doc: str) -> str:
    """A docstring as Markdown: examples in fences, parameters as a list."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", doc):
        lines = block.splitlines()
        if lines and lines[0].startswith(">>>"):
            out.append("\n".join(["```pycon", *lines, "```"]))
        elif len(lines) > 1 and set(lines[1].strip()) == {"-"}:
            out += [f"**{lines[0]}**", _to_list(lines[2:])]
        else:
            out.append(_inline("\n".join(lines)))
    return "\n\n".join(out) + "\n"


def _to_list(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(f"- `{line.strip()}`:")
    return _inline("\n".join(items))


def _inline(text: str) -> str:
    return text.replace("``", "`")
