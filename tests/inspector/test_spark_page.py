"""Pages of a query on Spark in a headless Chromium: one that follows it as it runs, one of its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.inspector.conftest import HOSTILE, LEASES, ONLINE, lease
from tests.inspector.test_page import REASON, look_at
from tests.inspector.webdriver import Browser, find_browser
from tests.runners.spark.stream.driver import put

import recension as rc
from recension.cli.inspected import open_checkpoint, open_recording
from recension.core.batch import from_elements
from recension.inspector.page_data import Shown
from recension.inspector.questions import Questions
from recension.inspector.server import InspectorServer
from recension.plan.node import Node
from recension.runners.recording import Recording

pytestmark = pytest.mark.slow


@contextmanager
def served(read: Callable[[], Recording], query: Node | None = None) -> Iterator[str]:
    """The address of a page."""
    shown = Shown("Recension: online", [("online", read())])
    with InspectorServer(Questions(shown, [read], query).answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


def test_a_query_is_followed_and_its_checkpoint_looked_at(spark: Any, tmp_path: Path) -> None:
    if find_browser() is None:
        pytest.skip(REASON)
    leases: list[Any] = [
        lease("ann", "Oslo", 1, 9),
        lease(HOSTILE, "Rome", 2, 8),
        lease("root", "Rome", 2, 8),
        rc.Cti(3),
    ]
    put(tmp_path / "in", 0, from_elements(leases, LEASES.schema))
    listener = rc.spark.Listener(folder=tmp_path / "live")
    spark.streams.addListener(listener)
    answers = rc.spark.stream(spark, ONLINE, {"leases": tmp_path / "in"}, shards=1)
    where: dict[str, Any] = {
        "changelog": tmp_path / "log",
        "record": tmp_path / "seen",
        "checkpoint": tmp_path / "ck",
    }
    running = rc.spark.write(answers, **where, trigger={"processingTime": "0 seconds"}, query_name="online")
    with Browser(tmp_path) as browser:
        try:
            running.processAllAvailable()
            browser.wait_for(lambda: listener.batches)
            live = open_recording(str(tmp_path / "live" / "online"), [], None, close=False)
            with live as opened, served(opened.read) as address:
                _follow(browser, address, running, tmp_path / "in")
                running.stop()
                browser.wait_for(lambda: "the query has ended" in browser.text("#notes"))
        finally:
            running.stop()
            spark.streams.removeListener(listener)
        with open_checkpoint(tmp_path / "ck", None) as opened, served(opened.read, ONLINE.plan) as address:
            _look_at_checkpoint(browser, address)
        assert browser.complaints() == []
        assert browser.run("return document.title") == "Recension: online"


def _follow(browser: Browser, address: str, running: Any, feed: Path) -> None:
    """A second micro-batch shows up on the page that is open."""
    browser.open(address)
    assert len(browser.find("#numbers tbody tr")) == 1
    assert "online: micro-batch 0 began" in browser.text("#notes")
    assert browser.texts(".step .numbers")[0].startswith("+3  −0")
    put(feed, 1, from_elements([lease("kim", "Oslo", 4, 7), rc.Cti(10)], LEASES.schema))
    running.processAllAvailable()
    browser.wait_for(lambda: "online: micro-batch 1 began" in browser.text("#notes"))
    assert len(browser.find("#numbers tbody tr")) == 2
    assert browser.texts(".step .numbers")[0].startswith("+4  −0")
    assert "final to 10" in browser.texts(".step .until")[-1]
    assert browser.complaints() == []


def _look_at_checkpoint(browser: Browser, address: str) -> None:
    """Its micro-batches, and what it recorded: stepped through, an answer and an input explained."""
    browser.open(address)
    assert "micro-batch 1 is done" in browser.text("#notes")
    assert "1 file: 0001.parquet" in browser.texts("#numbers tbody td")
    assert browser.texts(".pane h2") == ["leases", "query"]
    browser.click("#back-step")
    assert "micro-batch 0 of" in browser.text("#where")
    browser.click("#to-end")
    look_at(browser, "#pane-0-2", "Oslo", "2", "4", "7")
    browser.wait_for(lambda: "2 leases alive in [4, 7): ann, kim" in browser.text(".reasons"))
    look_at(browser, "#pane-0-0", HOSTILE)
    browser.wait_for(lambda: "Without it" in browser.text(".reasons"))
    assert "site Rome, n 1 [2, 8) final" in browser.texts(".reasons .event")
    assert browser.run("return document.images.length") == 0
