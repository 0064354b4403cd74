"""The report: a page that parses, has all its figures, and loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import numpy as np

from recension.core.difference import difference
from recension.demo.drawing import Scale, staircase
from recension.demo.page import page
from recension.demo.trace import MERGED, Trace
from recension.demo.verdict import Verdict

FIGURES = ["lives", "final-times", "lag", "revisions", "one-site", "plans"]
SHAPES = {"rect", "path", "circle"}
STREAMS = {"s1", "s2", "s3", "s4", "merged"}
VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Elements that are closed in the order in which they were opened, and what the figures hold."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.figures: dict[str, list[str]] = {}
        self.styles: dict[str, set[str]] = {}
        self.numbers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        assert not {"src", "href", "onload"} & set(named), f"{tag} refers to something"
        for value in named.values():
            self.numbers += re.findall(r"nan|inf", value or "")
        if tag == "figure":
            self.figures[str(named["id"])] = []
            self.styles[str(named["id"])] = set()
        elif "figure" in self.open:
            last = [*self.figures][-1]
            self.figures[last].append(tag)
            self.styles[last] |= set(str(named.get("class")).split()) if tag in SHAPES else set()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    found.close()
    assert not found.open
    return found


def test_the_page_has_all_its_figures(report: str) -> None:
    found = outline(report)
    assert list(found.figures) == FIGURES
    for name in FIGURES[:-1]:
        coloured = {style for style in STREAMS if style in found.styles[name]}
        missing = {"s4"} if name == "one-site" else set()  # it joins after the moment shown there
        assert coloured == STREAMS - missing, name
    assert found.figures["plans"].count("dl") == 1 + 3 + 4, "a merge, and the steps of two plans"
    assert not found.numbers, "every shape has its place"


def test_the_page_needs_nothing_but_itself(report: str) -> None:
    assert not re.search(r"https?:|url\(|@import|<script|<link|<img", report)


def test_the_page_says_what_was_found(report: str, played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    assert verdict.is_right
    assert "Merged history equals the batch answer: <b>yes</b>" in report
    assert f"<b>{len(verdict.merged):,}</b>" in report
    assert "R3: (vs, payload) is a key" in report
    for stream in [*trace.streams, MERGED]:
        assert f">{stream}</text>" in report


def test_the_page_says_why_noon_was_wrong(played: tuple[Trace, Verdict], report: str) -> None:
    trace, verdict = played
    late = verdict.late_lease
    assert late is not None
    for line in late.tell():
        assert escape(line) in report
    named = replace(late.lease, payload={**late.lease.payload, "device": "<img src=x onerror=alert(1)>"})
    told = page(trace, replace(verdict, late_lease=replace(late, lease=named)), "local", "beside.html")
    assert "<img" not in told
    assert "&lt;img src=x onerror=alert(1)&gt;" in told
    assert 'id="why"' not in page(trace, replace(verdict, late_lease=None), "local", "beside.html")


def test_the_page_says_so_when_the_answer_is_wrong(played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    short = verdict.merged.filter(np.arange(len(verdict.merged)) > 0)
    wrong = replace(verdict, merged=short, difference=difference(short, verdict.truth))
    told = page(trace, wrong, "local", "beside.html")
    assert "Merged history equals the batch answer: <b>NO</b>" in told
    assert "1 missing, 0 unexpected" in told


def test_scales_have_round_ticks() -> None:
    assert Scale(0, 47, 0, 100).ticks() == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert len(Scale(0, 0.001, 0, 1).ticks()) == 1
    assert staircase([(0, 1), (2, 5)], 3) == [(0, 1), (2, 1), (2, 5), (3, 5)]
