"""The page "Add a span operator" of CONTRIBUTING.md, followed: its code is taken from the page and run.

And what is forgotten fails loudly: a question that a node leaves open, or a place that does not know a node.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recension as rc
from recension.api.span import SpanMethods
from recension.core.errors import RecensionError, SchemaError
from recension.lowering import operator_of
from recension.lowering.explain_choices import describe_choice
from recension.plan import nodes
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Count
from recension.plan.consistency import Consistency
from recension.plan.fragments import cut, describe_fragments
from recension.plan.levels import MIDDLE, STRONG, WEAK, at_level
from recension.plan.node import Node, walk
from recension.plan.rewrites import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.plan.span import SpanNode
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.local_runners import LocalRunner
from recension.testing.runners import cases
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams
from recension.testing.transcripts import load_transcripts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Add a span operator")[1]
PAGE = PAGE.split("\n## ")[0]
BLOCKS = dict(re.findall(r"^`([\w/.]+)`\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
NODE, METHOD, MEANING, TRANSCRIPT = BLOCKS
SPAN_QUESTIONS = sorted(SpanNode.__abstractmethods__)
QUESTIONS = sorted(Node.__abstractmethods__)


def load(folder: Path, name: str, host: str, code: str) -> Any:
    """Code of the page as a module of its own, with all that the file it belongs to has."""
    file = folder / f"{name}.py"
    file.write_text(f"from __future__ import annotations\n\n\n{code}", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    around = vars(importlib.import_module(host))
    vars(module).update({key: value for key, value in around.items() if not key.startswith("__")})
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Added:
    """What the page adds."""

    def __init__(self, folder: Path) -> None:
        self.node = load(folder, "added_node", "recension.plan.span", BLOCKS[NODE]).Fill
        self.meaning = load(folder, "added_meaning", "recension.denote.span", BLOCKS[MEANING]).fill
        api = load(folder, "added_method", "recension.api.span", BLOCKS[METHOD])
        api.Fill = self.node
        self.method: Callable[..., Any] = api.fill


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Added]:
    with pytest.MonkeyPatch.context() as patch:
        found = Added(tmp_path_factory.mktemp("added"))
        patch.setattr(SpanMethods, "fill", found.method, raising=False)
        yield found
    for name in ("added_node", "added_meaning", "added_method"):
        del sys.modules[name]


def stream() -> Any:
    return rc.source("s", {"k": "string", "v": "int64", "unread": "string"})


def labels(plan: Node) -> list[str]:
    return [node.label for node in walk(plan)][::-1]


def test_the_page_lists_five_files_and_all_are_there() -> None:
    listed = re.findall(r"^\| `([\w.]+/[\w/.]+)` \|", PAGE, re.MULTILINE)
    assert len(listed) <= 5
    assert set(BLOCKS) <= set(listed)
    assert all((ROOT / name).exists() for name in listed)


def test_the_page_lists_every_method_of_a_node() -> None:
    shared = {"label", "derive_schema"}
    listed = set(re.findall(r"`(\w+)`", PAGE.split("| method | called by |")[1].split("\n\n")[0]))
    assert set(QUESTIONS) - shared <= listed
    assert all(hasattr(Node, name) for name in listed - {"explain", "Finalize"} if name.islower())


@given(data=st.data())
@settings(max_examples=25)
def test_the_kernel_gives_what_the_denotation_says(added: Added, data: st.DataObject) -> None:
    node = added.node(rc.source("s", SCHEMA).plan, "v", 7)
    drive = Driver(lambda: operator_of(node), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(SCHEMA)))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), added.meaning(drive.input_history(), "v", 7))
        assert drive.cti == drive.input_cti()


def test_the_transcript_plays_on_the_local_engine(added: Added, tmp_path: Path) -> None:
    (tmp_path / "span.yaml").write_text(BLOCKS[TRANSCRIPT], encoding="utf-8")
    played = cases(load_transcripts([tmp_path]), [LocalRunner("element"), LocalRunner("step")])
    assert len(played) == 2
    for case in played:
        case.check()


def test_filters_and_unread_columns_pass_it(added: Added) -> None:
    query = stream().fill("v", 0).where(rc.col("k") == "a").select("v")
    (plan,) = optimize([query.plan])
    assert labels(plan)[:2] == ["select v", "fill v with 0"]
    assert "unread" not in plan.inputs[0].schema.names
    (staying,) = optimize([stream().fill("v", 0).where(rc.col("v") == 0).plan])
    assert labels(staying)[:2] == ["where v == 0", "fill v with 0"]


def test_it_is_spread_over_shards_with_its_reader(added: Added) -> None:
    words = describe_fragments(cut([stream().fill("v", 0).group_by("k").agg(n=rc.sum("v")).plan]))
    assert "reads s by k" in words
    counted = stream().group_by("k").agg(v=rc.sum("v")).fill("v", 0)
    assert len(cut([counted.group_by("k").agg(n=rc.sum("v")).plan])) == 1
    assert len(cut([counted.group_by("v").agg(n=rc.count()).plan])) == 2


def test_levels_explain_and_groups_take_it_as_it_is(added: Added) -> None:
    query = stream().fill("v", 0)
    for level in (STRONG, MIDDLE, WEAK):
        assert "fill v with 0" in labels(at_level(query.agg(n=rc.sum("v")).plan, level))
    assert "fill v with 0" in query.explain()
    applied = stream().select("k", "v").group_by("k").apply(lambda g: g.fill("v", 7).where(rc.col("v") > 5))
    session = rc.session(applied)
    rows: list[dict[str, Any]] = [{"k": "a", "v": None, "unread": None}, {"k": "b", "v": 3, "unread": None}]
    session.push("s", [rc.Insert(row, 1, 4) for row in rows])
    assert session.read().elements() == [rc.Insert({"k": "a", "v": 7}, 1, 4)]


@pytest.mark.parametrize("question", SPAN_QUESTIONS)
def test_a_span_node_that_leaves_a_question_open_cannot_be_built(added: Added, question: str) -> None:
    forgetful = type("Forgetful", (added.node,), {question: getattr(SpanNode, question)})
    with pytest.raises(TypeError, match=rf"Forgetful.*\b{question}\b"):
        forgetful(stream().plan, "v", 0)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_node_that_leaves_a_question_open_cannot_be_built(added: Added, question: str) -> None:
    forgetful = type("Forgetful", (added.node,), {question: getattr(Node, question)})
    with pytest.raises(TypeError, match=rf"Forgetful.*\b{question}\b"):
        forgetful(stream().plan, "v", 0)


def unknown(folder: Path) -> Node:
    """A node that answers everything and that no engine knows."""
    answers = """
    ignores_ctis = True
    named_times = ()

    def needs(self) -> None:
        return None
