"""Queries applied to every group by itself, each with what it means for one group."""

from __future__ import annotations

from typing import Any

from tests.properties.step import History, StepKind, is_natural, plus

import recension as rc
from recension import denote


def _doubled(row: dict[str, Any]) -> dict[str, Any]:
    assert set(row) == {"k", "v"}
    return {"v": plus(row["v"], row["v"])}


def _applied(name: str, build: Any, meaning: Any, *, is_immediate: bool = True) -> StepKind:
    """A query on each group by itself; it need not keep the column ``k``."""

    def whole(s: Any, t: Any) -> Any:
        return s.group_by("k").apply(lambda group: build(group, t)).select("k", "v")

    def means(s: History, t: History) -> History:
        return denote.grouped(s, "k", lambda group: meaning(group, t))

    return StepKind(f"apply {name}", whole, means, is_immediate)


def _total(group: History) -> History:
    return denote.snapshot(group, denote.agg(total=denote.sum("v")))


def _only_v(history: History) -> History:
    return denote.select(history, "v")


def _over_two(group: History) -> History:
    return denote.window_aggregate(group, denote.count_window(2), denote.agg(v=denote.sum("v")))


def _held(name: str, build: Any, meaning: Any = lambda g, t: g) -> StepKind:
    """A query that shows only in the end what it means; without one, what the group is."""
    return _applied(name, build, meaning, is_immediate=False)


BY_GROUP: list[StepKind] = [
    _held("align 3", lambda g, t: g.align(3)),
    _held("align", lambda g, t: g.align()),
    _held("cleanse", lambda g, t: g.cleanse()),
    _applied("finalize", lambda g, t: g.finalize(), lambda g, t: g),
    _applied("advance_time", lambda g, t: g.advance_time(100), lambda g, t: g),
    _applied("advance_time by the group", lambda g, t: g.advance_time(by=g.shift(-1)), lambda g, t: g),
    _held("due", lambda g, t: g.due()),
    _held("due by the group", lambda g, t: g.due(by=g.shift(1))),
    _held("due by another stream", lambda g, t: g.shift(1).due(by=t).shift(-1)),
    _held("merge", lambda g, t: rc.merge(g, g.align(1))),
    _held("merge of what is in order", lambda g, t: rc.merge(g.cleanse(), g.cleanse(), case="R1")),
    _held("STRONG", lambda g, t: g.distinct().consistency(rc.STRONG), lambda g, t: denote.distinct(g)),
    _applied("MIDDLE", lambda g, t: g.agg(v=rc.sum("v")).consistency(rc.MIDDLE), lambda g, t: _sum(g)),
    _held("sum of cleansed", lambda g, t: g.cleanse().agg(v=rc.sum("v")), lambda g, t: _sum(g)),
    _held("sum, cleansed", lambda g, t: g.agg(v=rc.sum("v")).cleanse(), lambda g, t: _sum(g)),
    _held(
        "count windows of aligned",
        lambda g, t: g.align(2).count_window(2).agg(v=rc.sum("v")),
        lambda g, t: _over_two(g),
    ),
    _held(
        "aligned joined with its own total",
        lambda g, t: _with_total(g.align(2)),
        lambda g, t: denote.select(denote.join(_only_v(g), _total(g)), v=lambda p: plus(p["v"], p["total"])),
    ),
    _held(
        "cleansed join of aligned and another stream",
        lambda g, t: g.align(2).select("v").join(t, on="v", how="semi").cleanse(),
        lambda g, t: denote.join(_only_v(g), t, on="v", how="semi"),
    ),
    _held(
        "apply within, cleansed",
        lambda g, t: g.group_by("v").apply(lambda h: h.cleanse().select("k").distinct()),
        lambda g, t: denote.grouped(g, "v", lambda h: denote.distinct(denote.select(h, "k"))),
    ),
    _held(
        "apply within, beside the cleansed group",
        lambda g, t: g.group_by("v").apply(lambda h: h.align(1).select().join(g.cleanse().select("v"))),
        lambda g, t: denote.grouped(g, "v", lambda h: denote.join(denote.select(h), _only_v(g))),
    ),
]


def _sum(group: History) -> History:
    return denote.snapshot(group, denote.agg(v=denote.sum("v")))


def _with_total(g: Any) -> Any:
    return g.select("v").join(g.agg(total=rc.sum("v"))).select(v=rc.col("v") + rc.col("total"))


APPLIED: list[StepKind] = [
    *BY_GROUP,
    _applied("where", lambda g, t: g.where(rc.col("v") >= 0), lambda g, t: denote.where(g, is_natural)),
    _applied("distinct", lambda g, t: g.select("v").distinct(), lambda g, t: denote.distinct(_only_v(g))),
    _applied(
        "sum of shifted",
        lambda g, t: g.shift(1).union(g).agg(v=rc.sum("v"), speculate="eager"),
        lambda g, t: denote.snapshot(denote.union(denote.shift(g, 1), g), denote.agg(v=denote.sum("v"))),
    ),
    _applied(
        "join with own total",
        lambda g, t: (
            g.select("v")
            .join(g.agg(total=rc.sum("v"), speculate="eager"))
            .select(v=rc.col("v") + rc.col("total"))
        ),
        lambda g, t: denote.select(denote.join(_only_v(g), _total(g)), v=lambda p: plus(p["v"], p["total"])),
    ),
    *(
        _applied(
            f"{how} join with the group later",
            lambda g, t, how=how: g.select("v").join(g.select("v").shift(3), on="v", how=how),
            lambda g, t, how=how: denote.join(_only_v(g), denote.shift(_only_v(g), 3), on="v", how=how),
        )
        for how in ("left", "full", "semi", "anti")
    ),
    _applied(
        "clip by the group itself",
        lambda g, t: g.select("v").clip(by=g),
        lambda g, t: denote.clip(_only_v(g), g),
    ),
    _applied(
        "anti join with another stream",
        lambda g, t: g.select("v").join(t, on="v", how="anti"),
        lambda g, t: denote.join(_only_v(g), t, on="v", how="anti"),
    ),
    _applied(
        "join of another stream",
        lambda g, t: t.rename({"k": "j"}).join(g.select("v"), on="v"),
        lambda g, t: denote.drop(denote.join(denote.rename(t, {"k": "j"}), _only_v(g), on="v"), "j"),
    ),
    _applied(
        "windows",
        lambda g, t: g.tumbling(4, until=15).agg(v=rc.max("v"), speculate="eager"),
        lambda g, t: denote.window_aggregate(g, denote.tumbling(4, 0, 15), denote.agg(v=denote.max("v"))),
    ),
    _applied(
        "count windows of a map",
        lambda g, t: (
            g.map(_doubled, {"v": "int64"}, per_row=True)
            .count_window(2)
            .agg(v=rc.sum("v"), speculate="eager")
        ),
        lambda g, t: _over_two(denote.select(g, v=lambda p: plus(p["v"], p["v"]))),
    ),
    _applied(
        "apply within",
        lambda g, t: g.group_by("v").apply(lambda h: h.select("k").distinct()),
        lambda g, t: denote.grouped(g, "v", lambda h: denote.distinct(denote.select(h, "k"))),
    ),
]
