"""The API reference has every public name, each with what its docstring says."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
from tests.docs.places import ROOT

import recension as rc
from recension.api.windows import WindowedStream

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "api_reference.py"))


@pytest.fixture(scope="module")
def entries() -> dict[str, str]:
    """What is written under each heading, by heading."""
    found: dict[str, str] = {}
    for page in SCRIPT["reference_pages"]().values():
        for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n")
            found[heading.strip("`")] = text
    return found


def test_every_public_name_is_there(entries: dict[str, str]) -> None:
    names = {f"rc.{name}" for name in rc.__all__} - {"rc.kafka", "rc.spark", "rc.scenarios"}
    assert names - set(entries) == set()
    for module in (rc.kafka, rc.spark):
        name = module.__name__.rpartition(".")[2]
        assert {f"rc.{name}.{inner}" for inner in module.__all__} - set(entries) == set()


@pytest.mark.parametrize(
    "kind", [rc.Stream, rc.GroupedStream, WindowedStream, rc.Session, rc.Result, rc.History, rc.Expr]
)
def test_every_method_is_there(kind: Any, entries: dict[str, str]) -> None:
    public = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    methods = {name for name, value in public.items() if callable(value) and not isinstance(value, type)}
    assert {f"{kind.__name__}.{name}" for name in methods} - set(entries) == set()


def test_every_entry_says_something(entries: dict[str, str]) -> None:
    empty = [name for name, text in entries.items() if not re.sub(r"```.*?```", "", text, flags=re.S).strip()]
    assert empty == []


def test_a_docstring_becomes_markdown() -> None:
    doc = "What ``x`` is.\n\nParameters\n----------\nx\n    A number,\n    or none.\n\n>>> 1 + 1\n2"
    wanted = "What `x` is.\n\n**Parameters**\n\n- `x`: A number, or none.\n\n```pycon\n>>> 1 + 1\n2\n```\n"
    assert SCRIPT["to_markdown"](doc) == wanted
