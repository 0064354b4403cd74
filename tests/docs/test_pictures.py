"""The pictures in the guide are drawn by the library, from what the guide shows."""

from __future__ import annotations

from typing import Any

from tests.docs.pages import snippets
from tests.docs.places import ROOT

import recension as rc
from recension.core.batch import concat
from recension.core.pictures import RetractedParts, draw, timeline_svg

PAGE = ROOT / "docs" / "guide" / "patterns.md"
FILE = ROOT / "docs" / "assets" / "withdrawn-alert.svg"


def withdrawn_alert() -> str:
    """Of the first query of the page, and of what it is fed."""
    names: dict[str, Any] = {"__name__": "snippet", "print": lambda *shown: None}
    for snippet in snippets(PAGE)[:2]:
        exec(compile(snippet.code, str(PAGE), "exec"), names)
    session = rc.session(names["alerts"])
    for source, order, hour in names["feed"]:
        session.push(source, [rc.Insert({"order": order}, hour, hour + 1)])
    changes = session.read()
    gone = RetractedParts.of(concat(changes.batches), None)
    return timeline_svg(draw(session.history(), gone, lanes="order"))


def test_the_alert_that_is_withdrawn() -> None:
    assert FILE.read_text() == withdrawn_alert() + "\n", "write it anew with `withdrawn_alert`"
