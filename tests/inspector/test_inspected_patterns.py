"""A recording of an alert of absence: each of its steps is there to look at, and what took the alert back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import recension as rc
from recension.cli import main
from recension.core.difference import equivalent
from recension.inspector.replay import Replay
from recension.runners.recording import read_recording

ORDERS, SHIPMENTS = (rc.source(name, {"order": "string"}) for name in ("orders", "shipments"))
PAIRS = rc.sequence({"one": ORDERS, "two": ORDERS}, within=20, on="order")
ALERTS = rc.unless(PAIRS.select("order"), SHIPMENTS, within=48, on="order").shift(48).due(by=ORDERS)


def _record(folder: Path) -> rc.Session:
    live = rc.session(ALERTS)
    with rc.record(live, folder, edges="all"):
        for name, order, at in [
            ("orders", "a", 0),
            ("orders", "a", 2),
            ("orders", "b", 60),
            ("shipments", "a", 30),
        ]:
            live.push(name, [rc.Insert({"order": order}, at, at + 1)])
    return live


def test_a_page_shows_every_step_of_the_pattern(tmp_path: Path) -> None:
    live = _record(tmp_path / "r")
    assert equivalent(read_recording(tmp_path / "r").stream("query").history(), live.history())
    assert main(["inspect", str(tmp_path / "r"), "--export", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    shown, names = json.loads(data)["edges"], read_recording(tmp_path / "r").names
    assert len(names) >= 6
    assert set(shown) == {f"0:{number}" for number in range(len(names))}
    # The alert came and went; what is not due is in no answer.
    assert shown[f"0:{names.index('query')}"]["size"] == 2


def test_the_effect_of_a_late_shipment_is_that_the_alert_is_not_there(tmp_path: Path) -> None:
    _record(tmp_path / "r")
    recording = read_recording(tmp_path / "r")
    found = Replay(recording, ALERTS.plan).effect(recording.names.index("shipments"), [0])["edges"]
    (instead,) = found[f"0:{recording.names.index('query')}"]["instead"]
    assert (instead["vs"], instead["ve"], instead["texts"]["order"]) == ("50", "98", "a")
