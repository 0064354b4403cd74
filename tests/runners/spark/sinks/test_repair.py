"""A damaged checkpoint: what is said of it, how it is set back, and that the query goes on without a loss."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.runners.spark.sinks.feeding import assert_same, read, revised
from tests.runners.spark.sinks.test_queries import NOW, put
from tests.runners.spark.sinks.test_rollback import state_of
from tests.runners.spark.stream.driver import query

import recension as rc
from recension.cli import main
from recension.core.batch import concat
from recension.runners.spark import repair
from recension.runners.spark.sinks.replay import DONE, FOLDER, PLAN
from recension.runners.spark.stream import processor

BATCHES = revised(11, 6, size=240)


def _run(spark: Any, folder: Path) -> str:
    """Take all files there are, in two levels; what stopped the query, in one line."""
    processor._parked.clear()
    out = rc.spark.stream(spark, query(), {"s": folder / "in"}, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"changelog": folder / "log", "history": folder / "table"}
    try:
        rc.spark.write(out, **where, checkpoint=folder / "ck", trigger=NOW).awaitTermination()
    except StreamingQueryException as why:
        return rc.spark.reason_of(why)
    return ""


def _filled(spark: Any, folder: Path) -> Path:
    put(folder / "in", BATCHES[:5])
    assert _run(spark, folder) == ""
    return folder / "ck"


def _go_on(spark: Any, folder: Path) -> None:
    """To the end, and nothing is lost."""
    put(folder / "in", BATCHES[5:], 5)
    assert _run(spark, folder) == ""
    expected = rc.run(query(), {"s": concat(BATCHES)}).history()
    for name in ("log", "table"):
        assert_same(read(folder / name), expected)


def _lose_changes(checkpoint: Path) -> None:
    """Those of micro-batch 3, in one shard of the second level."""
    for file in (checkpoint / "state" / "1" / "1").glob("4*.*"):
        file.unlink()


def _mix_attempts(checkpoint: Path) -> None:
    """The changes of another micro-batch under two numbers: Spark can read them, and parts are missing."""
    shard = checkpoint / "state" / "0" / "0"
    for number in (3, 4):
        for name in (f".{number}.changelog.crc", f"{number}.changelog.crc"):
            (shard / name).unlink(missing_ok=True)
        shutil.copy(shard / "5.changelog", shard / f"{number}.changelog")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "good"), [pytest.param(_lose_changes, 2, marks=pytest.mark.soak), (_mix_attempts, 1)]
)
def test_a_checkpoint_is_set_back_and_goes_on(
    spark: Any, tmp_path: Path, damage: Callable[[Path], None], good: int
) -> None:
    checkpoint = _filled(spark, tmp_path)
    assert repair.examine(spark, checkpoint).is_sound
    damage(checkpoint)
    before = state_of(tmp_path)
    files = sorted(checkpoint.rglob("*"))
    found = repair.examine(spark, repair.checkpoint_in(checkpoint))
    assert (found.good, found.done, found.begun, found.obstacle) == (good, 4, 4, "")
    said = list(found.describe())
    assert said[1].startswith("the state after micro-batch 4 is damaged: ")
    assert said[2] == f"the last good state is that after micro-batch {good}"
    assert f"`recension repair {checkpoint} --apply`" in said[3]
    assert sorted(checkpoint.rglob("*")) == files
    repair.repair(found)
    _go_on(spark, tmp_path)
    assert (
        state_of(tmp_path).items()
        >= {name: content for name, content in before.items() if name.startswith("log/part")}.items()
    )
    assert (checkpoint / FOLDER / DONE).exists()
    assert not (checkpoint / FOLDER / PLAN).exists()


@pytest.mark.soak
def test_nothing_good_is_left_but_all_of_the_input(spark: Any, tmp_path: Path) -> None:
    """It is computed anew from the first micro-batch; killed while it is set back, it is finished."""
    checkpoint = _filled(spark, tmp_path)
    shutil.rmtree(checkpoint / "state" / "0" / "1")
    told = _run_on(spark, tmp_path)
    assert told.startswith("the checkpoint is damaged: ")
    assert "`recension repair CHECKPOINT`" in told
    found = repair.examine(spark, checkpoint)
    assert found.good == -1
    with pytest.MonkeyPatch.context() as patch:
        moved = [0]

        def dying(place: Path, file: Path) -> None:
            moved[0] += 1
            if moved[0] > 12:
                raise KeyboardInterrupt
            move(place, file)

        move = repair._move
        patch.setattr(repair, "_move", dying)
        with pytest.raises(KeyboardInterrupt):
            repair.repair(found)
    again = repair.examine(spark, checkpoint)
    assert (again.is_sound, again.done, again.begun) == (True, -1, found.begun)
    _go_on(spark, tmp_path)


def _run_on(spark: Any, folder: Path) -> str:
    put(folder / "in", BATCHES[5:], 5)
    return _run(spark, folder)


@pytest.mark.slow
def test_what_cannot_be_repaired_says_why(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "in", BATCHES[:2])
    assert _run(spark, tmp_path) == ""
    checkpoint = tmp_path / "ck"
    shutil.rmtree(checkpoint / "state" / "1" / "1")
    (tmp_path / "in" / "0001.parquet").rename(tmp_path / "gone.parquet")
    capsys.readouterr()
    assert main(["repair", str(checkpoint)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == [
        "the state after micro-batch 1 is damaged: level 2 has the state of 1 shards, not of 2",
        "no state that is still there is good",
        f"it cannot be repaired: micro-batch 1 took {tmp_path}/in/0001.parquet, which is not there: put it "
        "back, and try again",
    ]
    files = sorted(checkpoint.rglob("*"))
    assert main(["repair", str(checkpoint), "--apply"]) == 2
    assert "0001.parquet, which is not there" in capsys.readouterr().err
    assert sorted(checkpoint.rglob("*")) == files
    (checkpoint / "recension.tables.json").write_text(json.dumps({}))
    assert "does not write to tables of rc.spark.write" in repair.examine(spark, checkpoint).obstacle
    (checkpoint / "offsets" / "0").unlink()
    assert "(offsets/0); start with a new checkpoint" in repair.examine(spark, checkpoint).obstacle
    assert main(["repair", str(tmp_path)]) == 2
    assert "not a checkpoint of a query that has begun" in capsys.readouterr().err
