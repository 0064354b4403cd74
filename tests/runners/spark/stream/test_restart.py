"""A query stopped and started again, and what may not be started on its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.rehearsal import Memory, Rehearsal

import recension as rc
from recension.api.stream import Stream
from recension.core.errors import RecensionError
from recension.runners.spark.sinks.checkpoint import LocalFiles, claim
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.topology import Inlet, require_same, topology
from recension.testing.generator.settings import SCHEMA


def test_stopped_started_again_and_refused_to_others(spark: Any, tmp_path: Path) -> None:
    """One checkpoint for all of it: starting costs seconds."""
    expected = driver.write_inputs(tmp_path, files=5, size=600)
    first = driver.start(spark, tmp_path)
    while not first.recentProgress and first.isActive:
        first.awaitTermination(0.05)
    first.stop()
    before = len(list((tmp_path / "ck" / "commits").glob("[0-9]*")))
    assert before < 5, "it was stopped too late for the test to tell anything"
    _refused(spark, tmp_path)
    driver.start(spark, tmp_path).awaitTermination()
    feeding.assert_same(feeding.read(tmp_path / "table"), expected)
    feeding.assert_same(feeding.read(tmp_path / "log"), expected)


def _refused(spark: Any, folder: Path) -> None:
    """Before anything runs where our sinks know the folder, by the state itself where they do not."""
    with pytest.raises(
        RecensionError,
        match=r"made with 2 shards, not 3: go on with shards=2, or start it with a new checkpoint",
    ):
        driver.start(spark, folder, shards=3)
    other = rc.source("s", SCHEMA).group_by("text").agg(n=rc.count(), speculate="eager")
    with pytest.raises(RecensionError, match=r"it has 'select .*' and this one does not|where this one has"):
        driver.start(spark, folder, asked=other)
    frame = driver.read(spark, folder / "in")
    changed = rc.spark.stream(spark, _other_top(), {"s": frame}, shards=driver.SHARDS)
    writer = changed.writeStream.format("noop").option("checkpointLocation", str(folder / "ck"))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception) as told:  # noqa: PT011
        query.awaitTermination()
    assert "where this one has" in rc.spark.reason_of(told.value)
    assert "\n" not in rc.spark.reason_of(told.value)


def _other_top() -> Stream:
    """As many operators as the query has, of the same kinds."""
    by_remainder = rc.source("s", SCHEMA).with_columns(k=rc.col("value") % 5).group_by("k")
    counted = by_remainder.agg(n=rc.count(), top=rc.max("value"), speculate="eager")
    return counted.group_by("n").agg(keys=rc.count(), top=rc.max("top"), speculate="eager")


def _owner(query: Stream, shards: int = 2, skew: Sequence[str] = ()) -> str:
    return topology([query.plan], shards, {}, skew).owner


S = rc.source("s", {"k": "int64", "v": "int64"})
COUNTED = S.group_by("k").agg(n=rc.count())


def _counted(n: rc.Properties) -> Stream:
    return rc.source("s", {"k": "int64", "v": "int64"}, properties=n).group_by("k").agg(n=rc.count())


TEXT = rc.source("s", {"k": "string", "v": "float64"})
ALIKE = {
    "slice": (TEXT.where(rc.col("k").str.slice(0, 3) == "a"), TEXT.where(rc.col("k").str.slice(3) == "a")),
    "round": (TEXT.where(rc.col("v").round(0) > 1), TEXT.where(rc.col("v").round(1) > 1)),
    "zfill": (TEXT.where(rc.col("k").str.zfill(0) == "a"), TEXT.where(rc.col("k").str.zfill(1) == "a")),
    "replace": (
        TEXT.where(rc.col("k").str.replace_all("", "x") == "a"),
        TEXT.where(rc.col("k").str.replace_all("x", "") == "a"),
    ),
    "literal": (TEXT.where(rc.col("v") > 1), TEXT.where(rc.col("v") > 1.0)),
    "udf": (
        TEXT.select(n=rc.udf(len, result="int64")("k")),
        TEXT.select(n=rc.udf(len, result="int64", over="arrow")("k")),
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_queries_that_look_alike_are_told_apart(name: str) -> None:
    one, two = (_owner(query) for query in ALIKE[name])
    require_same(one, one)
    for mine, other in ((one, two), (two, one)):
        with pytest.raises(
            RecensionError, match=r"made by another query: .* (where this one has|is another one)"
        ) as told:
            require_same(mine, other)
        assert "\n" not in str(told.value)


def test_a_plan_is_not_known_by_its_words() -> None:
    """Another release may word a step otherwise."""
    owner = json.loads(_owner(COUNTED))
    for step in owner["plan"]:
        step[0] = f"{step[0]}, as we say now"
    require_same(_owner(COUNTED), json.dumps(owner))


def test_a_checkpoint_of_the_first_format_is_refused(tmp_path: Path) -> None:
    """It held only words."""
    claim(LocalFiles(tmp_path), json.dumps({"shards": 2, "plan": [["source s", [], {"k": "int64"}]]}))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    with pytest.raises(RecensionError, match="state has format 1, this version reads 3: start it with"):
        claim(LocalFiles(tmp_path), _owner(COUNTED))


@pytest.mark.parametrize(
    ("query", "shards", "words"),
    [
        (COUNTED, 3, "was made with 2 shards, not 3: go on with shards=2, or start it with"),
        (COUNTED.where(rc.col("n") > 1), 2, "this one has 'where n > 1' and it does not"),
        (S.group_by("v").agg(n=rc.count()), 2, "'select k' where this one has 'select v'"),
        (S, 2, "it has 'aggregate .*' and this one does not|it has 'select .*'"),
        (
            rc.source("s", {"k": "string", "v": "int64"}).group_by("k").agg(n=rc.count()),
            2,
            "'source s' has the columns k int64.* there and k string.* here",
        ),
        (
            _counted(n=rc.Properties(has_key=True)),
            2,
            "'source s' is another one: declared.has_key is False there",
        ),
    ],
)
def test_the_difference_is_named(tmp_path: Path, query: Stream, shards: int, words: str) -> None:
    claim(LocalFiles(tmp_path), _owner(COUNTED))
    claim(LocalFiles(tmp_path), _owner(query, shards))
    claim(LocalFiles(tmp_path), _owner(COUNTED))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    claim(LocalFiles(tmp_path), _owner(COUNTED))
    with pytest.raises(RecensionError, match=words) as told:
        claim(LocalFiles(tmp_path), _owner(query, shards))
    assert str(told.value).startswith("the checkpoint was made")
    assert "'cut-over' in the guide" in str(told.value)
    assert "\n" not in str(told.value)


def test_parts_are_fixed_by_the_checkpoint() -> None:
    whole, in_parts = _owner(COUNTED), _owner(COUNTED, skew=["k"])
    require_same(in_parts, in_parts)
    with pytest.raises(RecensionError, match=r"it has 'partial .* by k.*this one does not"):
        require_same(in_parts, whole)
    with pytest.raises(RecensionError, match=r"this one has 'partial .* by k.*it does not"):
        require_same(whole, in_parts)


def test_queries_of_one_plan_beside_each_other_keep_their_engines() -> None:
    processor._parked.clear()
    plan = Rehearsal([COUNTED.plan], 1).plan
    stores = {"one": Memory(), "two": Memory()}
    for number in range(3):
        for query, store in stores.items():
            seen = processor.lease_engine(plan, 1, 0, store, query)
            assert seen.was_live == (number > 0)
            seen.save(store, number)
            seen.release()
    processor._parked.clear()


def _summed(extra: int) -> Stream:
    return S.group_by("k").agg(t=rc.aggregate(lambda v: int(sum(v)) + extra, "v", result="int64"))


def test_a_changed_function_runs_on_an_old_checkpoint() -> None:
    processor._parked.clear()
    store, used = Memory(), []
    for number, extra in enumerate((0, 0, 1000)):
        seen = processor.lease_engine(
            topology([_summed(extra).plan], 1, {"s": Inlet()}), 1, 0, store, "query"
        )
        used.append(seen.host)
        seen.save(store, number)
        seen.release()
    assert used[0] is used[1], "what was not changed keeps its engine"
    assert used[2] is not used[1]
    assert [kept.host for kept in processor._parked.values()] == [used[2]]
    processor._parked.clear()


def test_a_query_that_cannot_be_sent_is_refused() -> None:
    lock = Lock()
    query = S.group_by("k").agg(t=rc.aggregate(lambda v: lock.locked(), "v", result="int64"))
    with pytest.raises(RecensionError, match="cannot be sent to Spark's workers: cannot pickle '_thread"):
        topology([query.plan], 1, {})


def test_engines_of_queries_that_have_ended_are_forgotten() -> None:
    processor._parked.clear()
    plan, store = Rehearsal([COUNTED.plan], 1).plan, Memory()
    for query in ("old", "new"):
        seen = processor.lease_engine(plan, 1, 0, Memory() if query == "old" else store, query)
        seen.save(store, 0)
        seen.release()
        processor._parked[seen.key].since -= 601 if query == "old" else 0
    processor.lease_engine(plan, 1, 0, store, "new")
    seen.release()
    assert [key.query for key in processor._parked] == ["new"]
    processor._parked.clear()


def test_the_owner_is_plain_json() -> None:
    assert json.loads(_owner(COUNTED))["shards"] == 2
