"""Every row of the matrix finds the same answers, and its default row is what a newcomer writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import matrix

SMALL = 500


@pytest.mark.parametrize("workload", ["W1", "W2", "W3"])
def test_all_rows_find_the_same_answers(workload: str, tmp_path: Path) -> None:
    columns = [column for column in matrix.COLUMNS if column.workload == workload]
    for column in columns:
        found = {}
        for number, choices in enumerate(matrix.ROWS):
            folder = tmp_path / f"{column.keys}-{number}"
            folder.mkdir()
            measurement = matrix.SUITE.named(f"{column}: {choices}")
            found[choices] = measurement.run(measurement.load(SMALL, folder))
        assert len(set(found.values())) == 1, found
        assert min(found.values()) > 0


def test_the_default_row_is_floats_text_keys_undeclared_at_once_from_parquet() -> None:
    assert str(matrix.DEFAULT) == "floats, text keys, undeclared, at once, Parquet"
    assert matrix.ROWS[0] == matrix.DEFAULT
