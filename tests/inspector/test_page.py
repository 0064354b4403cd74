"""The page in a headless Chromium: opened, stepped through, clicked, filtered, exported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.inspector.conftest import HOSTILE, ONLINE, lease
from tests.inspector.webdriver import Browser, find_browser
from tests.runners.spark.sinks.feeding import revised

import recension as rc
from recension.core.batch import from_elements
from recension.core.reconstitution import reconstitute
from recension.inspector.export import page_in_one_file
from recension.inspector.page_data import Shown
from recension.inspector.questions import Questions
from recension.inspector.server import InspectorServer
from recension.runners.recording import read_recording
from recension.testing.generator.settings import SCHEMA

pytestmark = pytest.mark.slow
REASON = "no Chromium with its driver here (Debian: chromium and chromium-driver): the page is not opened"
SOURCE, ANSWER = "#pane-0-0", "#pane-0-2"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests here."""
    if find_browser() is None:
        pytest.skip(REASON)
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def page(browser: Browser, served: InspectorServer) -> Iterator[Browser]:
    """The page, freshly opened; after the test, nothing was complained of, and no payload ran."""
    browser.open(served.address)
    yield browser
    assert browser.complaints() == []
    assert browser.run("return document.title") == "Recension: online"


def rows(page: Browser, pane: str) -> list[list[str]]:
    """The cells of the table of a pane, which is opened if it is not."""
    if page.run("return document.querySelector(arguments[0]).hidden", f"{pane} .table"):
        page.click(f"{pane} header button")
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map(row => [...row.cells].slice(1).map(cell => cell.textContent))"
    )
    found: list[list[str]] = page.wait_for(lambda: page.run(script, f"{pane} tbody tr"))
    return found


def look_at(page: Browser, pane: str, *cells: str) -> None:
    """Select the event whose row has these cells."""
    found = [at for at, row in enumerate(rows(page, pane)) if set(cells) <= set(row)]
    page.click(f"{pane} tbody button", found[0])


def test_it_opens_at_the_end(page: Browser) -> None:
    assert "of" in page.text("#where")
    assert page.texts(".pane h2") == ["leases", "query"]
    assert page.texts(".step .name")[1] == "where user != 'root'"
    assert [row[0] for row in rows(page, ANSWER)].count("final") >= 4
    assert page.text(f"{ANSWER} .summary").startswith("10 inserts, ")


def test_stepping_forward_and_back(page: Browser) -> None:
    page.click("#to-start")
    assert page.text("#where").startswith("before the first of ")
    page.click("#on-step")
    assert "step 1 of 8" in page.text("#where")
    assert rows(page, ANSWER) == [["speculative", "1", "9", "Oslo", "1"]]
    page.click("#on-step")
    page.wait_for(lambda: len(rows(page, ANSWER)) == 3)
    page.click("#back-element")
    assert "step 2 of 8" in page.text("#where")
    page.click("#on-cti")
    assert "cti 3" in page.text("#where")
    page.click("#back-step")
    page.press("\ue00e")  # PageUp
    page.press("\ue010")  # End
    assert page.run(
        "return document.querySelector('#moment').value === document.querySelector('#moment').max"
    )


def test_an_answer_shows_its_life_and_what_caused_it(page: Browser) -> None:
    look_at(page, ANSWER, "Oslo", "taken back", "1")
    page.wait_for(lambda: "taken back" in page.text("#details .life"))
    life = page.texts("#details .life > li")
    assert life[0].startswith("step 2 said, until 9")
    assert "leases: insert of user bob, site Oslo" in life[0]
    assert "leases: insert of user kim, site Oslo" in life[1]
    page.click("#details .causes button")
    assert page.text("#details h2") == "leases"
    assert page.text("#details dd") == "bob"


def test_an_answer_shows_why(page: Browser) -> None:
    look_at(page, ANSWER, "Oslo", "3", "4", "5")
    page.wait_for(lambda: "It rests on" in page.text(".reasons"))
    assert "by what had come until step 8" in page.text(".reasons")
    assert "3 leases alive in [4, 5): ann, bob, kim" in page.text(".reasons .steps")
    assert [text.split(" [")[0] for text in page.texts(".reasons .event")] == [
        f"user {user}, site Oslo" for user in ("ann", "bob", "kim")
    ]
    assert "no other event of leases with site = Oslo from 4 to 5" in page.text(".reasons .absence")
    assert len(page.find(".step.lit")) == 3
    assert len(page.find(".lines path.lit")) == 2
    page.click(".reasons .event", 1)
    assert page.texts("#details dd")[:2] == ["bob", "Oslo"]


