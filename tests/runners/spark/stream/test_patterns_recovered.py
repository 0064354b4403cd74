"""A query of patterns that is killed on Spark: started again, it says what the local engine says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import patterns
from tests.runners.spark.stream.processes import Program

from recension.core.formats.manifest import current_manifest


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_killed_query_of_patterns_goes_on(tmp_path: Path) -> None:
    expected = patterns.write_inputs(tmp_path)
    commits = tmp_path / "ck" / "commits"

    def run() -> Program:
        return Program("tests.runners.spark.stream.patterns", str(tmp_path), log=tmp_path / "words.txt")

    program = run()
    program.wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= 2)
    program.kill()
    done = current_manifest(tmp_path / "table")
    assert done is not None
    assert done.batch < patterns.FILES - 1, "it was killed in the middle"
    feeding.assert_same(feeding.read(tmp_path / "table"), expected[done.batch])
    run().finish()
    feeding.assert_same(feeding.read(tmp_path / "table"), expected[-1])
    feeding.assert_same(feeding.read(tmp_path / "log"), expected[-1])
    files = (tmp_path / "log").rglob("*.parquet")
    kinds = [kind for file in files for kind in pq.ParquetFile(file).read(["_kind"])["_kind"].to_pylist()]
    assert len(expected[-1]) > 20
    assert kinds.count("retract") > 5, "late shipments take alerts back"
