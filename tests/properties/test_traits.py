"""Every family of steps is fed streams of every trait, with as many examples as CI draws; and what is not.

A generator that no longer makes what breaks algorithms would let every property pass. So each trait of
`recension.testing.cases` is looked for in the cases that the queries of each family are given. And every kind
of node is in some query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.properties.queries import FAMILIES, Query, queries
from tests.properties.test_any_feeding import EXAMPLES, SEEDS

from recension.plan import nodes
from recension.plan.node import Node
from recension.testing.cases import CLOCKS, TRAITS, Case

QUERIES = queries()
NO_QUERY: Mapping[str, str] = {
    "AdvanceTimeByClock": "made in the shards of a pipeline on Spark: tests/runners/spark/stream",
    "AlignByClock": "made in the shards of a pipeline on Spark: tests/runners/spark/stream",
    "ByKey": "what the two steps by key have in common",
    "Node": "what all nodes have in common",
}
"""The kinds of nodes that no query has, and why."""

_ZONES = "only windows of a calendar look at zones"
_WHOLE = "its steps are declared for whole numbers"
_ONE_TYPE = "both inputs have one type"
_ROWS = "a row of a key replaces another: none is taken back"
_NAMED = "the last window is named by a tick"
_LASTS = "an event of a stream lasts for a tick at least"
_ZONED = ("clocks go forward", "clocks go back", "after 2037")
_VALUES = ("magnitudes far apart", "bounds of decimals")
_ENDS = ("to the end of time and back", "equal rows closed apart")
_MESSAGES = "only messages of a log have envelopes"
_ENDLESS = "a change holds until the next"
_OTHERS = {*FAMILIES, "table"}
NOT_DRAWN: Mapping[tuple[str, str], str] = {
    **{(family, trait): _ZONES for family in (*_OTHERS, "records", "changes", "log") for trait in _ZONED},
    **{(family, "zero length"): _LASTS for family in (*_OTHERS, "calendar")},
    **{(family, trait): _WHOLE for family in ("module", "calendar") for trait in _VALUES},
    **{("table", trait): _ONE_TYPE for trait in _VALUES},
    **{(family, trait): _ROWS for family in ("records", "changes", "log") for trait in _ENDS},
    **{(family, "both envelope forms"): _MESSAGES for family in (*_OTHERS, "records", "changes", "calendar")},
    ("log", "zero length"): _ENDLESS,
    **{(family, "numbers no float holds"): _NAMED for family in ("grid", "module", "calendar")},
    **{(family, "numbers no float holds"): _ROWS for family in ("records", "changes", "log")},
}
"""What a family is not fed, and why."""
ALWAYS: Mapping[tuple[str, str], str] = {("log", "never ends"): _ENDLESS}
"""What cannot be taken out."""


def count(wanted: list[Query], without: Set[str], examples: int = EXAMPLES) -> Counter[tuple[str, str]]:
    """How often a trait is drawn for a family."""
    counts: Counter[tuple[str, str]] = Counter()
    for query in wanted:
        for case in cases_of(query, without, examples):
            found = [trait for trait, is_in in TRAITS.items() if is_in(case)]
            counts.update((family, trait) for family in query.families for trait in found)
    return counts


def cases_of(query: Query, without: Set[str], examples: int) -> list[Case]:
    """What the property draws for a query, the same in every run."""
    found: list[Case] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=SEEDS)
    def draw(seed: int) -> None:
        found.append(query.case(query.dice(seed), without)[0])

    draw()
    return found


def find_missing(counts: Counter[tuple[str, str]]) -> set[tuple[str, str]]:
    """What is not drawn, and should be."""
    families = {family for query in QUERIES for family in query.families}
    return {(f, t) for f in families for t in TRAITS if not counts[f, t]} - NOT_DRAWN.keys()


@pytest.mark.slow  # `make quick` draws fewer
def test_every_family_is_fed_streams_of_every_trait() -> None:
    counts = count(QUERIES, frozenset())
    assert not find_missing(counts)
    assert not {named for named in NOT_DRAWN if counts[named]}, "it is drawn: no reason is needed"


@pytest.mark.parametrize("trait", TRAITS)
def test_a_trait_that_is_taken_out_is_missed(trait: str) -> None:
    """By every family that it is drawn for."""
    is_on = CLOCKS.get(trait)
    rest = [q for q in QUERIES if is_on is None or q.place is None or not is_on(q.place.clock)]
    families = {family for query in QUERIES for family in query.families}
    missing = {family for family, missed in find_missing(count(rest, {trait}, 2)) if missed == trait}
    assert missing == {family for family in families if (family, trait) not in {*NOT_DRAWN, *ALWAYS}}


def test_every_kind_of_node_is_in_a_query() -> None:
    kinds = {name for name in nodes.__all__ if issubclass_of_node(name)}
    there = set[str]().union(*(query.nodes for query in QUERIES))
    assert kinds - there == NO_QUERY.keys()


def issubclass_of_node(name: str) -> bool:
    found = getattr(nodes, name)
    return isinstance(found, type) and issubclass(found, Node)


def test_every_step_has_a_name_of_its_own_and_every_speculation() -> None:
    names = [repr(query) for query in QUERIES]
    assert len(set(names)) == len(names)
    for family in ("aggregate", "grid", "endless grid", "count window", "session"):
        for speculate in ("eager", "perfect", "ordered"):
            assert any(speculate in name for name in FAMILIES[family]), (family, speculate)
