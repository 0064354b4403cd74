"""The messages that the troubleshooting page explains are messages of ours, word for word."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "troubleshooting.md"
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
HOLE = "…"


def _text(node: ast.expr) -> str:
    """A string, with a hole for everything that is put in when it is raised."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "".join(map(_text, node.values)) if isinstance(node, ast.JoinedStr) else HOLE


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def texts() -> list[str]:
    """All strings of the library."""
    files = (ROOT / "src").rglob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if _is_text(node)]
    return [_text(node) for node in nodes if isinstance(node, ast.expr)]


def is_ours(message: str) -> bool:
    """Is there a string that has all parts of the message, in their order?"""
    parts = [part for part in message.split(HOLE) if part.strip(" :;,'")]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    has_all = (text for text in texts() if all(part in text for part in parts))
    return bool(parts) and any(map(pattern.search, has_all))


@pytest.mark.parametrize("message", ROW.findall(PAGE.read_text()))
def test_a_message_is_ours(message: str) -> None:
    assert is_ours(message)


def test_others_are_not() -> None:
    assert not is_ours("this …, which nobody says …")
    assert len(ROW.findall(PAGE.read_text())) > 15
