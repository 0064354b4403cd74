"""The page "Add an aggregate" of CONTRIBUTING.md, followed: its code is taken from the page and run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.architecture.test_add_an_operator import ROOT, load

import recension as rc
from recension import denote
from recension.api import functions
from recension.lowering import operator_of
from recension.plan import aggregates
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.local_runners import LocalRunner
from recension.testing.runners import cases
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams
from recension.testing.transcripts import load_transcripts

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Add an aggregate")[1]
PAGE = PAGE.split("\n## ")[0]
BLOCKS = dict(re.findall(r"^`([\w/.]+)`\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SPEC, FUNCTION, MEANING, TRANSCRIPT = BLOCKS


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[denote.Aggregate]:
    """The aggregate is there; gives its denotation, over the column ``v``."""
    folder = tmp_path_factory.mktemp("added")
    with pytest.MonkeyPatch.context() as patch:
        spec = load(folder, "added_spec", "recension.plan.aggregates", BLOCKS[SPEC]).Product
        patch.setattr(aggregates, "Product", spec, raising=False)
        function = load(folder, "added_function", "recension.api.functions", BLOCKS[FUNCTION]).product
        for home in (functions, rc):
            patch.setattr(home, "product", function, raising=False)
        meaning = load(folder, "added_meaning_of", "recension.denote.aggregates", BLOCKS[MEANING]).product
        yield meaning("v")


@given(data=st.data())
@settings(max_examples=25)
def test_the_kernel_gives_what_the_denotation_says(product: denote.Aggregate, data: st.DataObject) -> None:
    query = rc.source("s", SCHEMA).agg(p=rc.product("v"), speculate="eager")  # type: ignore[attr-defined]
    drive = Driver(lambda: operator_of(query.plan), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(SCHEMA)))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), denote.snapshot(drive.input_history(), denote.agg(p=product)))


@pytest.mark.usefixtures("product")
def test_the_transcript_plays_on_the_local_engine(tmp_path: Path) -> None:
    (tmp_path / "aggregate.yaml").write_text(BLOCKS[TRANSCRIPT], encoding="utf-8")
    for case in cases(load_transcripts([tmp_path]), [LocalRunner("element"), LocalRunner("step")]):
        case.check()


def test_the_transcript_that_is_explained_plays_too(tmp_path: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## How to read a transcript")[1]
    (tmp_path / "explained.yaml").write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    for case in cases(load_transcripts([tmp_path]), [LocalRunner("element"), LocalRunner("step")]):
        case.check()


@pytest.mark.usefixtures("product")
def test_all_windows_and_explain_take_it() -> None:
    stream = rc.source("s", {"k": "string", "v": "int64"}).group_by("k")
    elements = [rc.Insert({"k": "a", "v": v}, at, at + 2) for at, v in ((1, 3), (2, 4), (12, 5))]
    for windows in (stream.tumbling(10), stream.hopping(10, 5), stream.snapshot(), stream.count_window(1)):
        query = windows.agg(p=rc.product("v"), n=rc.count())  # type: ignore[attr-defined]
        assert "product(v)" in query.explain()
        assert rc.run(query, {"s": elements}, close=True).history().to_events()
