"""Where files are and what they are called: nothing is overlooked in silence."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.stream import driver

import recension as rc
from recension.core.batch import from_elements
from recension.runners.spark.session import use_this_interpreter
from recension.runners.spark.stream.topology import FORMAT

SOURCE = rc.source("s", {"k": "string"})


def _put(file: Path, start: int, age: float = 0.0) -> None:
    written = driver.put(file.parent, start, from_elements([rc.Insert({"k": "x"}, start, 9)], SOURCE.schema))
    written.rename(file)
    os.utime(file, (time.time() - age, time.time() - age))


def _run(spark: Any, folder: Path) -> int:
    found = rc.spark.stream(spark, SOURCE, {"s": folder / "in"}, shards=1)
    where: dict[str, Any] = {"changelog": folder / "log", "history": folder / "table"}
    where |= {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    rc.spark.write(found, **where).awaitTermination()
    assert rc.spark.read_changelog(spark, folder / "log").count() == _rows(spark, folder)
    return _rows(spark, folder)


def _rows(spark: Any, folder: Path) -> int:
    return int(rc.spark.read_history(spark, folder / "table").count())


def test_any_name_will_do_and_a_file_may_be_old(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "ä b%20[c]{d}#e"
    _put(place / "in" / "1 é%20#[1].parquet", 1)
    assert _run(spark, place) == 1
    assert (place / "ck" / "commits").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    # Older by far than what was read before it, as files are that were moved here.
    _put(place / "in" / "2.parquet", 2, age=30 * 86400.0)
    assert _run(spark, place) == 2
    (place / "ck" / "recension.json").write_text(f'{{"format": {FORMAT}, "shards": 7, "plan": []}}')
    with pytest.raises(rc.RecensionError, match="shards"):
        _run(spark, place)


def test_what_spark_would_overlook_is_refused(spark: Any, tmp_path: Path) -> None:
    _put(tmp_path / "_in.parquet", 1)
    with pytest.raises(rc.RecensionError, match="Spark overlooks files whose names begin with _"):
        rc.spark.stream(spark, SOURCE, {"s": tmp_path / "_in.parquet"}, shards=1)
    _put(tmp_path / "in" / "1.parquet", 1)
    _run(spark, tmp_path)
    with pytest.raises(rc.RecensionError, match="a history table changes under its readers"):
        rc.spark.stream(spark, SOURCE, {"s": tmp_path / "table"}, shards=1)


def test_workers_run_the_interpreter_that_runs_here(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    use_this_interpreter(spark)
    assert spark.sparkContext.pythonExec == "python3"
    monkeypatch.delenv("PYSPARK_PYTHON")
    use_this_interpreter(spark)
    assert spark.sparkContext.pythonExec == sys.executable
