"""What cannot be a pattern, or a join by start, is refused when the query is built: one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import recension as rc
from recension import col
from recension.core.errors import RecensionError

SCHEMA = {"k": "string", "v": "int64"}
a, b = rc.source("a", SCHEMA), rc.source("b", SCHEMA)
other = rc.source("other", {"x": "int64"})
ticks = rc.source("ticks", SCHEMA, times="int64")
stamps = rc.source("stamps", SCHEMA, times="timestamp[us, UTC]")
table = rc.table("table", SCHEMA)


def sequence(parts: Any = None, **changed: Any) -> Any:
    given: dict[str, Any] = {"within": 5, "on": "k"} | changed
    return rc.sequence({"a": a, "b": b} if parts is None else parts, **given)


def unless(one: Any = a, two: Any = b, **changed: Any) -> Any:
    given: dict[str, Any] = {"within": 5, "on": "k"} | changed
    return rc.unless(one, two, **given)


def join(starts: Any, **how: Any) -> Any:
    return a.join(b, on="k", starts=starts, **how)


REFUSED: dict[str, Callable[[], Any]] = {
    "sequence: on= is missing": lambda: sequence(on=None),
    "unless: on= is missing": lambda: unless(on=None),
    "all_of: on= is missing": lambda: rc.all_of({"a": a, "b": b}, within=5),
    "at_least: on= is missing": lambda: rc.at_least(1, {"a": a, "b": b}, within=5),
    "sequence(on=...), in part 'a': there is no column 'nope'": lambda: sequence(on="nope"),
    "sequence(on=...), in part 'b': there is no column 'k'": lambda: sequence({"a": a, "b": other}),
    "sequence(on=...), in absent: there is no column 'k'": lambda: sequence(absent=other),
    "unless(on=...), in the right stream: there is no column 'k'": lambda: unless(a, other),
    "sequence: within= is missing": lambda: sequence(within=None),
    "unless: within= is missing": lambda: unless(within=None),
    "sequence: within must be 1 tick or more, not 0": lambda: sequence(within=0),
    "unless: within must be 1 tick or more, not -3": lambda: unless(within=-3),
    "sequence(within=...): 'soon' is not a duration": lambda: sequence(within="soon"),
    "join: starts=(5, 0) is reversed": lambda: join((5, 0)),
    "join: starts=('1d', '0s') is reversed": lambda: join(("1d", "0s")),
    "join(starts=...): '2024-01-01' is not a duration": lambda: join(("2024-01-01", "2024-01-02")),
    "join: starts is the least and the greatest distance": lambda: join(5),
    "join: closed is 'both', 'left', 'right' or 'neither', not 'open'": lambda: join((0, 5), closed="open"),
    "join: closed='left' is about starts=": lambda: a.join(b, on="k", closed="left"),
    "join: how is 'inner', 'left', 'full', 'semi', 'anti' or 'cross'": lambda: join((0, 5), how="outer"),
    "join(how='cross'): every pair matches, so starts= cannot choose": lambda: join((0, 5), how="cross"),
    "join: starts='1d' is a length of time": lambda: ticks.join(ticks, on="k", starts=(0, "1d")),
    "sequence: within='5s' is a length of time": lambda: sequence({"a": ticks, "b": ticks}, within="5s"),
    "join: timestamps in UTC do not mix with ticks": lambda: ticks.join(stamps, on="k", starts=(0, 5)),
    "sequence: timestamps in UTC do not mix with ticks": lambda: sequence({"a": ticks, "b": stamps}),
    "unless: timestamps in UTC do not mix with ticks": lambda: unless(ticks, stamps),
    "at_least: n is from 1 to the number of parts, 2, not 0": lambda: rc.at_least(
        0, {"a": a, "b": b}, within=5, on="k"
    ),
    "at_least: n is from 1 to the number of parts, 2, not 3": lambda: rc.at_least(
        3, {"a": a, "b": b}, within=5, on="k"
    ),
    "at_least: n is how many of the parts": lambda: rc.at_least("2", {"a": a}, within=5, on="k"),  # type: ignore[arg-type]
    "sequence: a pattern has two parts or more, not 1": lambda: sequence({"a": a}),
    "sequence: the parts are streams by name": lambda: sequence([a, b]),
    "sequence: two columns would be named 'a_b_x'": lambda: sequence(
        {"a_b": a.rename({"v": "x"}), "a": b.rename({"v": "b_x"})}
    ),
    "sequence: '' is no name for a part": lambda: sequence({"": a, "b": b}),
    "sequence: 1 is no name for a part": lambda: sequence({1: a, "b": b}),
    "sequence: 'a b' is no name for a part": lambda: sequence({"a b": a, "b": b}),
    "sequence(where=v > 1): there is no column 'v'": lambda: sequence(where=col("v") > 1),
    "unless(where=q > 1): there is no column 'q'": lambda: unless(where=col("q") > 1),
    "sequence(where=a_v + 1): a condition must be true or false": lambda: sequence(where=col("a_v") + 1),
    "sequence, part 'b': a stream is needed here, not 5": lambda: sequence({"a": a, "b": 5}),
    "unless: a stream is needed here, not 'b'": lambda: unless(a, "b"),
    "sequence(absent=...): a stream is needed here, not 3": lambda: sequence(absent=3),
    "sequence: the rows of table 'table' are true at all times": lambda: sequence({"a": a, "b": table}),
    "join: the rows of table 'table' are true at all times": lambda: a.join(table, on="k", starts=(0, 5)),
    "sequence: most is how many answers one event may add, not 0": lambda: sequence(most=0),
    "sequence: most is how many answers one event may add, not True": lambda: sequence(most=True),
    "sequence: on_limit is 'raise' or 'drop', not 'ignore'": lambda: sequence(on_limit="ignore"),
    "apply: sequence of a, b on k within 5 would show source b": lambda: a.group_by("v").apply(
        lambda g: sequence({"a": g, "b": b})
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_it_is_refused_in_one_line(said: str) -> None:
    with pytest.raises(RecensionError) as refused:
        REFUSED[said]()
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [ticks, stamps])
def test_lengths_in_ticks_go_with_every_kind_of_time(kind: rc.Stream) -> None:
    assert kind.join(kind, on="k", starts=(-5, 5)).schema.names == ["k", "v", "v_right"]
    assert unless(kind, kind, within=5).schema.names == ["k", "v"]


def test_what_a_condition_says_of_one_part_is_asked_before() -> None:
    """Of the keys too, and then also of what is absent; a pattern that drops by what is there asks later."""
    condition = (col("a_v") > 1) & (col("k") != "x") & (col("a_v") < col("b_v"))
    found = sequence(where=condition, absent=a.select("k")).explain()
    assert "within 5, none of another stream between where a_v < b_v" in found
    assert found.count("k != 'x'") == 3
    assert found.count("v > 1") == 1
    late = sequence(where=condition, on_limit="drop").explain()
    assert "where a_v > 1 & k != 'x' & a_v < b_v" in late.splitlines()[0].replace("(", "").replace(")", "")


def test_explain_speaks_of_the_pattern() -> None:
    def first_line(stream: rc.Stream) -> str:
        return stream.explain().splitlines()[0]

    streams = {"a": a, "b": b}
    assert first_line(sequence(absent=b)) == "sequence of a, b on k within 5, none of another stream between"
    assert first_line(rc.all_of(streams, within=5, on=[])) == "all of a, b within 5"
    assert first_line(rc.at_least(1, streams, within=5, on="k")) == "at least 1 of a, b on k within 5"
    assert first_line(unless(where=col("v") > 1)) == "unless on k within 5 where v > 1"
