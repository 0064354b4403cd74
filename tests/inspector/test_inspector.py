"""What the page is given and who may ask for it; no browser is needed."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.inspector.conftest import HOSTILE, LEASES, ONLINE, lease
from tests.runners.spark.sinks.feeding import fed, revised

import recension as rc
from recension.cli import main
from recension.inspector.export import modules, page_in_one_file
from recension.inspector.page_data import Shown, encode_texts, show_value
from recension.inspector.questions import Questions
from recension.inspector.replay import Replay, name_events
from recension.inspector.server import InspectorServer
from recension.runners.recording import read_recording
from recension.runners.spark.sinks.changelog import Changelog


def ask(server: InspectorServer, path: str, host: str | None = None, method: str = "GET") -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.parametrize("address", ["http://[", "http://[::1/x"])
def test_what_is_no_address_is_refused(
    address: str, served: InspectorServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ask(served, address, "anyone").status == 400
    assert ask(served, f"/{served.secret}/data").status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_it_answers_only_who_knows_the_address(served: InspectorServer) -> None:
    root = f"/{served.secret}/"
    assert ask(served, root).status == 200
    assert ask(served, root + "data").status == 200
    assert ask(served, "/").status == 404
    assert ask(served, "/data").status == 404
    assert ask(served, root.replace(served.secret, served.secret[:-1])).status == 404
    assert ask(served, root, host="evil.example").status == 404  # a name that leads to the loopback
    assert ask(served, root, host=f"localhost:{served.server_port}").status == 200
    assert ask(served, root + "../../../pyproject.toml").status == 404
    assert ask(served, root + "data", method="POST").status == 501
    assert served.server_address[0] == "127.0.0.1"


def test_the_policy_lets_nothing_else_in(served: InspectorServer) -> None:
    for name in ("", "main.js", "style.css", "data", "page.html"):
        policy = ask(served, f"/{served.secret}/{name}").headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_a_question_that_makes_no_sense_is_refused_in_words(served: InspectorServer) -> None:
    for words in ("edge=0:2&elements=1", "edge=x&elements=1", "elements=1", "edge=1:0&elements=1"):
        assert ask(served, f"/{served.secret}/effect?{words}").status == 400
    assert ask(served, f"/{served.secret}/data?after=x").status == 400


def test_the_one_file_is_inert_and_fetches_nothing(questions: Questions) -> None:
    page = page_in_one_file(questions.export({}))
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    texts = [column["texts"] for edge in json.loads(data)["edges"].values() for column in edge["columns"]]
    assert any(HOSTILE in one for one in texts)
    assert "<img" not in data
    assert page.count("</script>") == 2
    assert not re.search(r'(src|href)="(?!#)', page.split("<body>")[0])
    (program,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    (digest,) = re.findall(r"script-src 'sha256-([^']+)'", page)
    assert b64decode(digest) == sha256(program.encode()).digest()


def test_the_modules_can_stand_one_after_the_other() -> None:
    """Their top-level names differ, and no data becomes markup."""
    pattern = r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)"
    names = [name for text in modules().values() for name in re.findall(pattern, text, re.MULTILINE)]
    assert len(names) == len(set(names))
    whole = "".join(modules().values())
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert forbidden not in whole
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", whole)


def test_only_the_last_elements_are_shown_if_there_are_too_many(recorded: Path) -> None:
    whole = Shown("x", [("r", read_recording(recorded))]).whole()
    every = sum(edge["size"] for edge in whole["edges"].values())
    some = Shown("x", [("r", read_recording(recorded))], limit=10).whole()
    left = sum(edge["size"] for edge in some["edges"].values())
    assert whole["notes"] == []
    assert left <= 10
    assert some["left_out"] == [
        f"this page has at most the last 10 elements, and not the {every - left} that came before; "
        "--limit shows more"
    ]


def test_values_of_every_type_become_texts() -> None:
    columns = [pa.array([1.5, None, 1.5]), pa.array([[1], None, [1]]), pa.array([{"a": 1}, None, {"a": 1}])]
    for column in columns:
        found = encode_texts(pa.chunked_array([column]))
        codes = np.frombuffer(b64decode(found["codes"]), "<u4")
        assert len(found["texts"]) == 1
        assert codes.tolist() == [0, 0xFFFFFFFF, 0]
    one, other = (show_value("x" * 3000 + end) for end in "ab")
    assert one != other
    assert one.startswith("x" * 2000 + "… (3,001 characters, digest ")


def test_an_effect_is_what_differs_without_the_event(recorded: Path) -> None:
    replay = Replay(read_recording(recorded), ONLINE.plan)
    found = replay.effect(0, [1])["edges"]  # bob, at Oslo in [3, 5)
    because = {(event["vs"], event["ve"], event["texts"]["n"]) for event in found["0:2"]["because"]}
    instead = {(event["vs"], event["ve"], event["texts"]["n"]) for event in found["0:2"]["instead"]}
    assert because == {("1", "3", "1"), ("3", "4", "2"), ("4", "5", "3"), ("5", "6", "2")}
    assert instead == {("1", "4", "1"), ("4", "6", "2")}
    assert [event["texts"]["user"] for event in found["0:1"]["because"]] == ["bob"]
    assert replay.effect(0, [7])["edges"] == {}  # root is filtered out
    with pytest.raises(rc.RecensionError, match="does not have the beginning of that event"):
        replay.effect(0, [5])  # the retraction alone
    with pytest.raises(rc.RecensionError, match="no such elements"):
        replay.effect(0, [99])


def test_a_replay_needs_all_of_the_inputs_and_the_same_query(tmp_path: Path, recorded: Path) -> None:
    with pytest.raises(rc.RecensionError, match="not the one that was recorded"):
        Replay(read_recording(recorded), LEASES.plan)
    live = rc.session(ONLINE)
    live.push("leases", [lease("ann", "Oslo", 1, 9)])
    with rc.record(live, tmp_path / "late"):
        pass
    with pytest.raises(rc.RecensionError, match="does not hold all of its inputs"):
        Replay(read_recording(tmp_path / "late"), ONLINE.plan)
    with rc.record(rc.session(ONLINE), tmp_path / "answer", edges=["query"]):
        pass
    with pytest.raises(rc.RecensionError, match="leases was not recorded"):
        Replay(read_recording(tmp_path / "answer"), ONLINE.plan)


def test_a_changelog_of_spark_is_shown_by_micro_batches(tmp_path: Path) -> None:
    """Each micro-batch is a step, at the wall clock it was planned at."""
    batches = revised(0, 4)
    for number, batch in enumerate(batches):
        Changelog(tmp_path / "log").apply(fed(batch, number, at=(number + 1) * 1_000_000))
    page = tmp_path / "page.html"
    assert main(["inspect", str(tmp_path / "log"), "--export", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    shown = json.loads(data)
    assert np.frombuffer(b64decode(shown["steps"]), "<u4").tolist() == [1, 2, 3, 4]
    assert np.frombuffer(b64decode(shown["at"]), "<i8").tolist() == [n * 1_000_000 for n in (1, 2, 3, 4)]
    # The CTIs of a step are one.
    assert shown["edges"]["0:0"]["size"] == sum(int(batch.is_data().sum()) + 1 for batch in batches)


A, B = rc.source("a", {"k": "string", "v": "int64"}), rc.source("b", {"k": "string", "w": "float64"})
AS: list[Any] = [rc.Insert({"k": "xy"[i % 2], "v": i}, 3 * i, 3 * i + 10) for i in range(6)]
BS: list[Any] = [rc.Insert({"k": "x", "w": i / 3}, 2 * i, 2 * i + 5) for i in range(4)]
ROWS = pa.table({"ts": [1, 3, 5], "id": [1, 1, 2], "x": ["p", "q", "r"]})
PARTS = pa.table({"_vs": [1, 2, 3], "_ve": [9, 9, 9], "part": [0, 1, 0], "k": ["x", "x", "y"], "v": [1, 2, 3],
                  "_kind": ["insert"] * 3})  # fmt: skip


@pytest.mark.parametrize(
    ("query", "pushes"),
    [
        (A.join(B, on="k", how="left"), {"a": AS, "b": BS}),
        (A.join(B, on="k", how="anti"), {"a": AS, "b": BS}),
        (A.group_by("k").hopping(10, 5).agg(n=rc.count(), speculate="eager"), {"a": AS}),
        (A.group_by("k").apply(lambda s: s.agg(n=rc.count(), speculate="eager")), {"a": AS}),
        (rc.merge(A, rc.source("a2", A.schema)), {"a": AS, "a2": AS}),
        (A.join(rc.table("t", {"k": "string"}), on="k"), {"t": pa.table({"k": ["x"]}), "a": AS}),
        (rc.changes("c", {"id": "int64", "x": "string"}, key="id", start="ts"), {"c": ROWS}),
        (rc.source("p", A.schema, partition="part").where(rc.col("v") > 1), {"p": PARTS}),
    ],
)
def test_every_kind_of_plan_can_be_looked_at(
    query: rc.Stream, pushes: dict[str, Any], tmp_path: Path
) -> None:
    live = rc.session(query)
    with rc.record(live, tmp_path / "r", edges="all"):
        for source, data in pushes.items():
            live.push(source, data)
    recording = read_recording(tmp_path / "r")
    questions = Questions(Shown("x", [("r", recording)]), [lambda: recording], query.plan)
    shown = questions.export({})
    assert shown["notes"] == []
    assert len(shown["reasons"]) == len(recording.stream("query").history()) > 0
    for edge in recording.sources.values():
        events = {(event["vs"], event["ve"]) for event in name_events(recording.stream(edge).history())}
        named = [e for one in shown["reasons"] for e in one["events"] if e["edge"] == f"0:{edge}"]
        assert {(event["vs"], event["ve"]) for event in named} <= events
        assert isinstance(questions.effect({"edge": f"0:{edge}", "elements": "0"})["edges"], dict)


def test_steps_that_a_rewrite_has_made_light_up_too(tmp_path: Path) -> None:
    """The count needs one column: it reads a narrower stream, of which the query as written says nothing."""
    query = LEASES.group_by("site").agg(n=rc.count(), speculate="eager")
    live = rc.session(query)
    with rc.record(live, tmp_path / "r", edges="all"):
        live.push("leases", [lease("ann", "Oslo", 1, 9)])
    recording = read_recording(tmp_path / "r")
    assert [step["label"] for step in recording.manifest["plan"]][1] == "select site"
    questions = Questions(Shown("x", [("r", recording)]), [lambda: recording], query.plan)
    assert questions.why({"edge": "0:2", "elements": "0", "until": "1"})["edges"] == ["0:0", "0:1", "0:2"]


QUERY = """
import recension as rc
query = rc.source('s', {'k': 'string'}).group_by('k').agg(n=rc.count(), speculate="eager")
"""


def test_the_command_writes_a_page_of_all_it_can_look_at(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s.csv").write_text("_vs,_ve,k\n1,5,a\n2,6,a\n")
    page = tmp_path / "page.html"
    query, stream = str(tmp_path / "q.py"), str(tmp_path / "s.csv")
    targets = [[query, "-i", f"s={stream}"], [str(recorded)], [stream], [stream, "--beside", stream]]
    for target in targets:
        page.unlink(missing_ok=True)
        assert main(["inspect", *target, "--export", str(page)]) == 0, capsys.readouterr().err
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for wrong, reason in (
        ([str(recorded), "-i", "s=x"], "--input is for a query"),
        ([stream, "-i", "s=x"], "queries are .py files"),
        ([str(tmp_path / "none")], "none"),
        ([query], "s"),
    ):
        assert main(["inspect", *wrong, "--export", str(page)]) == 2
        assert reason in capsys.readouterr().err
