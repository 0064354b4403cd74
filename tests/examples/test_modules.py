"""The example modules on all three runners: they agree, and with the oracle."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.batch.jobs import answers, batch, frame

import recension as rc
from recension import denote
from recension.core.events import Event
from recension.modules.members import Events, Payloads, SharedColumns
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "modules.py"))
QUERIES: dict[str, Any] = EXAMPLE["QUERIES"]


def _history() -> list[Event]:
    walk = StreamModel()
    for element in EXAMPLE["EVENTS"]:
        walk.take(element)
    return walk.events()


def _events_of(history: list[Event], kinds: dict[str, pa.DataType]) -> Events:
    arrays = [pa.array([e.payload[name] for e in history], kind) for name, kind in kinds.items()]
    table = SharedColumns(pa.RecordBatch.from_arrays(arrays, names=list(kinds)))
    vs, ve = (np.array([getattr(e, name) for e in history], np.int64) for name in ("vs", "ve"))
    return Events(table, 0, len(history), vs, ve)


def _local(query: Any, **how: Any) -> list[Event]:
    return rc.run(query, {"readings": EXAMPLE["EVENTS"]}, **how).history().to_events()


def test_batches_on_spark_agree(spark: Any) -> None:
    """Streams on Spark are with other queries in `tests.runners.spark.stream.test_agreement`."""
    frames = {"readings": frame(spark, _history(), EXAMPLE["readings"].schema)}
    found = answers([batch(spark, query, frames) for query in QUERIES.values()])
    for query, history in zip(QUERIES.values(), found, strict=True):
        assert_equivalent(history, _local(query))


@pytest.mark.parametrize(
    ("name", "windows", "module", "inputs", "policies"),
    [
        ("sum", denote.hopping(20, 5), "RunningSum", ["value"], {}),
        ("top", denote.snapshot_windows(), "TopK", ["value"], {}),
        ("pattern", denote.count_window(3), "FollowedBy", ["what"], {"clip": "right", "stamp": "keep"}),
    ],
)
def test_they_mean_what_the_oracle_says(
    name: str, windows: Any, module: str, inputs: list[str], policies: Any
) -> None:
    given: dict[str, dict[str, Any]] = {
        "FollowedBy": {"first": "on", "second": "off", "within": 8},
        "TopK": {"k": 2},
    }
    made = EXAMPLE[module](**given.get(module, {}))
    kinds = {column: EXAMPLE["readings"].schema.field(column).type for column in inputs}

    def rows(events: list[Event], window: Any) -> Any:
        seen = _events_of(events, kinds)
        if made.is_incremental:
            return [{name: made.compute(made.add(made.initial(), seen))}]
        if made.is_time_sensitive:
            return made.compute(seen, window)
        return made.compute(Payloads.of(seen.to_arrow()))

    def one(part: list[Event]) -> list[Event]:
        return denote.window_apply(part, windows, rows, **policies)

    history = _history()
    meant = one(history) if name == "top" else denote.grouped(history, "machine", one)
    assert_equivalent(_local(QUERIES[name]), meant)


def test_they_are_deterministic() -> None:
    for query in QUERIES.values():
        assert_equivalent(_local(query, verify_modules=True), _local(query))
