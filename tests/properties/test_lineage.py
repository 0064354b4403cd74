"""What `why` names, judged by the oracle: it suffices, nothing else matters, and the marks are right.

Inputs come as physical streams, with retractions and CTIs. Answers are those of the local engine; those of
Spark are asked about in `runners/spark`. Each is explained three times: with all of the inputs at hand, with
only those parts that it reaches, and with these parts read from files. Its biography must end with it, and be
that of a run over these inputs. Of some queries all answers are traced, without the rest: that costs little.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from tests.lineage.judge import Judge, answers_given, traces
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan, plans

import recension as rc
from recension import Insert
from recension.core.batch import from_elements
from recension.core.formats import write_stream
from recension.gate.files import StreamReader, open_stream
from recension.lineage import explain_answer
from recension.lineage.result import is_same
from recension.plan.source import sources_of
from recension.runners.finite import run
from recension.testing.strategies import SCHEMA, histories, physical_streams

# How early answers are shown makes no difference to what they rest on; groups are in `test_random_plans`.
KINDS = [
    step for step in STEPS if not any(word in step.name for word in (" perfect", " ordered", "eager by k"))
]
# Groups too: here every step is followed by every other.
EARLY = [step for step in STEPS if not any(word in step.name for word in (" perfect", " ordered"))]


def check_plan(data: st.DataObject, plan: Plan, *, in_files: bool = True) -> None:
    """An answer of the local engine, explained and judged by the oracle; from memory, and from files."""
    inputs = {name: data.draw(histories(min_size=1, max_size=4)) for name in ("s", "t")}
    feeds = {name: data.draw(physical_streams(history)) for name, history in inputs.items()}
    query = plan.build(*(rc.source(name, SCHEMA) for name in ("s", "t")))
    read = {name: feeds[name] for name in sources_of(query.plan)}
    answers = rc.run(query, read, close=True).history().to_events()
    assume(answers)
    answer = data.draw(st.sampled_from(answers))
    removed = data.draw(st.lists(st.integers(0, 9), max_size=4))
    judge = Judge(query.plan, lambda given: plan.meaning(list(given["s"]), list(given["t"])), inputs)
    whole = judge.why(answer, feeds, biography=True)
    note(str(whole))
    judge.check(answer, whole, removed)
    part = judge.why(answer, feeds, -1, biography=in_files)
    assert part.named == whole.named
    if in_files:
        with TemporaryDirectory() as folder:
            files = {name: _in_files(feed, Path(folder) / name) for name, feed in read.items()}
            assert str(judge.why(answer, files, -1, biography=True)) == str(part)
    life = whole.biography
    assert life is not None
    assert life.final is not None
    assert any(is_same(answer.payload, said.payload) for said in life.revisions[-1].after)


@given(st.data())
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
def test_all_answers_of_two_steps(data: st.DataObject) -> None:
    """Nothing unnamed matters, and nothing new where no absence says so."""
    plan = Plan(tuple(data.draw(st.lists(st.sampled_from(EARLY), min_size=2, max_size=2))))
    inputs = {name: data.draw(histories(min_size=1, max_size=6)) for name in ("s", "t")}
    query = plan.build(*(rc.source(name, SCHEMA) for name in ("s", "t"))).plan
    feeds = {n: [Insert(e.payload, e.vs, e.ve) for e in inputs[n]] for n in sources_of(query)}
    judge = Judge(query, lambda given: plan.meaning(list(given["s"]), list(given["t"])), inputs)
    added = {name: data.draw(histories(max_size=4)) for name in feeds}
    note(f"{plan} of {inputs}, with {added}")
    small = data.draw(st.sampled_from([1000, -1]))
    for answer, trace in traces(query, feeds, small=small):
        judge.check(answer, trace)
        judge.check_absences(answer, trace.absences, added)


@given(st.data())
@settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))
def test_the_biography_is_what_a_run_has_given(data: st.DataObject) -> None:
    """After each element, in the order of `rc.run`, whichever source comes first and is closed or not."""
    plan = Plan(tuple(data.draw(st.lists(st.sampled_from(EARLY), min_size=1, max_size=2))))
    query = plan.build(*(rc.source(name, SCHEMA) for name in ("s", "t"))).plan
    names = data.draw(st.permutations(list(sources_of(query))))
    feeds = {
        name: data.draw(physical_streams(data.draw(histories(min_size=1, max_size=4)))) for name in names
    }
    close = data.draw(st.booleans())
    answers = run(query, feeds, close=True).history().to_events()
    assume(answers)
    answer = data.draw(st.sampled_from(answers))
    found = explain_answer(query, feeds, answer, marks=False, close=close, batch_size=1)
    assert found.biography is not None
    told = [sorted(map(str, one.after)) for one in found.biography.revisions]
    given = answers_given(query, feeds, found.question, batch_size=1, close=close)
    note(str(found))
    assert told == given
    assert found.biography.is_shown == (str(answer) in (given or [[]])[-1])


def _in_files(feed: Sequence[Any], folder: Path) -> StreamReader:
    """The same stream in two Parquet files with small row groups, in batches of two, as `Judge` has it."""
    folder.mkdir()
    for number, part in enumerate((feed[:4], feed[4:])):
        file = folder / f"{number}.parquet"
        write_stream(file, [from_elements(part, SCHEMA)], SCHEMA)
        pq.write_table(pq.read_table(file), file, row_group_size=2)
    return open_stream(folder, schema=SCHEMA, batch_size=2)


@given(st.data())
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    check_plan(data, data.draw(plans()))


@pytest.mark.parametrize("step", KINDS, ids=repr)
@given(st.data())
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
def test_each_operator(step: Any, data: st.DataObject) -> None:
    check_plan(data, Plan((step,)), in_files=os.environ.get("HYPOTHESIS_PROFILE") == "long")


@pytest.mark.soak
@given(st.data())
@settings(max_examples=2000, suppress_health_check=list(HealthCheck))
def test_many_random_plans(data: st.DataObject) -> None:
    check_plan(data, data.draw(plans()))
