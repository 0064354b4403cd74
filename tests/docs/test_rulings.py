"""A ruling that code, tests or pages cite by its label is told on the page of rulings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.places import ROOT

PAGE = ROOT / "docs" / "design" / "004-rulings.md"
LABEL = re.compile(r"([A-GS])(\d+)(?:–\1?(\d+))?")
# "ruling B10", "rulings F3 and F6", "CEDR rulings B15, G2"
CITATION = re.compile(r"rulings? ((?:[A-GS]\d+(?:–[A-GS]?\d+)?(?:, | and |; )?)+)", re.IGNORECASE)


def labels(text: str) -> Iterator[str]:
    """All labels, those of a range one by one."""
    for letter, first, last in LABEL.findall(text):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


def test_every_label_cited_is_told() -> None:
    told = {label for cell in re.findall(r"^\| ([^|]+) \|", PAGE.read_text(), re.M) for label in labels(cell)}
    files = [f for folder in ("src", "tests", "docs") for f in (ROOT / folder).rglob("*")]
    cited = {
        label: file.name
        for file in files
        if file.suffix in (".py", ".yaml", ".md") and file != PAGE
        for group in CITATION.findall(file.read_text())
        for label in labels(group)
    }
    assert len(cited) > 30
    assert {label: file for label, file in cited.items() if label not in told} == {}
