"""A hundred queries by name: every step in every form of speculation, and steps over steps, with what they mean.

The steps are those of `tests.properties.plans`; here are a few more, which need final rows that end, other
inputs or other values. `queries` puts them together: each step alone, then each over others by turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Any

import pyarrow as pa
from tests.properties.places import PLACES, Place, step_over
from tests.properties.plans import STEPS, Plan
from tests.properties.step import History, StepKind, plus

import recension as rc
from recension import denote
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import keyed
from recension.plan.node import Node, walk
from recension.plan.nodes import GroupApply
from recension.plan.rewrites.optimize import optimize
from recension.plan.source import sources_of
from recension.testing.cases import DECIMAL, FLOAT64, INT64, Case, make_case, make_row_case
from recension.testing.clocks import EARLY, FAR, TICKS, Clock
from recension.testing.physical import Dice, Shape

KNOWN = [
    rc.Properties(),
    rc.Properties(),
    rc.Properties(is_insert_only=True),
    rc.Properties(is_insert_only=True, is_ordered=True),
    rc.Properties(is_ordered=True),
    rc.Properties(is_shrink_only=True),
]
SPECULATE = ("eager", "perfect", "ordered")


def _grid(size: int, hop: int, offset: int, speculate: str, *, grouped: bool) -> StepKind:
    """Windows without a last one: over what never ends they go on for ever, and that is refused."""

    def build(s: Any, t: Any) -> Any:
        windows = (s.group_by("k") if grouped else s).hopping(size, hop, offset=offset)
        made = windows.agg(v=rc.sum("v"), speculate=speculate)
        return made if grouped else made.select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        rows, grid = denote.agg(v=denote.sum("v")), denote.hopping(size, hop, offset)
        if grouped:
            return denote.grouped(s, "k", lambda group: denote.window_aggregate(group, grid, rows))
        return denote.select(denote.window_aggregate(s, grid, rows), k=lambda p: "all", v=lambda p: p["v"])

    label = f"endless {size}/{hop}+{offset} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _level(level: rc.Level, name: str) -> StepKind:
    return StepKind(
        f"sum {name}",
        lambda s, t: s.group_by("k").agg(v=rc.sum("v")).consistency(level),
        lambda s, t: denote.grouped(s, "k", lambda g: denote.snapshot(g, denote.agg(v=denote.sum("v")))),
        is_immediate=level.block == 0,
    )


def _doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"k": row["k"], "v": plus(row["v"], row["v"])}


MORE = [
    *(_grid(3, 3, 0, speculate, grouped=False) for speculate in SPECULATE),
    *(_grid(5, 2, 1, speculate, grouped=True) for speculate in SPECULATE),
    *(_grid(2, 3, 0, speculate, grouped=False) for speculate in SPECULATE),
    _level(rc.STRONG, "STRONG"),
    _level(rc.MIDDLE, "MIDDLE"),
    StepKind(
        "map",
        lambda s, t: s.map(_doubled, {"k": "string", "v": "int64"}, per_row=True),
        lambda s, t: denote.select(s, "k", v=lambda p: plus(p["v"], p["v"])),
    ),
    StepKind("advance_time by itself", lambda s, t: s.advance_time(by=s.shift(-1)), lambda s, t: s),
    StepKind(
        "where and select",
        lambda s, t: s.where(rc.col("k") != "b").select("k", v=rc.col("v") - 1),
        lambda s, t: denote.select(
            denote.where(s, lambda p: p["k"] not in ("b", None)), "k", v=lambda p: plus(p["v"], -1)
        ),
    ),
]

def _in_every_speculation(*names: str) -> list[str]:
    """Each in the three forms, of the whole stream and by group in turns."""
    forms = [(name, speculate) for name in names for speculate in SPECULATE]
    return [f"{name} {speculate}{' by k' * (at % 2)}" for at, (name, speculate) in enumerate(forms)]


FAMILIES: Mapping[str, list[str]] = {
    "span": ["where", "select", "map", "where and select", "v = lifetime", "where end() - start() > 3", "union"],
    "distinct": ["distinct"],
    "lifetime": [
        "shift", "cut", "hop", "inserts", "deletes", "to_points", "set_duration", "clip",
        "live from start() to min_horizontal(end(), start() + 2)", "live from end() - 2 to None",
    ],
    "join": [f"join {how}" for how in ("inner", "left", "full", "semi", "anti")],
    "aggregate": [*_in_every_speculation("sum", "max", "first", "median"), "having perfect by k"],
    "grid": [*_in_every_speculation("sum over 4/4+0", "first over 6/3+-1")],
    "endless grid": [step.name for step in MORE if step.name.startswith("endless")],
    "count window": _in_every_speculation("sum over 2 starts", "first over 3 ends"),
    "session": _in_every_speculation("sum over sessions, gap 1", "first over sessions, gap 3"),
    "module": [step.name for step in STEPS if step.name.startswith("module")][::3],
    "coalesce": ["coalesce", "edges", "as_of"],
    "extent": [step.name for step in STEPS if step.name.startswith(("coalesce r", "extent set"))][::2],
    "consistency": [
        "align 3", "align", "cleanse", "finalize", "merge", "advance_time", "advance_time by itself",
        "sum STRONG", "sum MIDDLE",
    ],
    "group apply": [
        "apply cleanse", "apply merge of what is in order", "apply sum of cleansed", "apply windows",
        "apply left join with the group later",
    ],
}  # fmt: skip
_WHOLE_NUMBERS = re.compile("map|median|module")
"""Steps that are declared for whole numbers."""
_NAMED_TICK = re.compile(r"over \d|module|windows")
_BY_NAME = {step.name: step for step in [*STEPS, *MORE]}


@dataclass(frozen=True)
class Query:
    """Steps over two sources; ``source`` and ``other`` say of what kind these are."""

    plan: Plan
    source: str = "stream"
    other: str = "stream"
    place: Place | None = None

    def __repr__(self) -> str:
        read = "" if self.source == "stream" else f" of {self.source}"
        read += "" if self.other == "stream" else f" with a {self.other}"
        return ", ".join(step.name for step in self.plan.steps) + read

    def build(self, value: str, known: rc.Properties) -> dict[str, rc.Stream]:
        """The query, and what it reads, by name."""
        schema = {"k": "string", "v": value}
        if self.source == "records":
            s = rc.source("s", schema, key="k", version="version")
        elif self.source == "changes":
            s = rc.changes("s", schema, "k", version="version")
        else:
            s = rc.source("s", schema, properties=known)
        t = rc.table("t", schema) if self.other == "table" else rc.source("t", schema, properties=known)
        query = self.plan.build(s, t)
        read = sources_of(query.plan)
        return {"out": query, **{name: of for name, of in (("s", s), ("t", t)) if name in read}}

    def meaning(self, histories: Mapping[str, History]) -> History:
        """What the final rows say."""
        s, t = (histories.get(name, []) for name in ("s", "t"))
        if self.source != "stream":
            follow = keyed.restate if self.source == "records" else keyed.changes
            rows = [rc.Insert(row.payload, row.vs, row.ve) for row in s]
            s = follow(rows, keyed.RowMeaning(["k", "v"], ["k"], "version"))
        if self.other == "table":
            t = [rc.Event(row.payload, BEGINNING, FOREVER) for row in t]
        return self.plan.meaning(s, t)

    def meaning_now(self, histories: Mapping[str, History], watermark: int) -> History | None:
        """What it shows of rows that may still change; None if it waits for CTIs.

        Windows without a last one show what has begun, and what an event that ends is in.
        """
        if not self.plan.is_immediate or self.source != "stream" or self.other != "stream":
            return None
        if self.refuses_endless:
            if len(self.plan.steps) > 1:
                return None
            return self.plan.meaning(_so_far(histories["s"], watermark, by_group="by k" in repr(self)), [])
        return self.meaning(histories)

    def case(self, dice: Dice, without: Set[str] = frozenset()) -> tuple[Case, str, rc.Properties]:
        """A case for its sources, the type of ``v`` in it, and what its sources declare."""
        value = dice.pick(self.values)
        if self.source != "stream":
            return make_row_case(dice, "s", value=value, without=without), value, rc.Properties()
        known = dice.pick(KNOWN)
        shape = Shape(known.is_insert_only, known.is_ordered, known.is_shrink_only)
        clock = dice.pick(self.clocks)
        # Where windows may go on for ever, most rows end: the others are all refused.
        is_endless = not self.refuses_endless or dice.pick([False, len(self.plan.steps) == 1, False, True])
        return (
            make_case(
                dice,
                self.sources,
                shape=shape,
                value=value,
                clock=clock,
                is_endless=is_endless,
                without=without,
            ),
            value,
            known,
        )

    @cached_property
    def sources(self) -> list[str]:
        """What it reads, by name."""
        return [name for name in self.build(INT64, rc.Properties()) if name != "out"]

    @cached_property
    def refuses_endless(self) -> bool:
        """Has it windows without a last one?"""
        return any(step.name.startswith("endless") for step in self.plan.steps)

    @property
    def values(self) -> tuple[str, ...]:
        """The types that ``v`` may have: both sources have one, which a step below may change."""
        if len(self.plan.steps) > 1 or self.other == "table" or _WHOLE_NUMBERS.search(repr(self)):
            return (INT64,)
        return (INT64, FLOAT64, DECIMAL)

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """What ticks may stand for: a last window is named by a tick."""
        if self.place is not None:
            return (self.place.clock,)
        return (TICKS,) if _NAMED_TICK.search(repr(self)) else (TICKS, FAR, EARLY)

    @cached_property
    def nodes(self) -> set[str]:
        """The kinds of nodes it is made of, before and after it is rewritten."""
        plan = self.build(INT64, rc.Properties())["out"].plan
        return {type(node).__name__ for root in (plan, *optimize([plan])) for node in _walk(root)}


def _so_far(history: History, watermark: int, *, by_group: bool) -> History:
    """What never ends, as long as its windows have begun or hold an event of its group that ends."""
    ends: dict[Any, int] = {}
    for event in history:
        group = event.payload["k"] if by_group else None
        ends[group] = max(ends.get(group, watermark + 1), event.ve if event.ve < FOREVER else 0)
    return [
        replace(e, ve=ends[e.payload["k"] if by_group else None]) if e.ve == FOREVER else e for e in history
    ]


def _walk(plan: Node) -> Iterator[Node]:
    """All nodes, those of a group's plan too."""
    for node in walk(plan):
        yield node
        if isinstance(node, GroupApply):
            yield from _walk(node.plan)


def queries() -> list[Query]:
    """Each step alone; over a step of another family; and some over keyed sources, and with a table."""
    names = [name for family in FAMILIES.values() for name in family]
    steps = [_BY_NAME[name] for name in names]
    found = [Query(Plan((step,))) for step in steps]
    # A stride that has no factor with their number comes by every step once.
    stride = next(n for n in range(len(steps) * 2 // 5, len(steps)) if gcd(n, len(steps)) == 1)
    over = [Plan((steps[at * stride % len(steps)], step)) for at, step in enumerate(steps)]
    found += [Query(plan) for at, plan in enumerate(over) if at % 2 == 0]
    for at, name in enumerate(["sum eager by k", "first over 6/3+-1 perfect", "coalesce", "join anti"]):
        found.append(Query(Plan((_BY_NAME[name],)), ("records", "changes")[at % 2]))
        found.append(Query(Plan((_BY_NAME["join left"], _BY_NAME[name])), other="table"))
    for at, place in enumerate(PLACES):
        own = step_over(place, ("sum", "first", "echo")[at % 3], SPECULATE[at % 2], grouped=at % 2 == 1)
        found.append(Query(Plan((own,)), place=place))
    return found
