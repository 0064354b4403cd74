"""A table of ours in Iceberg, read without us: by Spark SQL, DuckDB and pandas, from what its metadata lists.

DuckDB has an extension for Iceberg, which must be fetched, and pandas reads by pyiceberg. Here both get the
files that the metadata names, and leave out the rows that the delete files name, as every reader of the
format does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import duckdb
import pandas as pd
import pytest
from tests.runners.spark.lake.elements import ann, elements, ends
from tests.runners.spark.lake.test_iceberg import Fed
from tests.runners.spark.sinks.feeding import fed

fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: recension[avro]")

GIVEN = [
    elements(ann(1, 5), ann(1, 5), ann(2, 9, "b")),
    elements(ends(1, 5, 4), ann(3, 7, "c")),
    elements(ends(2, 9, 6, "b")),
]
EXPECTED = [(1, 4, "a"), (1, 5, "a"), (2, 6, "b"), (3, 7, "c")]
DATA, DELETES = 0, 1


def test_spark_sql_duckdb_and_pandas(iceberg: Any, lake: str, tmp_path: Path) -> None:
    writer = Fed(iceberg, f"{lake}.db.t").writer()
    for number, batch in enumerate(GIVEN):
        writer.apply(fed(batch, number, "q", f"c{number}"))
    iceberg.sql(f"REFRESH TABLE {lake}.db.t")
    rows = iceberg.sql(f"SELECT _vs, _ve, name FROM {lake}.db.t ORDER BY ALL").collect()
    assert [tuple(row) for row in rows] == EXPECTED
    files = listed(tmp_path / "lake" / "db" / "t")
    assert files[DELETES], "this is to be a table with removed rows"
    question = f"""
        SELECT _vs, _ve, name
        FROM read_parquet({files[DATA]}, filename = true, file_row_number = true) AS data
        WHERE NOT EXISTS (
            FROM read_parquet({files[DELETES]}) AS gone
            WHERE gone.pos = data.file_row_number AND replace(gone.file_path, 'file:', '') = data.filename
        ) ORDER BY ALL"""
    assert duckdb.sql(question).fetchall() == EXPECTED
    gone = pd.concat([pd.read_parquet(file) for file in files[DELETES]])
    whose = gone["file_path"].map(_path)
    parts = [pd.read_parquet(file).drop(index=gone.loc[whose == file, "pos"]) for file in files[DATA]]
    frame = pd.concat(parts)[["_vs", "_ve", "name"]].sort_values(["_vs", "_ve"])
    assert list(frame.itertuples(index=False, name=None)) == EXPECTED


def listed(table: Path) -> dict[int, list[str]]:
    """The files of the current snapshot, by what they hold."""
    version = (table / "metadata" / "version-hint.text").read_text()
    metadata = json.loads((table / "metadata" / f"v{version}.metadata.json").read_text())
    (current,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    found: dict[int, list[str]] = {DATA: [], DELETES: []}
    for manifest in _records(current["manifest-list"]):
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] != 2:
                file = entry["data_file"]
                found[file["content"]].append(_path(file["file_path"]))
    return found


def _records(address: str) -> list[dict[str, Any]]:
    with Path(_path(address)).open("rb") as file:
        return list(fastavro.reader(file))


def _path(address: str) -> str:
    return urlparse(address).path
