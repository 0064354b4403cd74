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
from recension.testing.model import StreamModel

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "sensors.py"))
MINUTE = EXAMPLE["MINUTE"]
TABLE: pa.Table = EXAMPLE["arrivals"](count=30, every=20)
READINGS = TABLE.slice(0, TABLE.num_rows - 1)


def told() -> list[Event]:
    columns = ("region", "humidity", "temperature")
    rows = READINGS.to_pylist()
    return [Event({column: row[column] for column in columns}, row["_vs"], row["_ve"]) for row in rows]


def similar() -> list[Event]:
    """Pairs of regions, a minute at a time."""
    found = []
    facts = coalesce_range(told(), 60 * MINUTE, MINUTE, "humidity", "region")
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
    heat = select(told(), "region", hot=lambda p: p["temperature"] > 100)
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


def local(name: str) -> list[Event]:
    return rc.run(EXAMPLE[name], {"readings": TABLE}).history().to_events()


@pytest.mark.parametrize("name", MEANINGS)
def test_the_local_engine_says_what_plain_python_says(name: str) -> None:
    found = local(name)
    assert len(found) > 20
    assert_equivalent(found, MEANINGS[name]())


def test_a_batch_job_says_so_too(spark: Any) -> None:
    history = spark.createDataFrame(READINGS.drop_columns(["_kind"]))
    for name in MEANINGS:
        rows = rc.spark.batch(spark, EXAMPLE[name], {"readings": history}).toArrow().to_pylist()
        columns = EXAMPLE[name].schema.names
        found = [Event({c: row[c] for c in columns}, row["_vs"], row["_ve"]) for row in rows]
        assert_equivalent(found, local(name))


def test_a_pipeline_of_two_shards_says_so_too(spark: Any, tmp_path: Path) -> None:
    schema = EXAMPLE["readings"].schema
    turns: list[Any] = []
    for part in READINGS.combine_chunks().to_batches(max_chunksize=60):
        vs, ve = (part.column(name).to_numpy() for name in ("_vs", "_ve"))
        turns.append({"readings": [inserts(vs, ve, part.select(schema.names))]})
    turns.append({"readings": [cti(rc.FOREVER, schema)]})
    queries = [EXAMPLE[name].plan for name in MEANINGS]
    for name, answers in zip(MEANINGS, run_together(spark, queries, turns, 2, tmp_path), strict=True):
        walk = StreamModel()
        for element in (e for answer in answers for e in answer.to_elements()):
            assert walk.fault(element) is None
            walk.take(element)
        assert_equivalent(walk.events(), local(name))
