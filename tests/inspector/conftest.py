"""A recording to look at: leases at two sites, one of them late, one of them hostile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

import recension as rc
from recension.inspector.page_data import Shown
from recension.inspector.questions import Questions
from recension.inspector.server import InspectorServer
from recension.runners.recording import read_recording

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"></script><script>document.title='hacked'</script>"
LEASES = rc.source("leases", {"user": "string", "site": "string"})
ONLINE = LEASES.where(rc.col("user") != "root").group_by("site").agg(n=rc.count(), speculate="eager")


def lease(user: str, site: str, vs: int, ve: int) -> rc.Insert:
    """One lease."""
    return rc.Insert({"user": user, "site": site}, vs, ve)


def play(live: rc.Session) -> None:
    """Some leases, a late one, a correction, a removal, and CTIs."""
    live.push("leases", [lease("ann", "Oslo", 1, 9)])
    live.push("leases", [lease("bob", "Oslo", 3, 5)])
    live.push("leases", [lease(HOSTILE, "Rome", 2, 8)])
    live.push("leases", [rc.Cti(3)])
    live.push("leases", [lease("kim", "Oslo", 4, 7)])  # late: bob's end was told already
    live.push("leases", [rc.Retract({"user": "ann", "site": "Oslo"}, 1, 9, 6)])
    live.push("leases", [lease("lee", "Rome", 6, 12), lease("root", "Rome", 6, 12)])
    live.push("leases", [rc.Cti(10)])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the recording."""
    folder = tmp_path_factory.mktemp("recorded") / "r"
    live = rc.session(ONLINE)
    with rc.record(live, folder, edges="all"):
        play(live)
    return folder


@pytest.fixture(scope="module")
def questions(recorded: Path) -> Questions:
    """What the page may ask."""
    shown = Shown("Recension: online", [("online", read_recording(recorded))])
    return Questions(shown, [partial(read_recording, recorded)], ONLINE.plan)


@pytest.fixture(scope="module")
def served(questions: Questions) -> Iterator[InspectorServer]:
    """The page on the loopback."""
    with InspectorServer(questions.answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
