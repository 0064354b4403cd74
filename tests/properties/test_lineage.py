"""What `why` names, judged by the oracle: it suffices, nothing else matters, and the marks are right.

Inputs come as physical streams, with retractions and CTIs. Answers are those of the local engine; those of
Spark are asked about in `runners/spark`. Each is explained three times: with all of the inputs at hand, with
only those parts that it reaches, and with these parts read from files. Its biography must end with it.
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
from tests.lineage.judge import Judge
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan, plans

import recension as rc
from recension.core.batch import from_elements
from recension.core.formats import StreamReader, open_stream, write_stream
from recension.lineage.result import is_same
from recension.plan.source import sources_of
from recension.testing.strategies import SCHEMA, histories, physical_streams

# How early answers are shown makes no difference to what they rest on; groups are in `test_random_plans`.
KINDS = [
    step for step in STEPS if not any(word in step.name for word in (" perfect", " ordered", "eager by k"))
]


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


def _in_files(feed: Sequence[Any], folder: Path) -> StreamReader:
    """The same stream in two Parquet files with small row groups."""
    folder.mkdir()
    for number, part in enumerate((feed[:3], feed[3:])):
        file = folder / f"{number}.parquet"
        write_stream(file, [from_elements(part, SCHEMA)], SCHEMA)
        pq.write_table(pq.read_table(file), file, row_group_size=2)
    return open_stream(folder, schema=SCHEMA)


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
