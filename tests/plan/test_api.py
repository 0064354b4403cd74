"""What queries look like: the columns of every step, and what is shared."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension import col
from recension.core.ticks import FOREVER
from recension.plan import nodes
from recension.plan.lifetimes import Custom, SetDuration, moments

s = rc.source("s", {"k": "string", "x": "int64", "y": "float64"})
t = rc.source("t", {"k": "string", "x": "int64", "z": "bool"})


def columns(stream: rc.Stream) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.schema}


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (s.select("y", "k"), {"y": "double", "k": "string"}),
        (s.select("k", twice=col("x") * 2), {"k": "string", "twice": "int64"}),
        (s.select((col("x") * 2).alias("twice"), other="y"), {"twice": "int64", "other": "double"}),
        (s.with_columns(x=col("x") / 2), {"k": "string", "x": "double", "y": "double"}),
        (s.with_columns(one=1), {"k": "string", "x": "int64", "y": "double", "one": "int64"}),
        (s.rename({"x": "y", "y": "x"}), {"k": "string", "y": "int64", "x": "double"}),
        (s.drop("k", "y"), {"x": "int64"}),
        (s.map(lambda row: {"n": 1}, {"n": "int32"}), {"n": "int32"}),
        (s.join(t, on="k"), {"k": "string", "x": "int64", "y": "double", "x_right": "int64", "z": "bool"}),
        (s.join(t, on=["k", "x"]), {"k": "string", "x": "int64", "y": "double", "z": "bool"}),
        (s.join(t, on="k", how="semi"), {"k": "string", "x": "int64", "y": "double"}),
        (s.agg(n=rc.count(), m=rc.mean("x")), {"n": "int64", "m": "double"}),
        (s.agg(rc.top_k(2, by="x")), {"k": "string", "x": "int64", "y": "double", "rank": "int64"}),
        (s.agg(top=rc.top_k(2, by="x")), {"k": "string", "x": "int64", "y": "double", "rank": "int64"}),
        (
            s.group_by(big=col("x") > 9).agg(rc.top_k(2, by="x")),
            {"big": "bool", "k": "string", "x": "int64", "y": "double", "rank": "int64"},
        ),
        (s.group_by("k", col("x") % 2).agg(n=rc.count()), {"k": "string", "x": "int64", "n": "int64"}),
    ],
)
def test_columns(stream: rc.Stream, expected: dict[str, str]) -> None:
    assert columns(stream) == expected


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (rc.count(), "int64"),
        (rc.count("k"), "int64"),
        (rc.sum("x"), "int64"),
        (rc.sum("y"), "double"),
        (rc.sum(col("x") > 3), "int64"),
        (rc.mean("x"), "double"),
        (rc.stddev("x"), "double"),
        (rc.quantile("x", 0.9), "double"),
        (rc.min("k"), "string"),
        (rc.max(col("x") + 0.5), "double"),
        (rc.first("k"), "string"),
        (rc.last("x"), "int64"),
        (rc.collect("k"), "list<item: string>"),
        (rc.aggregate(np.ptp, "x", result="int64"), "int64"),
    ],
)
def test_types_of_aggregates(aggregate: Any, kind: str) -> None:
    assert columns(s.agg(a=aggregate)) == {"a": kind}


def test_equal_plans_are_one_object() -> None:
    def build() -> rc.Stream:
        left = s.where(col("x") > 0).set_duration(10)
        return left.join(left, on="k").group_by("k").agg(n=rc.count(), m=rc.max(col("x") + 1))

    first, second = build(), build()
    assert first.plan is second.plan
    assert pickle.loads(pickle.dumps(first.plan)) is first.plan
    assert s.select("k", "x").plan is s.drop("y").plan
    assert s.where(col("x") > 0).plan is not s.where(col("x") > 0.0).plan


def test_every_node_comes_once_and_after_its_inputs() -> None:
    shared = s.where(col("x") > 0)
    plan = shared.join(shared.shift(1), on="k").plan
    order = list(nodes.walk(plan))
    assert len(order) == len(set(order)) == 4
    assert all(order.index(child) < order.index(node) for node in order for child in node.inputs)


def test_a_constant_duration_alone_is_a_moving_window() -> None:
    assert s.alter_lifetime(duration="1s").plan is s.set_duration("1s").plan
    plan = s.alter_lifetime(start=lambda vs, ve: ve, duration=5).plan
    assert isinstance(plan, nodes.AlterLifetime)
    assert isinstance(plan.lifetime, Custom)
    assert not isinstance(plan.lifetime, SetDuration)


def test_functions_of_lifetimes_saturate_at_the_end_of_time() -> None:
    later = moments(lambda vs, ve: ve + 10, "start")
    assert not later.per_event
    assert later(np.array([0, 1]), np.array([5, FOREVER])).tolist() == [15, FOREVER]


def test_functions_written_for_one_event_are_called_for_one_event() -> None:
    capped = moments(lambda vs, ve: min(ve - vs, 5), "duration")
    assert capped.per_event
    assert capped(np.array([0, 1]), np.array([3, FOREVER])).tolist() == [3, 5]
    assert not moments(lambda vs, ve: np.minimum(ve - vs, 5), "duration").per_event


def test_functions_of_batches_are_told_from_functions_of_rows() -> None:
    def per_row(stream: rc.Stream) -> bool:
        assert isinstance(stream.plan, nodes.Map)
        return stream.plan.per_row

    assert per_row(s.map(lambda row: {"x": row["x"] or 0}, {"x": "int64"}))
    assert not per_row(s.map(lambda batch: batch.select(["x"]), {"x": "int64"}))
    assert not per_row(s.map(lambda batch: {"x": batch["x"]}, {"x": "int64"}, per_row=False))


def test_repr_tells_step_and_columns() -> None:
    assert repr(s.where(col("x") > 0)) == "<Stream where x > 0: k string, x int64, y float64>"
    assert repr(s.group_by("k")) == "<GroupedStream of source s by k>"


def test_schemas_may_be_arrow_types_names_or_python_types() -> None:
    written = rc.source("u", {"a": pa.int64(), "b": "int64", "c": int})
    assert written.schema == rc.source("u", written.schema).schema
    assert set(written.schema.types) == {pa.int64()}
