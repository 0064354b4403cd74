"""From a physical stream to its history: 20 % disorder, 20 % of the events revised, number and text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Measurement, Suite
from benchmarks.streams import disordered_and_revised
from recension.core.batch import INSERT, RETRACT, EventBatch, concat

if TYPE_CHECKING:
    import pyarrow as pa

_MILLION = 1_000_000

_SQL = f"""
    SELECT value, text, vs, ve, sum(change) AS copies FROM (
        SELECT value, text, vs, ve, 1 AS change FROM elements WHERE kind = {INSERT}
        UNION ALL
        SELECT value, text, vs, ve, -1 FROM elements WHERE kind = {RETRACT}
        UNION ALL
        SELECT value, text, vs, new_ve, 1 FROM elements WHERE kind = {RETRACT} AND new_ve > vs
    ) GROUP BY ALL HAVING sum(change) > 0
"""


def _batches(size: int, _: Path) -> list[EventBatch]:
    return list(disordered_and_revised(size))


def _reconstitute(batches: list[EventBatch]) -> int:
    from recension.core.reconstitution import reconstitute

    return len(reconstitute(batches, batches[0].schema))


def _tuples(size: int, _: Path) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for batch in disordered_and_revised(size):
        payload = zip(*(column.to_pylist() for column in batch.payload.columns), strict=True)
        times = (batch.kind, batch.vs, batch.ve, batch.new_ve)
        rows += zip(*(column.tolist() for column in times), payload, strict=True)
    return rows


def _by_dict(rows: list[tuple[Any, ...]]) -> int:
    copies: dict[tuple[Any, ...], int] = {}
    for kind, vs, ve, new_ve, payload in rows:
        if kind == INSERT:
            key = payload, vs, ve
            copies[key] = copies.get(key, 0) + 1
        elif kind == RETRACT:
            key = payload, vs, ve
            if copies[key] == 1:
                del copies[key]
            else:
                copies[key] -= 1
            if new_ve > vs:
                key = payload, vs, new_ve
                copies[key] = copies.get(key, 0) + 1
    return sum(copies.values())


def _table(size: int, _: Path) -> pa.Table:
    import pyarrow as pa

    whole = concat(_batches(size, _))
    names = ("kind", "vs", "ve", "new_ve")
    columns = {name: getattr(whole, name) for name in names}
    return pa.table(columns | dict(zip(whole.schema.names, whole.payload.columns, strict=True)))


def _by_duckdb(elements: pa.Table) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("elements", elements)
        result = connection.sql(_SQL).to_arrow_table()
    return int(result["copies"].cast("int64").to_numpy().sum())


SUITE = Suite(
    "history",
    "History of a stream: 20 % disorder, 20 % of the events revised, payload = number + 16-byte text",
    (
        Measurement(
            "reconstitute",
            _batches,
            _reconstitute,
            sizes=(_MILLION, 2 * _MILLION, 4 * _MILLION),
            against=("a Python dict", "DuckDB SQL"),
            target=1_500_000,
        ),
        Measurement("a Python dict", _tuples, _by_dict, sizes=(2 * _MILLION,)),
        Measurement("DuckDB SQL", _table, _by_duckdb, sizes=(2 * _MILLION,)),
    ),
)
