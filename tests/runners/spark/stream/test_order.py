"""An output with an order to keep, made in several shards: one stream, one promise a micro-batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.runners.spark.stream import driver

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.gate.files import open_stream
from recension.runners.spark.stream.topology import Inlet, topology
from recension.testing.model import StreamModel

SCHEMA = pa.schema([("k", pa.int64())])


def test_an_ordered_output_of_two_shards(spark: Any, tmp_path: Path) -> None:
    ordered = rc.source("s", SCHEMA, properties=rc.Properties(is_ordered=True)).where(rc.col("k") != 3)
    plan = topology([ordered.plan], 2, {"s": Inlet()})
    assert (plan.is_ordered, plan.shards_at(plan.levels)) == (True, 2)
    expected = StreamModel()
    for number in range(2):
        rows: list[Element] = [rc.Insert({"k": k}, 10 * number + k, 100) for k in range(8)]
        elements = [*rows, rc.Cti(10 * number + 8)]
        driver.put(tmp_path / "in", number, from_elements(elements, SCHEMA))
        for element in rc.run(ordered, {"s": elements}).elements():
            expected.take(element)
    answers = rc.spark.stream(spark, ordered, {"s": str(tmp_path / "in")}, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    rc.spark.write_changelog(answers, tmp_path / "log", **where).awaitTermination()
    log = rc.spark.read_changelog(spark, tmp_path / "log").toArrow().to_pylist()
    promises = Counter(row["_batch"] for row in log if row["_kind"] == "cti")
    assert promises == {0: 1, 1: 1}
    starts = [row["_vs"] for row in sorted(log, key=lambda row: (row["_batch"], row["_seq"]))]
    assert starts == sorted(starts)
    shown = StreamModel()
    for batch in open_stream(tmp_path / "log"):
        for element in batch.to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    assert shown.events() == expected.events()
