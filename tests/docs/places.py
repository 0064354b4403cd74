"""Paths that pages name in code: which are there, and whether they hold the test or transcript named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "recension", ROOT / "tests")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(/[\w.-]*)+(::.+)?|[\w-]+\.(py|yaml|md|sh|toml|lock)(::.+)?")


def paths(text: str) -> list[str]:
    """What a text names as a file, a folder, or something in a file."""
    return [code for code in CODE.findall(text) if PATH.fullmatch(code)]


def where(place: str) -> list[Path]:
    """The files or folders that a path may mean."""
    return [base / place for base in BASES if (base / place).exists()]


def fault(named: str) -> str | None:
    """What is wrong with a path, or with the name that follows it, if anything."""
    place, _, name = named.partition("::")
    found = where(place)
    if not found:
        return f"{named}: no such file"
    if len(found) > 1:
        return f"{named}: may be any of {[str(file.relative_to(ROOT)) for file in found]}"
    if place.endswith("/") and not found[0].is_dir():
        return f"{named}: not a folder"
    return f"{place} has no {name!r}" if name and name not in names(found[0]) else None


@cache
def names(file: Path) -> set[str]:
    """The functions of a file, or the transcripts."""
    if file.suffix == ".yaml":
        return {transcript["name"] for transcript in yaml.safe_load(file.read_text())}
    return set(re.findall(r"^\s*def (\w+)", file.read_text(), re.MULTILINE))
