"""Columns that are missing or of another type: one verdict by every way in, for every format with types.

CSV and JSON have types of their own: there it is the same rows that are refused, in words of the format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from tests.gate import tasks, ways
from tests.gate.cases import Case

TIMES = {"_vs": pa.array([1, 2]), "_ve": pa.array([5, 6])}
STAMPS = pa.array([1, 2], pa.timestamp("us", "UTC"))
GOOD = {**TIMES, "k": pa.array(["a", "b"]), "v": pa.array([1, 2])}


@dataclass(frozen=True)
class Columns(Case):
    """Rows with these columns, for a source of a text ``k`` and a whole number ``v``."""

    given: pa.Table = field(default_factory=pa.table)

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        return self.given.slice(start, None if stop is None else stop - start)


def case(columns: dict[str, pa.Array]) -> Columns:
    given = pa.table(columns)
    return Columns({}, dict.fromkeys(columns, "int64"), given.to_pylist(), given=given)


REFUSED = {
    "no v": ({**TIMES, "k": GOOD["k"]}, "no column v; there are k"),
    "texts": (
        {**GOOD, "v": pa.array(["x", "y"])},
        "column v: Failed to parse string: 'x' as a scalar of type int64",
    ),
    "fractions": (
        {**GOOD, "v": pa.array([1.0, 1.5])},
        "column v: Float value 1.500000 was truncated",
    ),
    "truths": ({**GOOD, "v": pa.array([True, False])}, "column v: bool values are not int64 values"),
    "too large": (
        {**GOOD, "v": pa.array([1, 2**63], pa.uint64())},
        "column v: Integer value 9223372036854775808 ",
    ),
    "no start": ({"_ve": TIMES["_ve"], "k": GOOD["k"], "v": GOOD["v"]}, "neither a _kind nor a _vs column"),
    "two kinds of time": ({**GOOD, "_vs": STAMPS}, "times are all integers or all timestamps of one kind"),
    "an end of what": ({**GOOD, "_new_ve": TIMES["_ve"]}, "column _new_ve without a column _kind"),
}
TAKEN = {
    "as declared": GOOD,
    "more": {**GOOD, "w": pa.array(["x", "y"])},
    "narrower": {**GOOD, "v": pa.array([1, 2], pa.int32())},
    "whole floats": {**GOOD, "v": pa.array([1.0, 2.0])},
    "a dictionary": {**GOOD, "k": GOOD["k"].dictionary_encode()},
    "nulls": {**GOOD, "v": pa.nulls(2)},
    "timestamps": {**GOOD, "_vs": STAMPS, "_ve": pa.array([5, 6], STAMPS.type)},
    "none": {name: column.slice(0, 0) for name, column in GOOD.items()},
}
ALL = {
    name: way
    for name, way in (ways.PUSHED | ways.RUN | ways.OPENED | ways.PATHS | ways.COMMAND | tasks.TASKS).items()
    # Spark compares a DataFrame where the query is built, and has no files before there are rows.
    if name not in ways.NEEDS_ELEMENTS and not name.startswith("Spark's tasks, rows")
}
TYPED = {name: way for name, way in ALL.items() if "csv" not in name and "jsonl" not in name}


@pytest.mark.parametrize(("columns", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_the_same_words(
    columns: dict[str, pa.Array], reason: str, tmp_path: Path
) -> None:
    found = {name: way(case(columns), tmp_path) for name, way in TYPED.items()}
    assert [name for name, verdict in found.items() if not verdict.refused.startswith(reason)] == []


@pytest.mark.parametrize("columns", TAKEN.values(), ids=TAKEN)
def test_what_fits_is_taken(columns: dict[str, pa.Array], tmp_path: Path) -> None:
    rows = case(columns)
    expected = ways.PUSHED["a table"](rows, tmp_path)
    assert len(expected.history) == len(rows.rows)
    for name, way in TYPED.items():
        ways.compare(name, rows, expected, way(rows, tmp_path))


@pytest.mark.parametrize("columns", [columns for columns, _ in REFUSED.values()], ids=REFUSED)
def test_texts_are_refused_as_well(columns: dict[str, pa.Array], tmp_path: Path) -> None:
    texts = {name: way for name, way in ALL.items() if name not in TYPED}
    found = {name: way(case(columns), tmp_path) for name, way in texts.items()}
    # A key that a JSON object does not have is null.
    may_lack = "v" not in columns
    assert [n for n, v in found.items() if not v.refused and not (may_lack and "jsonl" in n)] == []
