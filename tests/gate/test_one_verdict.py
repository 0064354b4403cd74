"""The same rows get the same verdict, by whatever way they come in.

One verdict: taken or refused. One count by reason, one history, one reason text but for the place; and of
several faults the earliest row's is reported. All ways are compared with rows pushed one at a time, as no
later row can then be in the way; and these with `PlainGate`, which shares no code with any way.
"""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.gate import tasks, ways
from tests.gate.cases import PAYLOAD, STREAM, Case, Row
from tests.gate.families import FAMILIES, make_case
from tests.gate.plain import PlainGate, says
from tests.gate.verdicts import Verdict
from tests.gate.ways import Way
from tests.lmerge.scripts import examples

import recension as rc
from recension.testing.physical import Dice
from recension.testing.strategies import rolls

KINDS = {
    "pushed": ways.PUSHED,
    "run": ways.RUN,
    "opened": ways.OPENED,
    "paths": ways.PATHS,
    "command": ways.COMMAND,
    "batch": ways.BATCH,
    "Spark's tasks": tasks.TASKS,
}


def reference(case: Case, folder: Path) -> Verdict:
    """What all ways must agree with."""
    return (ways.row_by_row if case.may_be_cut else ways.PUSHED["a table"])(case, folder)


def check(case: Case, found: dict[str, Way], folder: Path) -> None:
    """All these ways that the case may come by."""
    expected = reference(case, folder)
    for name, way in found.items():
        if ways.may_take(name, case):
            ways.compare(name, case, expected, way(case, folder))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_gives_one_verdict(family: str, kind: str) -> None:
    @given(rolls(128))
    @settings(max_examples=examples(200 if kind == "pushed" else 60))
    def holds(rolled: bytes) -> None:
        dice = Dice(rolled)
        with tempfile.TemporaryDirectory() as folder:
            check(make_case(family, dice), KINDS[kind], Path(folder))

    holds()


INSERT: Row = {"_kind": "insert", "_vs": 1, "_ve": 5, "k": "a", "v": 1}
FAULTS: dict[str, Row] = {
    "unknown kind 'upsert'": INSERT | {"_kind": "upsert"},
    "closes an event that is not open": {"_kind": "close", "_ve": 5, "k": "b", "v": 1},
    "a retraction, but the source is declared insert-only": INSERT | {"_kind": "retract", "_new_ve": 3},
    "an event that ends before it has begun": INSERT | {"_ve": 0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_earlier_of_two_faults_is_reported_whichever_step_finds_it(kind: str, tmp_path: Path) -> None:
    options = {"on_violation": "raise", "properties": rc.Properties(is_insert_only=True)}
    for first, second in permutations(FAULTS, 2):
        case = Case(options, {**STREAM, **PAYLOAD}, [INSERT, FAULTS[first], FAULTS[second], INSERT])
        expected = reference(case, tmp_path)
        assert expected.row == 2
        assert expected.refused.startswith(first)
        check(case, KINDS[kind], tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_after_the_end_of_time_is_late(kind: str, tmp_path: Path) -> None:
    """Also where the event has no end: nobody remembers it any more."""
    event: Row = {"_vs": 0, "_ve": None, "k": "a", "v": 1}
    told = [
        event | {"_kind": "insert"},
        {"_kind": "cti", "_vs": None},
        event | {"_kind": "retract", "_new_ve": 8},
    ]
    case = Case({"on_violation": "adjust"}, {**STREAM, **PAYLOAD}, told)
    assert reference(case, tmp_path).counts == {"breaks an earlier cti": 1}
    check(case, KINDS[kind], tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_earliest_fault_is_that_of_a_plain_walk(family: str) -> None:
    @given(rolls(128))
    @settings(max_examples=examples(200))
    def holds(rolled: bytes) -> None:
        case = make_case(family, Dice(rolled), "raise")
        found, expected = reference(case, Path()), PlainGate(case).first_fault()
        if expected is None or not case.may_be_cut:
            assert not found.refused or not case.may_be_cut, found
            return
        assert (found.row, says(found.refused, expected[1])) == (expected[0], True), (case, found, expected)

    holds()
