"""``verify_modules`` calls everything twice and finds what does not say the same; the rest runs as ever."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.modules.family import MODULES, MergedSum, Sum

import recension as rc
from recension.core.errors import RecensionError
from recension.testing.assertions import assert_equivalent

S: Any = rc.source("s", {"k": "string", "v": "int64"})
EVENTS = [rc.Insert({"k": "ab"[i % 2], "v": i}, i, i + 1 + i % 3) for i in range(1, 9)]
LATER = [rc.Retract({"k": "b", "v": 5}, 5, 8, 5), rc.Insert({"k": "a", "v": 3}, 2, 4), rc.Cti(rc.FOREVER)]
TICKS = count()


def _run(query: Any, **how: Any) -> list[rc.Event]:
    return rc.run(query, {"s": [*EVENTS, *LATER]}, batch_size=4, **how).history().to_events()


class Forgetful(rc.Aggregate):
    inputs = {"v": "int64"}
    result = "int64"

    def compute(self, payloads: Any) -> int:
        return next(TICKS)


class Generating(rc.Operator):
    inputs = {"v": "int64"}
    result = {"v": "int64"}

    def compute(self, payloads: Any) -> Any:
        yield {"v": next(TICKS)}


class BeginsAnew(Sum):
    def initial(self) -> Any:
        return [next(TICKS), 0]


class AddsAnew(Sum):
    def add(self, state: Any, payloads: Any) -> Any:
        state[0] += next(TICKS)  # in place
        return state


class RemovesAnew(Sum):
    def remove(self, state: Any, payloads: Any) -> Any:
        return [next(TICKS), 0]


class MergesAnew(MergedSum):
    def merge(self, a: Any, b: Any) -> Any:
        return [next(TICKS), 0]


def forgetful(values: Any) -> float:
    return float(next(TICKS))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (S.tumbling(20).agg(a=Forgetful()), r"module Forgetful in the window \[0, 20\): is not"),
        (S.tumbling(20).apply(Generating), r"module Generating in the window \[0, 20\): is not"),
        (S.tumbling(20).agg(a=BeginsAnew()), r"module BeginsAnew .*: initial: is not"),
        (S.tumbling(20).agg(a=AddsAnew()), r"module AddsAnew .*: add: is not"),
        (S.tumbling(4).agg(a=RemovesAnew()), r"module RemovesAnew in the window \[4, 8\): remove: is not"),
        (S.hopping(8, 4).agg(a=MergesAnew()), r"module MergesAnew .*: merge: is not"),
        (S.tumbling(20).agg(a=rc.aggregate(forgetful, "v")), r"module forgetful .*\[0, 20\): is not"),
        (S.agg(a=rc.aggregate(forgetful, "v")), r"module forgetful .*\[1, 2\): is not"),
        (S.count_window(2).agg(a=rc.aggregate(forgetful, "v")), r"module forgetful .*\[1, 3\): is not"),
    ],
)
def test_what_is_not_deterministic_is_found(query: Any, said: str) -> None:
    with pytest.raises(
        RecensionError, match=said + r" deterministic: it gave .*, then .* of the same; it was given"
    ):
        _run(query, verify_modules=True)


@pytest.mark.parametrize("over", ["rows", "numpy"])
def test_functions_of_rows_are_called_twice_wherever_they_stand(over: Any) -> None:
    def one(v: Any) -> Any:
        return v * 0 + next(TICKS)

    forgetful_one, steady = (
        rc.udf(one, result="int64", over=over),
        rc.udf(_plus_one, result="int64", over=over),
    )
    builds: list[Callable[[Any], Any]] = [
        lambda f: S.where(f("v") > 2),
        lambda f: S.select(n=rc.col("v") + f("v")),
        lambda f: S.group_by(n=f("v")).tumbling(5).agg(c=rc.count()),
        lambda f: S.tumbling(5).agg(s=rc.sum(f("v"))),
        lambda f: S.tumbling(5).agg(s=Sum(v=f("v"))),
        lambda f: S.join(S.select("k", w="v"), on="k", where=f("v") > rc.col("w")),
        lambda f: S.group_by("k").apply(lambda group: group.select(n=f("v")).cleanse()),
    ]
    for build in builds:
        with pytest.raises(
            RecensionError, match=r"udf one: is not deterministic: it gave .*; it was given \("
        ):
            _run(build(forgetful_one), verify_modules=True)
        assert_equivalent(_run(build(steady), verify_modules=True), _run(build(steady)))


def _plus_one(v: Any) -> Any:
    return v + 1


class NotANumber(rc.Operator):
    """NaN is NaN in whatever it comes."""

    inputs = {"v": "int64"}
    result = {"x": "float64"}

    def compute(self, payloads: Any) -> Any:
        return pa.table({"x": [float("nan")]})


class Tally:
    """A state of a class of its own, which has no equals."""

    def __init__(self, n: int) -> None:
        self.n = n


class Tallied(rc.IncrementalAggregate):
    inputs = {"v": "int64"}
    result = "int64"

    def initial(self) -> Tally:
        return Tally(0)

    def add(self, state: Tally, payloads: Any) -> Tally:
        state.n += len(payloads)
        return state

    def remove(self, state: Tally, payloads: Any) -> Tally:
        state.n -= len(payloads)
        return state

    def compute(self, state: Tally) -> int:
        return state.n

    def stored(self, state: Tally) -> int:
        return state.n

    def restored(self, stored: int) -> Tally:
        return Tally(stored)


class Distinct(rc.IncrementalAggregate):
    """Its state is a set, which is no list when it is looked at twice."""

    inputs = {"v": "int64"}
    result = "int64"

    def initial(self) -> set[int]:
        return set()

    def add(self, state: set[int], payloads: Any) -> set[int]:
        return state | set(payloads["v"].tolist())

    def remove(self, state: set[int], payloads: Any) -> set[int]:
        return state - set(payloads["v"].tolist())

    def compute(self, state: set[int]) -> int:
        return len(state)


@pytest.mark.parametrize(
    "module", [*MODULES, Tallied, Distinct, NotANumber], ids=lambda module: module.__name__
)
def test_what_is_deterministic_is_as_ever(module: Any) -> None:
    for windowed in (S.hopping(6, 3), S.group_by("k").snapshot()):
        query = windowed.apply(module) if module.yields_rows else windowed.agg(a=module())
        assert_equivalent(_run(query, verify_modules=True), _run(query))


def _moody_row(row: Any) -> dict[str, Any]:
    return {"n": row["v"] + next(TICKS)}


def _moody_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [next(TICKS)] * batch.num_rows})


def _moody_pairs(before: pa.RecordBatch, after: pa.RecordBatch) -> list[bool]:
    return [next(TICKS) % 2 == 0] * after.num_rows


def _every_pair(before: pa.RecordBatch, after: pa.RecordBatch) -> list[bool]:
    return [True] * after.num_rows


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: S.map(_moody_row, {"n": "int64"}, per_row=True), "_moody_row.*is not deterministic"),
        (lambda: S.map(_moody_batch, {"n": "int64"}), "_moody_batch.*is not deterministic"),
        (
            lambda: S.group_by("k").apply(lambda g: g.map(_moody_row, {"n": "int64"}, per_row=True)),
            "_moody_row.*is not deterministic",
        ),
        (lambda: S.coalesce("v", equivalence=_moody_pairs), "equivalence _moody_pairs.*is not determin"),
        (
            lambda: S.coalesce("v", equivalence=_moody_pairs, window=rc.range(8, 4)),
            "equivalence _moody_pairs.*is not deterministic",
        ),
    ],
)
def test_maps_and_equivalences_are_called_twice_too(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(RecensionError, match=said):
        _run(build(), verify_modules=True)


def test_maps_and_equivalences_that_say_the_same_run_as_ever() -> None:
    double = S.map(lambda row: {"n": 2 * row["v"]}, {"n": "int64"}, per_row=True)
    counts = S.agg(n=rc.count())
    for query in (double, counts.coalesce("n", equivalence=_every_pair)):
        assert_equivalent(_run(query, verify_modules=True), _run(query))
