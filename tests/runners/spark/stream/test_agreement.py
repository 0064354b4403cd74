"""Transcripts and random plans on real Spark, in one and in three shards."""

from __future__ import annotations

import runpy
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.covering import one_of_every_method
from tests.lineage.judge import Judge
from tests.properties.plans import Plan, plans
from tests.properties.test_random_plans import KNOWN, interleavings
from tests.runners.spark.stream.many import Turn, run_together
from tests.runners.spark.stream.rehearsal import Rehearsal
from tests.runners.spark.stream.united import Places

import recension as rc
from recension.core.batch import EventBatch, from_elements
from recension.core.events import Element, Event, ExternalCti, kind_of_element
from recension.core.time_kind import merge_kinds
from recension.plan.node import Node
from recension.plan.properties import Properties
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.runners import Outcome, check_outcomes
from recension.testing.strategies import SCHEMA
from recension.testing.transcripts import OUTPUT, Transcript, load_transcripts

TRANSCRIPTS = [
    transcript
    for transcript in load_transcripts([Path(__file__).parents[3] / "transcripts"])
    # A refusal would end the query for all of them; see test_bad_input.py.
    if transcript.query is not None and not any(step.refused for step in transcript.steps)
    # Their elements have no column of partitions; see test_rehearsed_partitions.py.
    if not transcript.has_partitions
]
PLANS = 24
EXAMPLE = runpy.run_path(str(Path(__file__).parents[4] / "examples" / "modules.py"))


class Written:
    """A transcript as a query of its own among others: its sources have names of their own."""

    def __init__(self, number: int, transcript: Transcript) -> None:
        self.transcript = transcript
        self._names = {name: f"{number}/{name}" for name in transcript.inputs}
        counted = {n for step in transcript.steps for n, e in step.input if isinstance(e, ExternalCti)}
        sources = {
            n: rc.source(self._names[n], schema, external_ctis=n in counted)
            for n, schema in transcript.inputs.items()
        }
        self.query: Node = transcript.build({"rc": rc, "col": rc.col, **sources}).plan

    def turns(self) -> list[Turn]:
        schemas = {name: rc.source(name, of).schema for name, of in self.transcript.inputs.items()}
        turns: list[Turn] = []
        for step in self.transcript.steps:
            given: dict[str, list[Element]] = {}
            for name, element in step.input:
                given.setdefault(name, []).append(element)  # type: ignore[arg-type]
            turns.append(
                {self._names[name]: [from_elements(own, schemas[name])] for name, own in given.items()}
            )
        return turns

    def check(self, answers: list[EventBatch]) -> None:
        shown, outcomes = StreamModel(), []
        expected = [e for step in self.transcript.steps for own in (step.history or {}).values() for e in own]
        kind = reduce(merge_kinds, map(kind_of_element, expected), None)
        for answer in answers[: len(self.transcript.steps)]:
            elements = answer.to_elements(kind)
            for element in elements:
                shown.take(element)
            outcomes.append(Outcome({OUTPUT: elements}, {OUTPUT: shown.events()}))
        check_outcomes(self.transcript, outcomes, "spark stream", is_exact=False)


