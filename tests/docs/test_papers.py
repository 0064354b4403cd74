"""The page about the papers names only what is there, and no part of a paper without what shows it."""

from __future__ import annotations

import re

import pytest
from tests.docs.places import ROOT, fault, paths, where

PAGE = ROOT / "docs" / "papers.md"
TEXT = PAGE.read_text()
SECTION = re.compile(r"^\| (?!section |---)(.+?) \|(.*?)\|(.*?)\|(.*?)\|$", re.MULTILINE)
ROWS = [tuple(part.strip() for part in row) for row in SECTION.findall(TEXT)]
PAPERS = TEXT.split("\n## ")[1:]


@pytest.mark.parametrize("named", sorted(set(paths(TEXT))))
def test_what_is_named_is_there(named: str) -> None:
    assert fault(named) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_part_is_shown_or_says_why_not(row: tuple[str, ...]) -> None:
    section, _, shown_by, differs = row
    shows = [file.relative_to(ROOT).parts[0] for p in paths(shown_by) for file in where(p.partition("::")[0])]
    assert set(shows) <= {"tests", "benchmarks", "examples"}, section
    assert shows or re.search(r"\*not done\*|nothing to build", differs), section


def test_five_papers_and_every_line_of_them_is_read() -> None:
    assert len(PAPERS) == 5
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| section")]
    assert len(ROWS) == len(lines) > 90


def test_faults_are_found() -> None:
    assert fault("operators/nowhere.py") == "operators/nowhere.py: no such file"
    assert fault("operators/test_join.py::test_nothing") == "operators/test_join.py has no 'test_nothing'"
    assert fault("transcripts/join.yaml::no such") == "transcripts/join.yaml has no 'no such'"
    assert fault("transcripts/join.yaml::anti join") is None
