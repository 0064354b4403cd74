"""Some cases on Spark itself: many in one query, as it costs seconds to start one.

`test_one_verdict.py` gives many more to Spark's tasks without Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.gate import ways
from tests.gate.cases import Case
from tests.gate.families import FAMILIES
from tests.gate.plain import PlainGate, says
from tests.runners.spark.sinks import feeding

import recension as rc
from recension.core.validity import STALE_CTI
from recension.runners.spark.stream.metrics import pipeline_metrics
from recension.testing.physical import Dice

STREAMS = [family for family in FAMILIES if family != "table"]


def drawn(family: str, policy: str, number: int = 0) -> Case:
    """The same case every time."""
    return FAMILIES[family](Dice(random.Random(f"{family} {policy} {number}").randbytes(128)), policy)


def run(spark: Any, query: rc.Stream, inputs: dict[str, str], folder: Path) -> Any:
    """The query on Spark, to the end; the history is in a table."""
    answers = rc.spark.stream(spark, query, inputs, shards=1)
    how: dict[str, Any] = {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_history(answers, folder / "table", **how)
    running.awaitTermination()
    return running


def test_cases_of_every_family_are_taken_as_rows_one_by_one(spark: Any, tmp_path: Path) -> None:
    """Rows that are dropped or moved: the same history, and the same counts by reason."""
    cases = {
        f"{family}, {policy}": drawn(family, policy) for family in STREAMS for policy in ("drop", "adjust")
    }
    cases = {name: case for name, case in cases.items() if not local_refusal(case)}
    query, inputs = one_query(cases), dict[str, str]()
    local = rc.session(query)
    for number, (name, case) in enumerate(cases.items()):
        suffix = ways.FORMATS[number % len(ways.FORMATS)]
        inputs[name] = str(ways.write(case, tmp_path / f"{number}.{suffix}"))
        for row in range(len(case.rows)) if case.may_be_cut else ():
            local.push(name, case.table(row, row + 1))
        if not case.may_be_cut:
            local.push(name, case.table())
    running = run(spark, query, inputs, tmp_path)
    feeding.assert_same(feeding.read(tmp_path / "table"), local.history())
    assert added(pipeline_metrics(running.recentProgress).counts) == added(local.counts())


def one_query(cases: dict[str, Case]) -> rc.Stream:
    """All cases in one query: each event says of which it is."""
    labelled = [case.query(name).select("k", "v", case=rc.lit(name)) for name, case in cases.items()]
    return reduce(lambda one, other: one.union(other), labelled)


def local_refusal(case: Case) -> str:
    """Why rows are refused whatever the policy: one case must not stop the others."""
    way = ways.row_by_row if case.may_be_cut else ways.PUSHED["a table"]
    return way(case, Path()).refused


def added(counts: Any) -> Counter[str]:
    """All counts by reason. Every shard counts the CTIs that do not advance."""
    found: Counter[str] = sum((Counter(one) for one in counts.values()), Counter())
    return Counter({reason: n for reason, n in found.items() if reason != STALE_CTI})


@pytest.mark.parametrize("family", ["stream", "insert-only"])
def test_the_earliest_fault_stops_the_query(spark: Any, tmp_path: Path, family: str) -> None:
    faulty = (drawn(family, "raise", number) for number in range(1000))
    wanted = "retraction" if family == "insert-only" else ""
    case = next(
        case
        for case in faulty
        if (why := PlainGate(case).first_fault()) is not None
        and wanted in why[1]
        and PlainGate(case).first_undecodable() is None
    )
    row, gist = PlainGate(case).first_fault() or (0, "")
    file = ways.write(case, tmp_path / "s.parquet")
    with pytest.raises(StreamingQueryException) as stopped:
        run(spark, case.query(), {"s": str(file)}, tmp_path)
    told = str(rc.spark.reason_of(stopped.value))
    _, found, reason = told.partition(f"s.parquet: row {row}: ")
    assert found, told
    assert says(reason, gist), told
