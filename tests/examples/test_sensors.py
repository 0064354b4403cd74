"""The paper's Examples 1 and 2 on generated readings: every runner, and plain Python, agree."""

from __future__ import annotations

import runpy
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.runners.spark.stream.many import run_together

import recension as rc
from recension.core.batch import cti, inserts
from recension.core.events import Event
from recension.denote import coalesce_range, select
from recension.testing.assertions import assert_equivalent
from recension.testing.walk import Walk

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "sensors.py"))
MINUTE = EXAMPLE["MINUTE"]
TABLES: dict[str, pa.Table] = {
    "similar": EXAMPLE["arrivals"](count=24, every=1),
    "longest": EXAMPLE["arrivals"](count=60, every=40),
}


def told(name: str) -> list[Event]:
    columns = ("region", "humidity", "temperature")
    rows = (row for row in TABLES[name].to_pylist() if row["_kind"] == "insert")
    return [Event({column: row[column] for column in columns}, row["_vs"], row["_ve"]) for row in rows]


def similar() -> list[Event]:
    """Pairs of regions, a minute at a time."""
    found = []
    facts = coalesce_range(told("similar"), 60 * MINUTE, MINUTE, "humidity", "region")
    slides: dict[int, list[Any]] = {}
    for event in facts:
        slides.setdefault(event.vs, []).append(event.payload)
    for s, rows in slides.items():
        for a, b in combinations(sorted(rows, key=lambda row: row["region"]), 2):
            since, until = max(a["valid_start"], b["valid_start"]), min(a["valid_end"], b["valid_end"])
            alike = abs(a["humidity"] - b["humidity"]) <= 1
            if a["region"] != b["region"] and alike and until - since >= 4 * MINUTE:
                pair = {"region": a["region"], "other": b["region"], "since": since, "until": until}
                found.append(Event(pair, s, s + MINUTE))
    return found


def longest() -> list[Event]:
    heat = select(told("longest"), "region", hot=lambda p: p["temperature"] > 100)
    most: dict[tuple[int, int], int] = {}
    for event in coalesce_range(heat, 24 * 60 * MINUTE, 60 * MINUTE, "hot", "region"):
        if event.payload["hot"]:
            key, lasted = (event.vs, event.payload["region"]), event.payload
            most[key] = max(most.get(key, 0), lasted["valid_end"] - lasted["valid_start"])
    return [
        Event({"region": region, "longest": lasted}, s, s + 60 * MINUTE)
        for (s, region), lasted in most.items()
    ]


MEANINGS = {"similar": similar, "longest": longest}


@pytest.mark.parametrize("name", MEANINGS)
def test_the_local_engine_says_what_plain_python_says(name: str) -> None:
    found = rc.run(EXAMPLE[name], {"readings": TABLES[name]}).history().to_events()
    assert len(found) > 20
    assert_equivalent(found, MEANINGS[name]())


def test_spark_says_so_too(spark: Any, tmp_path: Path) -> None:
    """Both as batch jobs, and both in one streaming pipeline of two shards."""
    streamed = _streamed(spark, tmp_path)
    for name in MEANINGS:
        expected = rc.run(EXAMPLE[name], {"readings": TABLES[name]}).history().to_events()
        history = TABLES[name].slice(0, TABLES[name].num_rows - 1).drop_columns(["_kind"])
        rows = rc.spark.batch(spark, EXAMPLE[name], {"readings": spark.createDataFrame(history)})
        columns = EXAMPLE[name].schema.names
        batch = [
            Event({c: row[c] for c in columns}, row["_vs"], row["_ve"]) for row in rows.toArrow().to_pylist()
        ]
        assert_equivalent(batch, expected)
        assert_equivalent(streamed[name], expected)


def _streamed(spark: Any, folder: Path) -> dict[str, list[Event]]:
    found = {}
    for name in MEANINGS:
        source = EXAMPLE["readings"].plan
        batches = []
        rows = TABLES[name].slice(0, TABLES[name].num_rows - 1).combine_chunks()
        for part in rows.to_batches(max_chunksize=40):
            vs, ve = (part.column(c).to_numpy() for c in ("_vs", "_ve"))
            batches.append([inserts(vs, ve, part.select(source.schema.names))])
        batches.append([cti(rc.FOREVER, source.schema)])
        turns = [{"readings": batch} for batch in batches]
        (answers,) = run_together(spark, [EXAMPLE[name].plan], turns, 2, folder / name)
        walk = Walk()
        for element in (e for answer in answers for e in answer.to_elements()):
            assert walk.fault(element) is None
            walk.take(element)
        found[name] = walk.events()
    return found