def test_an_answer_that_was_taken_back_is_explained_by_what_was_known(page: Browser) -> None:
    look_at(page, ANSWER, "Oslo", "taken back", "1", "5", "9")
    page.wait_for(lambda: "It rests on" in page.text(".reasons"))
    assert "by what had come until step 4" in page.text(".reasons")  # kim came in step 5
    assert [text.split(",")[0] for text in page.texts(".reasons .event")] == ["user ann", "user bob"]


def test_an_input_shows_what_it_changed(page: Browser) -> None:
    look_at(page, SOURCE, "kim")
    page.wait_for(lambda: "Without it" in page.text(".reasons"))
    changed = page.texts(".reasons .event")
    assert "user kim, site Oslo [4, 7) final" in changed
    assert "site Oslo, n 3 [4, 5) final" in changed
    assert "site Oslo, n 1 [5, 6)" in page.text(".reasons")  # what would be there instead
    assert len(page.find(".step.lit")) == 3
    look_at(page, SOURCE, "root")
    page.wait_for(lambda: "Nothing: in the end" in page.text(".reasons"))


def test_clicking_a_bar_selects_it(page: Browser) -> None:
    page.type("#search", "site=Rome")
    page.wait_for(lambda: "of 6 match" in page.text(f"{SOURCE} .summary") or None)
    place = page.run(
        "const c = document.querySelector(arguments[0]); return [c.clientWidth, c.clientHeight]",
        f"{ANSWER} canvas",
    )
    page.click_at(f"{ANSWER} canvas", 132 + 0.35 * (place[0] - 132), 24 + 6 + 7)
    page.wait_for(lambda: page.text("#details h2") == "query")
    assert "Rome" in page.texts("#details dd")


def test_a_filter_leaves_what_matches(page: Browser) -> None:
    page.type("#search", "bob")
    page.wait_for(lambda: len(rows(page, SOURCE)) == 1)
    assert rows(page, SOURCE)[0][3:] == ["bob", "Oslo"]
    assert "1 of 6 match" in page.text(f"{SOURCE} .summary")


def test_two_moments_side_by_side(page: Browser) -> None:
    page.click("#to-start")
    page.click("#on-step")
    page.click("#pin")
    page.click("#to-end")
    page.wait_for(lambda: len(page.find(f"{SOURCE} canvas")) == 2)
    assert "5 came, 0 went, 1 changed" in page.text(f"{SOURCE} .summary")
    page.click("#pin")
    page.wait_for(lambda: len(page.find(f"{SOURCE} canvas")) == 1)


def test_a_payload_stays_text(page: Browser) -> None:
    look_at(page, SOURCE, HOSTILE)
    assert HOSTILE in page.texts("#details dd")
    assert page.run("return document.images.length + document.querySelectorAll('main script').length") == 0