"""
    title = 'class Fill(SpanNode):\n    """A value where a column is null."""\n'
    code = BLOCKS[NODE].replace(title, f"class Unknown(TimedNode):\n{answers}")
    made: Node = load(folder, "unknown_node", "recension.plan.span", code).Unknown(stream().plan, "v", 0)
    del sys.modules["unknown_node"]
    return made


def test_engines_and_explain_refuse_a_node_that_they_do_not_know(tmp_path: Path) -> None:
    node = unknown(tmp_path)
    with pytest.raises(RecensionError, match="the local engine cannot run 'fill v with 0'"):
        operator_of(node)
    with pytest.raises(RecensionError, match="explain cannot say how 'fill v with 0' is done"):
        describe_choice(node)
    lower = pytest.importorskip("recension.runners.spark.batch.lower")
    with pytest.raises(RecensionError, match="batch: cannot run 'fill v with 0'"):
        lower.require_runnable(node)


@dataclass(frozen=True, eq=False)
class OverSessions(AggregateNode):
    """An aggregate over windows of a kind that nobody knows; it must not be taken for one per snapshot."""

    named_times = ()

    def derive_properties(self) -> rc.Properties:
        return rc.Properties()


def test_an_aggregate_over_windows_of_another_kind_is_refused() -> None:
    node = OverSessions(stream().plan, (), (("n", Count()),), "eager")
    with pytest.raises(RecensionError, match="the local engine cannot run 'aggregate n = count"):
        operator_of(node)
    with pytest.raises(RecensionError, match="explain cannot say"):
        describe_choice(node)
    assert preaggregate([node]) == [node]
    lower = pytest.importorskip("recension.runners.spark.batch.lower")
    with pytest.raises(RecensionError, match="batch: cannot run"):
        lower.require_runnable(node)


@pytest.mark.parametrize("question", sorted(Consistency.__abstractmethods__))
def test_a_step_of_consistency_that_leaves_a_question_open_cannot_be_built(question: str) -> None:
    forgetful = type("Forgetful", (nodes.Align,), {question: getattr(Consistency, question)})
    with pytest.raises(TypeError, match=rf"Forgetful.*\b{question}\b"):
        forgetful(stream().plan, 5)


def test_what_stands_for_a_stream_is_no_step() -> None:
    with pytest.raises(SchemaError, match="source s cannot be done for every group"):
        stream().plan.with_group_keys(("k",), [])
