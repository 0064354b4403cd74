"""What goes wrong in a module, or in how it is used, is told in one line that names the module."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.modules.family import Listed, Sum, Top

import recension as rc
from recension.core.errors import RecensionError, SchemaError

S: Any = rc.source("s", {"k": "string", "v": "int64", "x": "float64"})
EVENTS = [rc.Insert({"k": "a", "v": i, "x": 0.5}, i, i + 1) for i in range(1, 8)]


def _run(query: Any, **how: Any) -> Any:
    return rc.run(query, {"s": EVENTS}, close=True, **how)


class Failing(rc.Aggregate):
    inputs = {"v": "int64"}
    result = "int64"

    def compute(self, payloads: Any) -> int:
        if len(payloads) > 4:
            raise ValueError("too many\nto count")
        return 1


class FailingToAdd(Sum):
    def add(self, state: Any, payloads: Any) -> Any:
        raise KeyError("v")


class FailingToBegin(Sum):
    def initial(self) -> Any:
        raise ValueError("not today")


class FailingInTheEnd(Sum):
    def compute(self, state: Any) -> str:
        raise ValueError(f"no {state}")


class FailingToMerge(Sum):
    def merge(self, a: Any, b: Any) -> Any:
        raise ValueError("never the twain")


class TextInTheEnd(Sum):
    result = "int64"

    def compute(self, state: Any) -> str:
        return "seven"


class RowsInTheEnd(rc.IncrementalOperator):
    inputs = {"v": "int64"}
    result = {"v": "int64"}

    def initial(self) -> Any:
        return 0

    def add(self, state: Any, payloads: Any) -> Any:
        return state

    remove = add

    def compute(self, state: Any) -> Any:
        return [{"v": "seven"}]


class OfTheLibrary(rc.Aggregate):
    inputs = {"v": "int64"}
    result = "int64"

    def compute(self, payloads: Any) -> int:
        raise SchemaError("as the library itself raises them")


class Past(rc.TimeSensitiveOperator):
    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Any:
        return [rc.Event({"v": 1}, window.start - 1, window.end)]


class Empty(rc.TimeSensitiveOperator):
    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Any:
        return [rc.Event({"v": 1}, window.start, window.start)]


class Untimed(rc.TimeSensitiveOperator):
    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Any:
        return [rc.Event({"v": 1}, None, window.end)]  # type: ignore[arg-type]


class Fractional(rc.TimeSensitiveOperator):
    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Any:
        return [rc.Event({"v": 1}, window.start, window.start + 0.5)]  # type: ignore[arg-type]


class Boundless(rc.TimeSensitiveOperator):
    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Any:
        return [rc.Event({"v": 1}, -(2**64), window.end)]


class Unlike(rc.Operator):
    result = {"v": "int64", "w": "int64"}
    gives: object = None

    def compute(self, payloads: Any) -> Any:
        return self.gives


class Text(rc.Aggregate):
    inputs = {"v": "int64"}
    result = "int64"

    def compute(self, payloads: Any) -> Any:
        return "seven"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            lambda: S.tumbling(6).agg(a=Failing()),
            r"module Failing in the window \[0, 6\): ValueError: too many",
        ),
        (
            lambda: S.tumbling(5).agg(a=FailingToAdd()),
            r"module FailingToAdd in the window \[0, 5\): add: KeyError",
        ),
        (
            lambda: S.tumbling(5).stamp_output("keep").apply(Past),
            r"module Past in the window \[0, 5\): it put a row in the past, at \[-1, 5\)",
        ),
        (lambda: S.tumbling(5).stamp_output("keep").apply(Empty), r"module Empty .*the lifetime \[0, 0\)"),
        (
            lambda: S.tumbling(5).stamp_output("clip").apply(Untimed),
            r"module Untimed in the window \[0, 5\): TimeError: Event: vs: None is not a time",
        ),
        (
            lambda: S.tumbling(5).stamp_output("clip").apply(Fractional),
            r"module Fractional in the window \[0, 5\): TimeError: Event: ve: 0.5 is not a time",
        ),
        (
            lambda: S.tumbling(5).stamp_output("unrestricted").apply(Boundless),
            r"module Boundless in the window \[0, 5\): TimeError: Event: v[se]: .* does not fit in 64-bit",
        ),
        (
            lambda: S.tumbling(5).agg(a=FailingToBegin()),
            r"module FailingToBegin in the window \[0, 5\): initial: ValueError: not today",
        ),
        (
            lambda: S.tumbling(5).agg(a=FailingInTheEnd()),
            r"module FailingInTheEnd in the window \[0, 5\): ValueError: no \[10, 4\]",
        ),
        (
            lambda: S.hopping(5, 2).agg(a=FailingToMerge()),
            r"module FailingToMerge in the window \[-2, 7\): merge: ValueError: never the twain",
        ),
        (
            lambda: S.tumbling(5).agg(a=TextInTheEnd()),
            r"module TextInTheEnd in the window \[0, 5\): it gave 'seven', but declares int64",
        ),
        (
            lambda: S.tumbling(5).apply(RowsInTheEnd),
            r"module RowsInTheEnd in the window \[0, 5\): it gave 'seven' as 'v', but declares int64",
        ),
        (
            lambda: S.tumbling(5).agg(a=OfTheLibrary()),
            r"module OfTheLibrary in the window \[0, 5\): SchemaError: as the library itself",
        ),
        (
            lambda: S.tumbling(5).agg(a=rc.aggregate(lambda values: "seven", "v")),
            r"module <lambda> in the window \[0, 5\): it gave 'seven', but is declared to give double",
        ),
        (lambda: S.tumbling(5).apply(Unlike(gives=[{"v": 1}])), r"module Unlike .*\{'v': 1\} has no 'w'"),
        (lambda: S.tumbling(5).apply(Unlike(gives={"v": 1})), r"it gives rows, not \{'v': 1\}"),
        (lambda: S.tumbling(5).apply(Unlike(gives=[7])), r"a row is a mapping or an event, not 7"),
        (
            lambda: S.tumbling(5).apply(Unlike(gives=[{"v": "x", "w": 1}])),
            r"module Unlike in the window \[0, 5\): it gave 'x' as 'v', but declares int64",
        ),
        (lambda: S.tumbling(5).agg(a=Text()), r"module Text in the window \[0, 5\): it gave 'seven'"),
    ],
)
def test_at_run_time(query: Callable[[], Any], said: str) -> None:
    with pytest.raises(RecensionError, match=said) as caught:
        _run(query())
    assert "\n" not in str(caught.value)
    assert re.search(r"; it was given (\[\d+, \d+\) )?(\{.*'v': )?1\b", str(caught.value))


def test_the_offending_payloads_are_shown() -> None:
    query = S.tumbling(20).agg(a=Failing())
    with pytest.raises(RecensionError, match=r"it was given \{'v': 1\}, .*\{'v': 5\} and 2 more$"):
        _run(query)


def test_sums_that_do_not_fit_are_told() -> None:
    large = [rc.Insert({"k": "a", "v": 2**62, "x": 1e300}, t, t + 1) for t in range(3)]
    for answer, said in ((rc.sum("v"), "does not fit in int64"), (rc.sum("x"), "sums may leave float64")):
        query = S.tumbling(5).agg(a=Listed(), s=answer)
        with pytest.raises(RecensionError, match=said):
            rc.run(query, {"s": large}, close=True)


def test_what_is_not_bound_in_time_is_found() -> None:
    class Late(rc.TimeSensitiveOperator):
        result = {"n": "int64"}

        def compute(self, events: Any, window: rc.Window) -> Any:
            return [rc.Event({"n": len(events)}, window.start, window.end)]

    for before, later in (([*EVENTS[:1], rc.Cti(3)], EVENTS[2]), ([EVENTS[2]], EVENTS[1])):
        session = rc.session(S.tumbling(5).stamp_output("time_bound").apply(Late))
        session.push("s", before)
        told = rf"module Late in the window \[0, 5\): it is not time-bound: at {later.vs} it makes the change"
        with pytest.raises(RecensionError, match=rf"{told} .*; use stamp_output\('keep'\); it was given \["):
            session.push("s", [later])


def _incomplete() -> Any:
    class Incomplete(rc.Aggregate):
        result = "int64"

    return S.tumbling(5).apply(Incomplete)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: S.tumbling(5).clip_input("both"),
            "clip_input: one of 'none', 'left', .* not 'both'",
        ),
        (lambda: S.tumbling(5).stamp_output("late"), "stamp_output: one of"),
        (lambda: S.tumbling(5).stamp_output("keep").apply(Top), "Top knows no time.* only 'align'"),
        (lambda: S.tumbling(5).stamp_output("keep").agg(a=Listed()), "only 'align' is possible"),
        (lambda: S.tumbling(5).stamp_output("keep").agg(a=rc.count()), "only 'align' is possible"),
        (lambda: S.tumbling(5).apply(Listed), "Listed gives one value; use agg"),
        (lambda: S.tumbling(5).agg(a=Top()), r"Top yields rows; use apply\(...\)"),
        (lambda: S.tumbling(5).agg(a=rc.count(), recompute=True), "recompute=True is for modules"),
        (lambda: S.tumbling(5).agg(recompute=rc.count()), "recompute is True or False, not count"),
        (lambda: S.tumbling(5).agg(Listed()), "name each aggregate"),
        (
            lambda: S.tumbling(5).agg(rc.top_k(1, by="v"), a=Listed()),
            "yields rows, so it must be the only one",
        ),
        (lambda: Top(k="3"), r"Top: the parameter k: int = 2 cannot be '3'"),
        (lambda: Top(j=3), r"Top: there is no input or parameter 'j'; it takes v, k"),
        (lambda: S.tumbling(5).agg(a=Listed(v="k")), "the input 'v' is int64, but k is string; map another"),
        (lambda: S.tumbling(5).agg(a=Listed(v="y")), "there is no column 'y'"),
        (lambda: S.tumbling(5).apply(Top(k=1), k=2), "has its parameters already"),
        (lambda: S.tumbling(5).apply(print), "is not a module"),
        (lambda: S.tumbling(5).apply("acme.none"), "there is no module 'acme.none'"),
        (_incomplete, "Incomplete: .*abstract"),
    ],
)
def test_when_a_query_is_built(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        build()