def test_everything_has_a_name(page: Browser) -> None:
    unnamed = page.run(
        "return [...document.querySelectorAll('button, input, select, canvas, a')].filter(e => !("
        "e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim()))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert page.run("return document.querySelectorAll('[role=toolbar][aria-label], [aria-live]').length") >= 3


def test_the_keyboard_is_enough(page: Browser) -> None:
    page.press("\ue011")  # Home
    assert page.text("#where").startswith("before the first of ")
    page.press("\ue014")  # right
    assert "after element 1 of" in page.text("#where")
    page.press("\ue00f")  # PageDown
    assert "step 1 of 8" in page.text("#where")
    page.press("c")
    assert "cti 3" in page.text("#where")
    page.press("p")
    page.wait_for(lambda: len(page.find(f"{SOURCE} canvas")) == 2)
    page.press("p")
    page.press(" ")
    page.wait_for(lambda: "step 5 of 8" in page.text("#where"))
    page.press(" ")
    assert page.run("return document.querySelector('#play').getAttribute('aria-pressed')") == "false"
    rows(page, SOURCE)
    page.run("document.querySelector(arguments[0]).focus()", f"{SOURCE} tbody button")
    page.press("\ue007")  # Enter
    page.wait_for(lambda: page.text("#details h2") == "leases")
    page.press("\ue00c")  # Escape
    page.wait_for(lambda: page.text("#details h2") == "Nothing selected")
    page.press("/")
    assert page.run("return document.activeElement.id") == "search"


def contrast(page: Browser) -> float:
    """Of the text with its ground, as the guidelines for accessible pages count it; 4.5 is enough."""
    script = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    light = sorted(
        0.05 + sum(share * _linear(int(part)) for share, part in zip(_SHARES, found, strict=True))
        for found in (re.findall(r"\d+", colour)[:3] for colour in page.run(script))
    )
    return light[1] / light[0]


_SHARES = (0.2126, 0.7152, 0.0722)


def _linear(part: int) -> float:
    return part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4


def test_dark_and_light(page: Browser, served: InspectorServer, tmp_path: Path) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    assert contrast(page) > 7
    page.run(
        "const t = document.querySelector('#theme'); t.value = 'dark'; t.dispatchEvent(new Event('change'))"
    )
    dark = page.run(ground)
    assert dark != light
    assert contrast(page) > 7
    with Browser(tmp_path, is_dark=True) as at_night:  # the system's choice, nothing clicked
        at_night.open(served.address)
        assert at_night.run(ground) == dark


def test_the_exported_page_works_alone(page: Browser) -> None:
    file = page.downloads / "page.html"
    page.click("#export")
    page.wait_for(file.exists)
    text = file.read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    page.open(file.as_uri())
    page.click("#to-start")
    page.click("#on-step")
    assert "step 1 of 8" in page.text("#where")
    assert rows(page, ANSWER) == [["speculative", "1", "9", "Oslo", "1"]]
    page.click("#to-end")
    look_at(page, SOURCE, "kim")
    page.wait_for(lambda: "answers rest on it" in page.text(".reasons"))
    assert "site Oslo, n 3 [4, 5) final" in page.texts(".reasons .event")
    look_at(page, ANSWER, "Oslo", "3", "4", "5")
    page.wait_for(lambda: "ann, bob, kim" in page.text(".reasons .steps div"))
    assert page.run("return document.querySelector('#export').hidden")


def test_every_moment_shows_what_was_believed_then(browser: Browser, tmp_path: Path) -> None:
    """Judged by the reconstitution of the elements that had come."""
    batches = revised(5, 6)
    elements = [element for batch in batches for element in batch.to_elements()][:90]
    stream = from_elements(elements, SCHEMA)
    live = rc.session(rc.source("s", SCHEMA), batch_size=1)
    with rc.record(live, tmp_path / "r"):
        live.push("s", elements)
    shown = Shown("moments", [("r", read_recording(tmp_path / "r"))])
    file = tmp_path / "page.html"
    file.write_text(
        page_in_one_file(Questions(shown, [partial(read_recording, tmp_path / "r")], None).export({})),
        encoding="utf-8",
    )
    browser.open(file.as_uri())
    browser.click("#ghosts")
    go = (
        "const slider = document.querySelector('#moment'); slider.value = arguments[0];"
        "slider.dispatchEvent(new Event('input'))"
    )

    def shows(wanted: list[list[str]]) -> bool:
        return sorted(row[1:3] for row in rows(browser, "#pane-0-0")) == wanted

    for moment in (1, 7, 30, 31, 32, 60, 89, 90):
        browser.run(go, moment)
        history = reconstitute([stream.slice(0, moment)], SCHEMA)
        wanted = sorted([str(e.vs), "∞" if e.ve == rc.FOREVER else str(e.ve)] for e in history.to_events())
        assert f"after element {moment} of 90" in browser.text("#where")
        browser.wait_for(partial(shows, wanted))
    assert browser.complaints() == []


def test_one_stream_over_another(browser: Browser, recorded: Path, tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    with rc.record(live, tmp_path / "other"):
        live.push("leases", [lease("ann", "Oslo", 1, 9)])
    folders = [recorded, tmp_path / "other"]
    shown = Shown("two", [(folder.name, read_recording(folder)) for folder in folders])
    file = tmp_path / "two.html"
    file.write_text(
        page_in_one_file(
            Questions(shown, [partial(read_recording, one) for one in folders], None).export({})
        ),
        encoding="utf-8",
    )
    browser.open(file.as_uri())
    script = (
        "const s = [...document.querySelectorAll('#pane-0-2 select')][1]; s.value = '1:2';"
        "s.dispatchEvent(new Event('change'))"
    )
    browser.run(script)
    browser.wait_for(lambda: "only left" in browser.text(f"{ANSWER} .summary"))
    assert browser.text(f"{ANSWER} .summary").endswith("8 only left, 1 only right")
    browser.click("#to-start")
    browser.click("#on-step")
    browser.wait_for(lambda: "equivalent to" in browser.text(f"{ANSWER} .summary"))
    look_at(browser, SOURCE, "ann")  # the query is not known: what came in the same step is shown
    browser.wait_for(lambda: "these changed downstream" in browser.text(".reasons"))
    assert browser.complaints() == []


def test_differences_are_those_of_the_histories(browser: Browser, tmp_path: Path) -> None:
    """Two streams laid over each other, the second without some events, judged by their histories."""
    batches, folders = revised(5, 6), [tmp_path / "left", tmp_path / "right"]
    for folder in folders:
        live = rc.session(rc.source("s", SCHEMA, on_violation="drop"))
        with rc.record(live, folder):
            for number, batch in enumerate(batches):
                is_left_out = folder.name == "right" and number == 2
                live.push("s", batch.filter(~batch.is_data()) if is_left_out else batch)
    fed = [read_recording(folder).by_step("s") for folder in folders]
    shown = Shown("two", [(folder.name, read_recording(folder)) for folder in folders])
    asked = Questions(shown, [partial(read_recording, folder) for folder in folders], None)
    (tmp_path / "two.html").write_text(page_in_one_file(asked.export({})), encoding="utf-8")
    browser.open((tmp_path / "two.html").as_uri())
    browser.run(
        "const s = document.querySelectorAll('#pane-0-0 select')[1]; s.value = '1:0';"
        "s.dispatchEvent(new Event('change'))"
    )
    browser.click("#to-start")
    for step in range(1, len(batches) + 1):
        browser.click("#on-step")
        come = ([batch for number, batch in own.items() if number <= step] for own in fed)
        left, right = (Counter(map(str, reconstitute(own, SCHEMA).to_events())) for own in come)
        only = [f"{(one - other).total():,}" for one, other in ((left, right), (right, left))]
        words = f"{only[0]} only left, {only[1]} only right" if left != right else "equivalent to"
        browser.wait_for(lambda words=words: words in browser.text("#pane-0-0 .summary"))  # type: ignore[misc]
    assert left != right
    assert browser.complaints() == []


@pytest.mark.parametrize(("policy", "words"), [("drop", "1 late · 1 dropped"), ("adjust", "1 late")])
def test_the_plan_shows_what_came_late(browser: Browser, tmp_path: Path, policy: Any, words: str) -> None:
    live = rc.session(rc.source("leases", ONLINE.schema, on_violation=policy))
    with rc.record(live, tmp_path / "r"):
        live.push("leases", [rc.Cti(7), rc.Insert({"site": "Oslo", "n": 1}, 6, 9)])
    shown = Shown("late", [("r", read_recording(tmp_path / "r"))])
    asked = Questions(shown, [partial(read_recording, tmp_path / "r")], None)
    (tmp_path / "late.html").write_text(page_in_one_file(asked.export({})), encoding="utf-8")
    browser.open((tmp_path / "late.html").as_uri())
    assert f" · {words}" in browser.text(".step .numbers")
    assert ("dropped" in browser.text(".step .numbers")) == (policy == "drop")


def test_a_growing_recording_is_followed(browser: Browser, tmp_path: Path) -> None:
    live = rc.session(ONLINE)
    recorder = rc.record(live, tmp_path / "r")
    shown = Shown("growing", [("r", read_recording(tmp_path / "r"))])
    with InspectorServer(Questions(shown, [partial(read_recording, tmp_path / "r")], None).answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        browser.open(server.address)
        assert browser.text("#where") == "before the first of 0 elements"
        live.push("leases", [lease("ann", "Oslo", 1, 9)])
        recorder.flush()
        browser.wait_for(lambda: "after element 2 of 2" in browser.text("#where"))
        live.push("leases", [lease("bob", "Oslo", 1, 9)])
        recorder.close()
        browser.wait_for(lambda: "after element 5 of 5" in browser.text("#where"))
        server.shutdown()
        thread.join()
    assert browser.complaints() == []