class Drawn:
    """A random plan over its own two sources, with what arrives there."""

    def __init__(self, number: int, plan: Plan, known: Properties, arriving: Any) -> None:
        self._plan, self._arriving = plan, arriving
        self._names = {name: f"plan {number}/{name}" for name in ("s", "t")}
        s, t = (rc.source(name, SCHEMA, properties=known) for name in self._names.values())
        self.query: Node = plan.build(s, t).plan

    def turns(self) -> list[Turn]:
        return [{self._names[source]: [from_elements(own, SCHEMA)]} for source, own in self._arriving]

    def check(self, answers: list[EventBatch]) -> None:
        inputs, shown = {"s": StreamModel(), "t": StreamModel()}, StreamModel()
        for source, own in self._arriving:
            for element in own:
                inputs[source].take(element)
        for answer in answers:
            for element in answer.to_elements():
                assert (fault := shown.fault(element)) is None, f"{self._plan}: {element} {fault}"
                shown.take(element)
        histories = {name: model.events() for name, model in inputs.items()}
        assert_equivalent(shown.events(), self._plan.meaning(histories["s"], histories["t"]))
        self._explain(shown.events(), histories)

    def _explain(self, shown: list[Event], histories: dict[str, list[Event]]) -> None:
        """Why of one answer that Spark has given."""
        if not shown:
            return
        query = self._plan.build(*(rc.source(name, SCHEMA) for name in histories)).plan
        judge = Judge(query, lambda given: self._plan.meaning(list(given["s"]), list(given["t"])), histories)
        feeds = {
            name: [e for source, own in self._arriving if source == name for e in own] for name in histories
        }
        answer = shown[len(shown) // 2]
        judge.check(answer, judge.why(answer, feeds))


class Exemplified:
    """A query of the example modules, all of which read one source."""

    def __init__(self, query: Any) -> None:
        self._query, self.query = query, query.plan

    def turns(self) -> list[Turn]:
        events, schema = EXAMPLE["EVENTS"], EXAMPLE["readings"].schema
        return [{"readings": [from_elements(part, schema)]} for part in (events[:4], events[4:8], events[8:])]

    def check(self, answers: list[EventBatch]) -> None:
        shown = StreamModel()
        for answer in answers:
            for element in answer.to_elements():
                assert (fault := shown.fault(element)) is None, f"{self._query}: {element} {fault}"
                shown.take(element)
        local = rc.run(self._query, {"readings": EXAMPLE["EVENTS"]})
        assert_equivalent(shown.events(), local.history().to_events())


def _drawn() -> list[Drawn]:
    """The same sample every time."""
    found: list[Drawn] = []

    @seed(20)
    @given(st.data())
    @settings(
        max_examples=PLANS,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    def draw(data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(KNOWN))
        found.append(Drawn(len(found), data.draw(plans()), known, data.draw(interleavings(known))))

    draw()
    return found


Case: TypeAlias = Written | Drawn | Exemplified


def agree(spark: Any, cases: list[Case], shards: int, folder: Path, where: Places | None = None) -> None:
    """Run all cases in one pipeline and check what each put out, by way of tables if they are named."""
    steps = [case.turns() for case in cases]
    turns = [
        {name: own for turn in steps if number < len(turn) for name, own in turn[number].items()}
        for number in range(max(map(len, steps)))
    ]
    answers = run_together(spark, [case.query for case in cases], turns, shards, folder, where=where)
    for case, answer in zip(cases, answers, strict=True):
        case.check(answer)


def sample(transcripts: int = 1, plans: int = PLANS) -> list[Case]:
    """Every so many-th transcript, some random plans, and the example modules."""
    written = [Written(i, one) for i, one in enumerate(TRANSCRIPTS[::transcripts])]
    return [*written, *_drawn()[:plans], *map(Exemplified, EXAMPLE["QUERIES"].values())]


def _by_depth(cases: list[Case], shards: int) -> dict[str, list[Case]]:
    """There is a task for each shard of each level, and each loads all queries: those of one level apart."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        is_flat = Rehearsal([case.query], shards).plan.levels == 1
        found.setdefault("flat" if is_flat else "deep", []).append(case)
    return found


def test_every_method_and_some_random_plans(spark: Any, tmp_path: Path) -> None:
    """In few micro-batches."""
    short = [transcript for transcript in TRANSCRIPTS if len(transcript.steps) <= 4]
    written = [Written(i, one) for i, one in enumerate(one_of_every_method(short))]
    drawn = [one for one in _drawn() if len(one.turns()) <= 4]
    agree(spark, [*written, *drawn[:4], Exemplified(next(iter(EXAMPLE["QUERIES"].values())))], 3, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("shards", [1, 3])
def test_transcripts_and_random_plans(spark: Any, tmp_path: Path, shards: int) -> None:
    for name, cases in _by_depth(sample(), shards).items():
        (tmp_path / name).mkdir()
        agree(spark, cases, shards, tmp_path / name)


def small_sample() -> list[Case]:
    """Few cases in two micro-batches: each is a commit or more of either table."""
    return [case for case in sample(12, 4) if len(case.turns()) <= 2]


def test_by_way_of_delta(delta: Any, tmp_path: Path) -> None:
    """The other stores, sessions and machines are in ``lake/test_cells.py``."""
    where = Places(f"delta:{tmp_path}/log", f"delta:{tmp_path}/table", f"{tmp_path}/ck")
    agree(delta, small_sample(), 2, tmp_path, where)


def test_by_way_of_iceberg(iceberg: Any, lake: str, tmp_path: Path) -> None:
    agree(
        iceberg, small_sample(), 2, tmp_path, Places(f"{lake}.db.log", f"{lake}.db.table", f"{tmp_path}/ck")
    )
