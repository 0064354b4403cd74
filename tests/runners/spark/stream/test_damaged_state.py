"""State that was damaged on the disk: Spark notices it, and we say so in a line.

What Spark says of it is in tests/runners/spark/test_failures.py as well, without Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.sinks.test_rollback import state_of
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.test_bad_input import GOOD, Pipeline


def _flip(state: Path) -> None:
    file = max(state.glob("*.changelog"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _lose(state: Path) -> None:
    shutil.rmtree(state)


@pytest.mark.soak
@pytest.mark.parametrize("damage", [_flip, _lose])
def test_damaged_state_is_told(spark: Any, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    pipeline = Pipeline(spark, tmp_path, "folder")
    for later in ("1", "2", "3"):
        (tmp_path / "in" / f"000{later}.parquet").unlink()
    assert pipeline.run() == ""
    damage(tmp_path / "ck" / "state" / "0" / "0")
    driver.put(tmp_path / "in", 1, GOOD[1])
    before = state_of(tmp_path)
    told = pipeline.run()
    assert told.startswith("the checkpoint is damaged: ")
    assert told.endswith("restore the checkpoint and its tables from the same backup, or start with new ones")
    assert "\n" not in told
    assert state_of(tmp_path) == before
