"""Random query plans, each step together with what it means.

Every step takes and gives the columns ``k`` (text) and ``v`` (whole number), so that any step can follow
any other. A step may also read the second source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.properties.applied import APPLIED
from tests.properties.module_steps import MODULES
from tests.properties.step import History, StepKind, is_natural, plus
from tests.properties.timed_steps import TIMED

import recension as rc
from recension import denote
from recension.plan.extents import Rows


def _paired(history: History) -> History:
    return denote.select(history, "k", v=lambda p: plus(p["v"], p["v_right"]))


def _joined(how: str) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        pairs = s.join(t, on="k", how=how)
        return pairs if how in ("semi", "anti") else pairs.select("k", v=rc.col("v") + rc.col("v_right"))

    def meaning(s: History, t: History) -> History:
        columns: Any = {"right_columns": ("k", "v"), "left_columns": ("k", "v")}
        found = denote.join(s, t, on="k", how=how, **columns)  # type: ignore[arg-type]
        return found if how in ("semi", "anti") else _paired(found)

    return StepKind(f"join {how}", build, meaning)


def _joined_by_start(how: str, starts: tuple[int, int], closed: str) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        pairs = s.join(t, on="k", how=how, starts=starts, closed=closed)
        return pairs if how in ("semi", "anti") else pairs.select("k", v=rc.col("v") + rc.col("v_right"))

    def meaning(s: History, t: History) -> History:
        columns: Any = {"right_columns": ("k", "v"), "left_columns": ("k", "v")}
        found = denote.interval_join(s, t, starts, closed, "k", None, how, **columns)  # type: ignore[arg-type]
        return found if how in ("semi", "anti") else _paired(found)

    return StepKind(f"join {how} by start {starts} {closed}", build, meaning, is_immediate=True)


def _unless(within: int) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        return rc.unless(s, t, within=within, on="k", where=rc.col("v") != rc.col("v_right"))

    def differs(p: Any) -> bool:
        return None not in (p["v"], p["v_right"]) and bool(p["v"] != p["v_right"])

    return StepKind(f"unless {within}", build, lambda s, t: denote.unless(s, t, within, "k", differs))


def _pattern(form: str, build: Callable[[Any, Any], Any], meaning: Any) -> StepKind:
    """Of two parts, whose values are added; null where one is not in the answer."""
    value = rc.col("a_v") + rc.col("b_v")

    def means(s: History, t: History) -> History:
        return denote.select(meaning(s, t), "k", v=lambda p: plus(p["a_v"], p["b_v"]))

    return StepKind(form, lambda s, t: build(s, t).select("k", v=value), means)


_COLUMNS = {"a": ("k", "v"), "b": ("k", "v")}
_BY_START = [
    _pattern(
        "sequence",
        lambda s, t: rc.sequence({"a": s, "b": t}, within=5, on="k", absent=t.where(rc.col("v") > 1)),
        lambda s, t: denote.sequence(
            {"a": s, "b": t}, 5, "k", denote.where(t, lambda p: p["v"] is not None and p["v"] > 1)
        ),
    ),
    _pattern(
        "all of one stream",
        lambda s, t: rc.all_of({"a": s, "b": s}, within=4, on="k"),
        lambda s, t: denote.all_of({"a": s, "b": s}, 4, "k"),
    ),
    _pattern(
        "at least one",
        lambda s, t: rc.at_least(1, {"a": s, "b": t}, within=3, on="k"),
        lambda s, t: denote.at_least(1, {"a": s, "b": t}, 3, "k", columns=_COLUMNS),
    ),
    _joined_by_start("inner", (-3, 3), "both"),
    _joined_by_start("left", (0, 4), "left"),
    _joined_by_start("full", (-4, 1), "neither"),
    _joined_by_start("semi", (-5, -1), "both"),
    _joined_by_start("anti", (-1, 5), "right"),
    _unless(4),
]


def _aggregate(name: str, speculate: str, agg: Callable[[], Any], meaning: Any, *, grouped: bool) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        if grouped:
            return s.group_by("k").agg(v=agg(), speculate=speculate)
        return s.agg(v=agg(), speculate=speculate).select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        rows = denote.agg(v=meaning)
        if grouped:
            return denote.grouped(s, "k", lambda group: denote.snapshot(group, rows))
        return denote.select(denote.snapshot(s, rows), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{name} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _windowed(size: int, hop: int, offset: int, speculate: str, agg: str, *, grouped: bool) -> StepKind:
    """Windows need an end of the grid wherever events may never end."""
    until = 15

    def build(s: Any, t: Any) -> Any:
        answer = getattr(rc, agg)("v")
        if grouped:
            windows = s.group_by("k").hopping(size, hop, offset=offset, until=until)
            return windows.agg(v=answer, speculate=speculate)
        windows = s.hopping(size, hop, offset=offset, until=until)
        return windows.agg(v=answer, speculate=speculate).select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        rows = denote.agg(v=getattr(denote, agg)("v"))
        grid = denote.hopping(size, hop, offset, until)
        if grouped:
            return denote.grouped(s, "k", lambda group: denote.window_aggregate(group, grid, rows))
        return denote.select(denote.window_aggregate(s, grid, rows), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{agg} over {size}/{hop}+{offset} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _counted(n: int, by: Any, speculate: str, agg: str, *, grouped: bool) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        answer = getattr(rc, agg)("v")
        if grouped:
            return s.group_by("k").count_window(n, by=by).agg(v=answer, speculate=speculate)
        windows = s.count_window(n, by=by)
        return windows.agg(v=answer, speculate=speculate).select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        rows = denote.agg(v=getattr(denote, agg)("v"))
        windows = denote.count_window(n, by)
        if grouped:
            return denote.grouped(s, "k", lambda group: denote.window_aggregate(group, windows, rows))
        return denote.select(denote.window_aggregate(s, windows, rows), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{agg} over {n} {by}s {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _sessions(gap: int, speculate: str, agg: str, *, grouped: bool) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        answer = getattr(rc, agg)("v")
        if grouped:
            return s.group_by("k").sessions(gap).agg(v=answer, speculate=speculate)
        return s.sessions(gap).agg(v=answer, speculate=speculate).select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        rows = denote.agg(v=getattr(denote, agg)("v"))
        windows = denote.sessions(gap)
        if grouped:
            return denote.grouped(s, "k", lambda group: denote.window_aggregate(group, windows, rows))
        return denote.select(denote.window_aggregate(s, windows, rows), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{agg} over sessions, gap {gap} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _snapshots(*, grouped: bool) -> StepKind:
    """The same as `agg` on the stream itself."""

    def build(s: Any, t: Any) -> Any:
        if grouped:
            return s.group_by("k").snapshot().agg(v=rc.sum("v"), speculate="eager")
        return s.snapshot().agg(v=rc.sum("v"), speculate="eager").select(k=rc.lit("all"), v=rc.col("v"))

    plain = _aggregate("sum", "eager", lambda: rc.sum("v"), denote.sum("v"), grouped=grouped)
    return StepKind(f"snapshot windows{' by k' if grouped else ''}", build, plain.meaning)


def _counts(s: Any) -> Any:
    """Readings: how many events there are, one reading a group and time."""
    return s.group_by("k").agg(v=rc.count(), speculate="eager")


def _meant_counts(s: History) -> History:
    return denote.grouped(s, "k", lambda group: denote.snapshot(group, denote.agg(v=denote.count())))


_READINGS: list[StepKind] = [
    StepKind("edges", lambda s, t: _counts(s).edges("k"), lambda s, t: denote.edges(_meant_counts(s), "k")),
    StepKind(
        "as_of",
        lambda s, t: s.as_of(_counts(t), on="k").select("k", v=rc.col("v") + rc.col("v_right")),
        lambda s, t: _paired(denote.join(s, denote.edges(_meant_counts(t), "k"), on="k")),
    ),
]


def _increasing(before: Any, after: Any) -> bool:
    return before["v"] is not None and after["v"] is not None and after["v"] > before["v"]


def _near(before: Any, after: Any) -> bool:
    return before["v"] is not None and after["v"] is not None and abs(after["v"] - before["v"]) <= 1


def _with_interval(s: Any) -> Any:
    return s.select("k", v=rc.col("v") * 100 + rc.col("valid_start") * 10 + rc.col("valid_end"))


def _meant_interval(s: History) -> History:
    return denote.select(s, "k", v=lambda p: p["v"] * 100 + p["valid_start"] * 10 + p["valid_end"])


def _extent(window: Any, like: Any, oracle: Any, scheme: Any, *, applied: bool) -> StepKind:
    """Over readings; applied, to each group by itself."""

    def build(s: Any, t: Any) -> Any:
        counts = _counts(s)
        if not applied:
            return _with_interval(counts.coalesce("v", "k", like, window, scheme))
        by_group = counts.group_by("k").apply(lambda g: g.coalesce("v", None, like, window, scheme))
        return _with_interval(by_group)

    def answers(readings: History, *by: str) -> History:
        if isinstance(window, Rows):
            return denote.coalesce_rows(readings, window.size, window.slide, "v", by, oracle)
        return denote.coalesce_range(readings, window.span, window.slide, "v", by, oracle)

    def means(s: History, t: History) -> History:
        counts = _meant_counts(s)
        return _meant_interval(denote.grouped(counts, "k", answers) if applied else answers(counts, "k"))

    name = f"coalesce {window} {like} {scheme}{' applied' if applied else ''}"
    return StepKind(name, build, means, is_immediate=False)


def _many(window: Any, scheme: Any) -> StepKind:
    """Queries of other attributes, groups and equivalences that share extents, all of them asked for."""
    asked: dict[str, Any] = {
        "equal": rc.coalescing("v", "k"),
        "rising": rc.coalescing("v", "k", "increasing"),
        "each": rc.coalescing("k", ["k", "v"]),
    }

    def build(s: Any, t: Any) -> Any:
        shared = rc.ExtentSet(_counts(s), window, scheme=scheme, **asked)
        return _with_interval(shared["equal"].union(shared["rising"]).union(shared["each"]))

    def answers(readings: History, *of: Any) -> History:
        if isinstance(window, Rows):
            return denote.coalesce_rows(readings, window.size, window.slide, *of)
        return denote.coalesce_range(readings, window.span, window.slide, *of)

    def means(s: History, t: History) -> History:
        counts = _meant_counts(s)
        each = answers(counts, "k", ("k", "v"))
        both = denote.union(answers(counts, "v", "k"), answers(counts, "v", "k", _increasing))
        return _meant_interval(denote.union(both, each))

    return StepKind(f"extent set {window} {scheme}", build, means, is_immediate=False)


_READINGS += [
    _many(rc.range(4, 2), "auto"),
    _many(rc.range(2, 3), "eager"),
    _many(rc.rows(3, 2), "auto"),
    _many(rc.rows(2), "lazy"),
    StepKind(
        "coalesce", lambda s, t: s.coalesce("v", "k"), lambda s, t: denote.coalesce(s, on="v", group_by="k")
    ),
    StepKind(
        "coalesce k",
        lambda s, t: s.coalesce("k").with_columns(v=rc.lit(1)),
        lambda s, t: denote.with_columns(denote.coalesce(s, on="k"), v=lambda p: 1),
    ),
    StepKind(
        "coalesce increasing",
        lambda s, t: _counts(s).coalesce("v", "k", "increasing"),
        lambda s, t: denote.coalesce(_meant_counts(s), "v", "k", _increasing),
    ),
    StepKind(
        "apply coalesce within 1",
        lambda s, t: _counts(s).group_by("k").apply(lambda g: g.coalesce("v", equivalence=rc.within(1))),
        lambda s, t: denote.grouped(_meant_counts(s), "k", lambda g: denote.coalesce(g, "v", (), _near)),
    ),
    _extent(rc.range(4, 2), None, None, "eager", applied=False),
    _extent(rc.range(3, 1), "increasing", _increasing, "lazy", applied=True),
    _extent(rc.rows(3), rc.within(1), _near, "eager", applied=False),
    _extent(rc.rows(2, 2), None, None, "lazy", applied=True),
    _extent(rc.range(5, 3), rc.within(1), _near, "auto", applied=False),
    _extent(rc.rows(3, 1), None, None, "auto", applied=True),
]


def _is_positive(payload: Any) -> bool:
    return payload["v"] is not None and payload["v"] > 0


def _any_or_all(events: Any) -> Any:
    if any(_is_positive(event.payload) for event in events):
        return denote.min("v")(events)
    return denote.n_unique("k")(events)


def _having(speculate: str, *, grouped: bool) -> StepKind:
    """Answers that a condition on an aggregate without a column leaves."""

    def build(s: Any, t: Any) -> Any:
        if grouped:
            answers = s.group_by("k").agg(v=rc.sum("v"), speculate=speculate)
            return answers.having(rc.count() > 1, rc.col("v") >= 0)
        answers = s.agg(v=rc.sum("v"), speculate=speculate).having(rc.count() > 1, rc.col("v") >= 0)
        return answers.select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        def of(group: History) -> History:
            found = denote.snapshot(group, denote.agg(v=denote.sum("v"), n=denote.count()))
            return denote.select(denote.where(found, lambda p: p["n"] > 1 and is_natural(p)), "v")

        if grouped:
            return denote.grouped(s, "k", of)
        return denote.select(of(s), k=lambda p: "all", v=lambda p: p["v"])

    label = f"having {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


_AGGREGATES: list[tuple[str, Callable[[], Any], Any]] = [
    ("count", lambda: rc.count(), denote.count()),
    ("count values", lambda: rc.count("v"), denote.count("v")),
    ("sum", lambda: rc.sum("v"), denote.sum("v")),
    ("min", lambda: rc.min("v"), denote.min("v")),
    ("max", lambda: rc.max("v"), denote.max("v")),
    ("first", lambda: rc.first("v"), denote.first("v")),
    ("last", lambda: rc.last("v"), denote.last("v")),
    ("n_unique", lambda: rc.n_unique("v"), denote.n_unique("v")),
    ("arg_max", lambda: rc.arg_max("v", by="k"), denote.arg_max("v", "k")),
    (
        "median",
        lambda: (rc.median("v") * 2).cast("int64"),
        denote.computed(lambda middle: int(2 * middle), denote.median("v")),
    ),
    (
        "sum less count",
        lambda: rc.sum("v") * 2 - rc.count(where=rc.col("v") > 0),
        denote.computed(
            lambda s, n: 2 * s - n, denote.sum("v"), denote.filtered(denote.count(), _is_positive)
        ),
    ),
    (
        "any or all",
        lambda: rc.when(rc.any(rc.col("v") > 0)).then(rc.min("v")).otherwise(rc.n_unique("k")),
        _any_or_all,
    ),
]

STEPS: list[StepKind] = [
    *APPLIED,
    *_BY_START,
    *MODULES,
    *_READINGS,
    *TIMED,
    StepKind("where", lambda s, t: s.where(rc.col("v") >= 0), lambda s, t: denote.where(s, is_natural)),
    StepKind(
        "select",
        lambda s, t: s.select("k", v=rc.col("v") + 1),
        lambda s, t: denote.select(s, "k", v=lambda p: plus(p["v"], 1)),
    ),
    StepKind("shift", lambda s, t: s.shift(-2), lambda s, t: denote.shift(s, -2)),
    StepKind("set_duration", lambda s, t: s.set_duration(3), lambda s, t: denote.set_duration(s, 3)),
    StepKind("extend", lambda s, t: s.extend(2), lambda s, t: denote.extend(s, 2)),
    StepKind("cut", lambda s, t: s.extend(-2), lambda s, t: denote.extend(s, -2)),
    StepKind("hop", lambda s, t: s.hop_lifetime(4, 3), lambda s, t: denote.hop_lifetime(s, 4, 3)),
    StepKind("inserts", lambda s, t: s.inserts(), lambda s, t: denote.inserts(s)),
    StepKind("deletes", lambda s, t: s.deletes(), lambda s, t: denote.deletes(s)),
    StepKind("to_points", lambda s, t: s.to_points(), lambda s, t: denote.to_points(s)),
    StepKind("union", lambda s, t: s.union(t), lambda s, t: denote.union(s, t)),
    StepKind("distinct", lambda s, t: s.distinct(), lambda s, t: denote.distinct(s)),
    StepKind("align 0", lambda s, t: s.align(0), lambda s, t: s),
    StepKind("align 3", lambda s, t: s.align(3), lambda s, t: s, is_immediate=False),
    StepKind("align", lambda s, t: s.align(), lambda s, t: s, is_immediate=False),
    StepKind("cleanse", lambda s, t: s.cleanse(), lambda s, t: s, is_immediate=False),
    StepKind("finalize", lambda s, t: s.finalize(), lambda s, t: s),
    StepKind("merge", lambda s, t: rc.merge(s, s.align(1)), lambda s, t: s, is_immediate=False),
    StepKind("advance_time", lambda s, t: s.advance_time(100), lambda s, t: s),
    StepKind("due", lambda s, t: s.due(), lambda s, t: s, is_immediate=False),
    StepKind("due by t", lambda s, t: s.due(by=t), lambda s, t: s, is_immediate=False),
    StepKind("due by itself", lambda s, t: s.due(by=s, ahead=4), lambda s, t: s, is_immediate=False),
    StepKind("due by the clock", lambda s, t: s.due(by="clock"), lambda s, t: s, is_immediate=False),
    StepKind("clip", lambda s, t: s.clip(by=t, on="k"), lambda s, t: denote.clip(s, t, "k")),
    *(_joined(how) for how in ("inner", "left", "full", "semi", "anti")),
    *(_having(speculate, grouped=grouped) for speculate in ("eager", "perfect") for grouped in (False, True)),
    *(
        _aggregate(name, speculate, agg, meaning, grouped=grouped)
        for name, agg, meaning in _AGGREGATES
        for speculate in ("eager", "perfect", "ordered")
        for grouped in (False, True)
    ),
    *(
        _windowed(size, hop, offset, speculate, agg, grouped=grouped)
        for size, hop, offset, agg in (
            (4, 4, 0, "sum"),
            (5, 2, 1, "count"),
            (2, 3, 0, "max"),
            (6, 3, -1, "first"),
            (5, 2, 0, "n_unique"),
        )
        for speculate in ("eager", "perfect", "ordered")
        for grouped in (False, True)
    ),
    *(
        _counted(n, by, speculate, agg, grouped=grouped)
        for n, by, agg in (
            (2, "start", "sum"),
            (2, "end", "sum"),
            (1, "start", "first"),
            (3, "start", "last"),
            (3, "end", "first"),
            (1, "end", "count"),
            (2, "end", "max"),
            (2, "start", "n_unique"),
        )
        for speculate in ("eager", "perfect", "ordered")
        for grouped in (False, True)
    ),
    *(
        _sessions(gap, speculate, agg, grouped=grouped)
        for gap, agg in ((1, "sum"), (2, "count"), (3, "first"), (1, "max"), (20, "last"))
        for speculate in ("eager", "perfect", "ordered")
        for grouped in (False, True)
    ),
    *(_snapshots(grouped=grouped) for grouped in (False, True)),
]


@dataclass(frozen=True)
class Plan:
    """A query of a few steps."""

    steps: tuple[StepKind, ...]

    def build(self, s: Any, t: Any) -> Any:
        """The query over two sources."""
        for step in self.steps:
            s = step.build(s, t)
        return s

    def meaning(self, s: History, t: History) -> History:
        """The history it gives."""
        for step in self.steps:
            s = step.meaning(s, t)
        return s

    @property
    def is_immediate(self) -> bool:
        """Does the output show everything after every batch?"""
        return all(step.is_immediate for step in self.steps)


def plans(max_steps: int = 3) -> st.SearchStrategy[Plan]:
    """Plans of one to three steps."""
    return st.lists(st.sampled_from(STEPS), min_size=1, max_size=max_steps).map(lambda s: Plan(tuple(s)))


def one_form_of_each(steps: Sequence[StepKind]) -> list[StepKind]:
    """Of steps that differ only in groups and in when answers are shown, one, by turns."""
    forms: dict[str, list[StepKind]] = {}
    for step in steps:
        forms.setdefault(re.sub(r" (perfect|ordered|eager)\b| by k$", "", step.name), []).append(step)
    return [same[number % len(same)] for number, same in enumerate(forms.values())]


def each_step(*others: StepKind) -> list[Any]:
    """All steps as parameters; those of which another form is among them are left to `make soak`."""
    chosen = one_form_of_each(STEPS)
    own = [pytest.param(step, marks=() if step in chosen else pytest.mark.soak) for step in STEPS]
    return [*own, *others]
