"""The page on expressions names every method there is, and no other."""

from __future__ import annotations

import re

from tests.docs.places import ROOT

import recension as rc
from recension.plan.expressions import functions

PAGE = (ROOT / "docs" / "guide" / "expressions.md").read_text(encoding="utf-8")
SPACES = {
    "str": "### Text",
    "dt": "### Times",
    "list": "### Lists",
    "struct": "### Lists",
    "name": "### Lists",
}


def in_tables(section: str) -> set[str]:
    """The methods in the first columns of a section's tables."""
    text = PAGE[PAGE.index(f"\n{section}") + 1 :]
    text = text[: end.start() + 1] if (end := re.search(r"\n##", text[1:])) else text
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([\w.]+)\(", cell)}


def public(home: type) -> set[str]:
    return {name for name in dir(home) if not name.startswith("_") and callable(getattr(home, name))}


def test_methods() -> None:
    assert in_tables("## Methods") == public(rc.Expr)
    assert in_tables("### Text") == public(type(rc.col("x").str))
    assert in_tables("### Times") == public(type(rc.col("x").dt))
    spaces = {name: type(getattr(rc.col("x"), name)) for name in ("list", "struct", "name")}
    assert in_tables("### Lists") == {f"{s}.{name}" for s, home in spaces.items() for name in public(home)}


def test_functions() -> None:
    known = {name for name in vars(functions) if name in rc.__all__ and name[0].islower()} - {"col", "lit"}
    assert in_tables("## Conditions") == {f"rc.{name}" for name in known}
