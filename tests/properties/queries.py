"""A hundred queries by name: every step in every form of speculation, steps over steps; and what they mean.

The steps are those of `tests.properties.plans`; here are a few more, which need final rows that end, other
inputs or other values. `queries` puts them together: each step alone, then each over others by turns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Any

from tests.properties.places import PLACES, Place, as_timestamps, step_over
from tests.properties.plans import STEPS, Plan
from tests.properties.step import History, StepKind, plus

import recension as rc
from recension import denote
from recension.core.events import Element, Insert
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import keyed
from recension.plan.node import Node, walk
from recension.plan.nodes import GroupApply
from recension.plan.rewrites.optimize import optimize
from recension.plan.source import sources_of
from recension.testing.cases import DECIMAL, FLOAT64, INT64, Case, make_case, make_log_case, make_row_case
from recension.testing.clocks import EARLY, FAR, TICKS
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
    "span": [
        "where", "select", "map", "where and select", "v = lifetime", "where end() - start() > 3", "union",
    ],
    "distinct": ["distinct", "apply distinct"],
    "lifetime": [
        "shift", "cut", "hop", "inserts", "deletes", "to_points", "set_duration", "clip",
        "live from start() to min_horizontal(end(), start() + 2)", "live from end() - 2 to None",
    ],
    "join": [f"join {how}" for how in ("inner", "left", "full", "semi", "anti")],
    "pattern": [step.name for step in STEPS if "by start (" in step.name] + ["unless 4", "sequence"],
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
        "due", "due by t", "due by itself", "due by the clock",
        "sum STRONG", "sum MIDDLE",
    ],
    "group apply": [
        "apply cleanse", "apply merge of what is in order", "apply sum of cleansed", "apply windows",
        "apply left join with the group later",
    ],
}  # fmt: skip
_EACH_TYPE = ("distinct", "join", "coalesce", "consistency")
"""Families in which each step is of a kind of its own."""
TYPES = (INT64, FLOAT64, DECIMAL)
_WHOLE_NUMBERS = re.compile("map|median|module|echo|total")
"""Steps that are declared for whole numbers."""
_NAMED_TICK = re.compile(r"over \d+/|module|windows")
_BY_NAME = {step.name: step for step in [*STEPS, *MORE]}


@dataclass(frozen=True)
class Query:
    """Steps over two sources of the kinds ``source`` and ``other``; ``value`` is the type of ``v``."""

    plan: Plan
    value: str = INT64
    source: str = "stream"
    other: str = "stream"
    place: Place | None = None

    def __repr__(self) -> str:
        read = "" if self.source == "stream" else f" of {self.source}"
        read += "" if self.other == "stream" else f" with a {self.other}"
        read += "" if self.value == INT64 else f" of {self.value}"
        return ", ".join(step.name for step in self.plan.steps) + read

    def build(self, known: rc.Properties) -> dict[str, rc.Stream]:
        """The query, and what it reads, by name."""
        schema = {"k": "string", "v": self.value}
        if self.source == "records":
            s = rc.source("s", schema, key="k", version="version")
        elif self.source == "log":
            s = rc.debezium("s", schema, "k", version="version").stream
        elif self.source == "changes":
            s = rc.changes("s", schema, "k", version="version")
        else:
            s = rc.source("s", schema, properties=known)
        t = rc.table("t", schema) if self.other == "table" else rc.source("t", schema, properties=known)
        query = self.plan.build(s, t)
        read = sources_of(query.plan)
        return {"out": query, **{name: of for name, of in (("s", s), ("t", t)) if name in read}}

    def data(self, elements: list[Element]) -> list[Any]:
        """What is pushed for these elements, in turn: rows of a log are messages."""
        if self.source != "log":
            return [elements]
        feed = rc.debezium("s", {"k": "string", "v": self.value}, "k", version="version")
        rows = [element for element in elements if isinstance(element, Insert)]
        rest = [element for element in elements if not isinstance(element, Insert)]
        return [*([feed.rows([_message(row) for row in rows])] if rows else []), *([rest] if rest else [])]

    def meaning(self, histories: Mapping[str, History]) -> History:
        """What the final rows say."""
        s, t = (histories.get(name, []) for name in ("s", "t"))
        if self.source == "log":
            told = [rc.Insert(row.payload, row.vs * 1000) for row in s]
            says = keyed.RowMeaning(["k", "v"], ["k"], "version", "gone")
            return as_timestamps(self.plan.meaning(keyed.changes(told, says, "version"), t), "UTC")
        if self.source != "stream":
            follow = keyed.restate if self.source == "records" else keyed.changes
            rows = [rc.Insert(row.payload, row.vs, row.ve) for row in s]
            s = follow(rows, keyed.RowMeaning(["k", "v"], ["k"], "version"))
        if self.other == "table":
            t = [rc.Event(row.payload, BEGINNING, FOREVER) for row in t]
        meant = self.plan.meaning(s, t)
        return meant if self.place is None else as_timestamps(meant, self.place.clock.tz)

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

    def dice(self, seed: int) -> Dice:
        """Other choices for every query; of 0 the plainest."""
        return Dice(random.Random(f"{seed} {self}").randbytes(512) if seed else bytes(512))

    def case(self, dice: Dice, without: Set[str] = frozenset()) -> tuple[Case, rc.Properties]:
        """A case for its sources, and what these declare."""
        if self.source == "log":
            return make_log_case(dice, "s", value=self.value, without=without), rc.Properties()
        if self.source != "stream":
            return make_row_case(dice, "s", value=self.value, without=without), rc.Properties()
        known = dice.pick(KNOWN)
        shape = Shape(known.is_insert_only, known.is_ordered, known.is_shrink_only)
        clock = self.place.clock if self.place else TICKS
        if not self.place and not _NAMED_TICK.search(repr(self)) and "numbers no float holds" not in without:
            clock = dice.pick((TICKS, FAR, EARLY))
        # Where windows may go on for ever, most rows end: the others are all refused.
        is_endless = not self.refuses_endless or dice.pick([False, len(self.plan.steps) == 1, False, True])
        of: Any = {"shape": shape, "value": self.value, "clock": clock, "is_endless": is_endless}
        return make_case(dice, self.sources, without=without, **of), known

    @property
    def families(self) -> set[str]:
        """What its steps are, and its inputs."""
        if self.place or self.source != "stream":
            return {"calendar" if self.place else self.source}
        own = {name for step in self.plan.steps for name, of in FAMILIES.items() if step.name in of}
        return own if self.other == "stream" else {*own, self.other}

    @cached_property
    def sources(self) -> list[str]:
        """What it reads, by name."""
        return [name for name in self.build(rc.Properties()) if name != "out"]

    @cached_property
    def refuses_endless(self) -> bool:
        """Has it windows without a last one?"""
        return any(step.name.startswith("endless") for step in self.plan.steps)

    @cached_property
    def nodes(self) -> set[str]:
        """The kinds of nodes it is made of, before and after it is rewritten."""
        plan = self.build(rc.Properties())["out"].plan
        return {type(node).__name__ for root in (plan, *optimize([plan])) for node in _walk(root)}


def _message(row: Insert) -> dict[str, Any]:
    """A row of a log as Debezium writes it."""
    told = {name: row.payload[name] for name in ("k", "v")}
    before, after = (told, None) if row.payload["gone"] else (None, told)
    op = "d" if row.payload["gone"] else "u"
    body = {"op": op, "before": before, "after": after}
    body["source"] = {"version": row.payload["version"], "ts_ms": int(row.vs)}
    return {"schema": {}, "payload": body} if row.payload["is_wrapped"] else body


def _so_far(history: History, watermark: int, *, by_group: bool) -> History:
    """What never ends, as long as its windows have begun or hold an event of its group that ends."""
    ends: dict[Any, int] = {}
    for event in history:
        group = event.payload["k"] if by_group else None
        ends[group] = max(ends.get(group, watermark + 1), event.ve if event.ve < FOREVER else watermark)
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
    """Each step alone; over a step of another family; over keyed sources, with a table, in zones."""
    found = list(_alone())
    steps = [_BY_NAME[name] for family in FAMILIES.values() for name in family]
    # A stride that has no factor with their number comes by every step once.
    stride = next(n for n in range(len(steps) * 2 // 5, len(steps)) if gcd(n, len(steps)) == 1)
    found += [Query(Plan((steps[at * stride % len(steps)], steps[at]))) for at in range(0, len(steps), 2)]
    for name in ("sum eager by k", "first over 6/3+-1 perfect", "coalesce", "join anti"):
        found.append(Query(Plan((_BY_NAME["join left"], _BY_NAME[name])), other="table"))
    for name in ("sum perfect by k", "edges"):
        keyed_sources = [(value, source) for value in TYPES for source in ("records", "changes")]
        found += [Query(Plan((_BY_NAME[name],)), value, source) for value, source in keyed_sources]
        found += [Query(Plan((_BY_NAME[name],)), value, "log") for value in TYPES]
    for at, place in enumerate(PLACES):
        own = step_over(place, ("sum", "first", "echo")[at % 3], SPECULATE[at % 2], grouped=at % 2 == 1)
        found.append(Query(Plan((own,)), place=place))
    return found


def _alone() -> Iterator[Query]:
    """Each step with a type of values: where many are alike, the types take turns."""
    for name, family in FAMILIES.items():
        for at, step in enumerate(family):
            types = TYPES if name in _EACH_TYPE else [TYPES[at % 3]]
            for value in types if not _WHOLE_NUMBERS.search(step) else [INT64]:
                yield Query(Plan((_BY_NAME[step],)), value)
