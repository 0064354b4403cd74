"""Links and paths of every page: they lead to files that are there, and to headings that these have."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.docs.places import ROOT, paths
from tests.docs.places import fault as path_fault

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
OURS = ("src/", "tests/", "docs/", "examples/", "benchmarks/", "scripts/")
ELSEWHERE = ("http:", "https:", "mailto:")


def prose(page: Path) -> str:
    """A page without its code, where brackets mean something else."""
    return CODE.sub("", FENCE.sub("", page.read_text()))


def slug(heading: str) -> str:
    """The anchor that both GitHub and MkDocs make of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain.strip().lower()))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page; of headings that are there more than once only the first has a sure one."""
    return {slug(heading) for heading in HEADING.findall(FENCE.sub("", page.read_text()))}


def links(page: Path) -> list[str]:
    text = prose(page)
    return [link for link in LINK.findall(text) + REFERENCE.findall(text) if not link.startswith(ELSEWHERE)]


def fault(page: Path, link: str) -> str | None:
    """What is wrong with a link, if anything."""
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: no such file"
    if DOCS in page.parents and DOCS not in target.parents:
        return f"{link}: not part of the site"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [wrong for link in links(page) if (wrong := fault(page, link))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_in_the_repository_are_there(page: Path) -> None:
    """Those that begin at its root; a page may also speak of files of the reader's own."""
    named = [path for path in paths(FENCE.sub("", page.read_text())) if path.startswith(OURS)]
    assert [wrong for path in named if (wrong := path_fault(path))] == []


def test_a_dead_link_is_found() -> None:
    assert fault(ROOT / "README.md", "docs/guide/nowhere.md") == "docs/guide/nowhere.md: no such file"
    assert fault(DOCS / "guide" / "spark.md", "#no-such-heading") == "#no-such-heading: no such heading"
    assert fault(DOCS / "guide" / "spark.md", "../../README.md") == "../../README.md: not part of the site"
    assert fault(DOCS / "guide" / "spark.md", "#into-a-pipeline-that-exists") is None


def _named(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _named(part)]  # type: ignore[attr-defined]


def test_names_of_pages_have_hyphens() -> None:
    assert [page.name for page in DOCS.rglob("*.md") if "_" in page.name] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rows_of_a_table_have_as_many_cells_as_its_header(page: Path) -> None:
    """GitHub ends a cell at every bar, also inside of code, unless a backslash stands before it."""
    width, wrong = 0, []
    for line in FENCE.sub("", page.read_text()).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        wrong += [line] if width and cells not in (0, width) else []
        width = cells and (width or cells)
    assert wrong == []


def test_every_page_has_its_place_in_the_site() -> None:
    """What the navigation does not name nobody finds."""
    named = _named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
