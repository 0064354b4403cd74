"""Time columns of a plain table that the source's schema has as well: time and payload."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.gate.files import open_stream

_AT = [dt.datetime(2024, 7, 1, 12), dt.datetime(2024, 7, 1, 13)]
_TO = [dt.datetime(2024, 7, 2), None]
TIMES = {
    "ticks": (pa.int64(), [3, -4], [9, None]),
    "naive seconds": (pa.timestamp("s"), _AT, _TO),
    "aware": (pa.timestamp("us", "UTC"), _AT, _TO),
    "a zone": (pa.timestamp("ms", "Europe/Paris"), _AT, _TO),
}


def shown(kind: str, *names: str, end: str | None = "till") -> tuple[pa.Table, rc.Stream]:
    """A table of two jobs, and a source that has some of its columns."""
    of_times, starts, ends = TIMES[kind]
    table = pa.table(
        {"from": pa.array(starts, of_times), "till": pa.array(ends, of_times), "x": pa.array([1, 2])}
    )
    schema = {name: table.schema.field(name).type for name in names}
    return table, rc.source("c", schema, start="from", end=end)


def told(elements: Any) -> list[tuple[Any, int, int]]:
    return [(e.payload, int(e.vs), int(e.ve)) for e in elements if isinstance(e, rc.Insert)]


@pytest.mark.parametrize("kind", TIMES)
def test_a_time_column_of_the_schema_is_payload_too(kind: str) -> None:
    table, source = shown(kind, "x", "till", "from")
    with_start = source.with_columns(start=rc.start(), end=rc.end())
    for row in (e.payload for e in rc.run(with_start, {"c": table}).elements() if isinstance(e, rc.Insert)):
        assert (row["from"], row["till"]) == (row["start"], row["end"])
    table, points = shown(kind, "from", "x", end=None)
    elements = rc.run(points, {"c": table}).elements()
    assert [e.payload for e in elements if isinstance(e, rc.Insert)] == table.select(
        ["from", "x"]
    ).to_pylist()
    frame = table.select(["from", "x"]).to_pandas()
    assert told(rc.run(points, {"c": frame}).elements()) == told(elements)


@pytest.mark.parametrize("kind", TIMES)
def test_what_was_read_can_be_read_again(kind: str) -> None:
    table, source = shown(kind, "from", "till", "x")
    result = rc.run(source, {"c": table})
    for again in (
        result,
        result.to_arrow(),
        result.history(),
        result.history().to_arrow(),
        result.elements(),
    ):
        assert told(rc.run(source, {"c": again}).elements()) == told(result.elements())


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize("names", [("from", "till", "x"), ("x", "till"), ("from",)])
def test_files_have_them_too(tmp_path: Path, kind: str, suffix: str, names: tuple[str, ...]) -> None:
    table, source = shown(kind, *names)
    path = tmp_path / f"jobs.{suffix}"
    _write(table, path)
    reader = open_stream(path, schema=source.schema, start="from", end="till")
    read = [element for batch in reader for element in batch.to_elements()]
    assert told(read) == told(rc.run(source, {"c": table}).elements())


def _write(table: pa.Table, path: Path) -> None:
    rows = [{name: _spell(value) for name, value in row.items()} for row in table.to_pylist()]
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    elif path.suffix == ".csv":
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
        path.write_text("\n".join([",".join(table.column_names), *lines, ""]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _spell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime) else value


def test_a_time_column_that_does_not_fit_its_type_is_an_error() -> None:
    table, _ = shown("aware", "x")
    source = rc.source("c", {"from": "timestamp[s, UTC]"}, start="from")
    fine = table.set_column(0, "from", pa.array([1, 2], pa.timestamp("us", "UTC")))
    with pytest.raises(rc.RecensionError, match="c: row 1: column from"):
        rc.run(source, {"c": fine})
