"""CONTRIBUTING.md names only files that are there, and no change of its pages takes more than five."""

from __future__ import annotations

import re

import pytest
from tests.docs.places import ROOT, fault, paths

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SECTIONS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")}
CHANGES = ["Add an aggregate", "Add a span operator", "Add a file format", "Add a Spark sink"]


@pytest.mark.parametrize("named", sorted(set(paths(FENCE.sub("", TEXT)))))
def test_what_is_named_is_there(named: str) -> None:
    assert fault(named) is None


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_five_files_at_most(change: str) -> None:
    listed = (
        SECTIONS[change].split("| file | what goes there |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    )
    assert 2 < len(listed) <= 5
    assert all(len(paths(row.split("|")[1])) == 1 for row in listed)


def test_every_make_target_is_told() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    told = re.findall(r"^\| `make ([a-z]+)` \|", SECTIONS["What each make target is for"], re.MULTILINE)
    assert sorted(told) == sorted(targets)
