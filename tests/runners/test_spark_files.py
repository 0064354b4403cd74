"""Real Spark and this library read each other's stream files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recension.core.difference import difference
from recension.core.formats import write_stream
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream
from recension.testing.generator import StreamSettings, generate
from recension.testing.generator.settings import SCHEMA


def test_spark_and_recension_read_each_others_streams(spark: Any, tmp_path: Path) -> None:
    settings = StreamSettings.of("R3", size=2_000, revisions=0.2)
    batches = list(generate(settings))
    ours = tmp_path / "ours.parquet"
    write_stream(ours, batches, SCHEMA)
    frame = spark.read.parquet(str(ours))
    assert frame.where("_kind = 'insert'").count() == sum(int((b.kind == 0).sum()) for b in batches)
    theirs = tmp_path / "theirs"
    frame.coalesce(1).write.parquet(str(theirs))
    reader = open_stream(theirs)
    assert not difference(reconstitute(batches, SCHEMA), reconstitute(reader, reader.schema))
