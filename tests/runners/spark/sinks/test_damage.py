"""Damaged tables and checkpoints: noticed in one line, or harmless; never another answer.

The long form (``make soak``) has thousands of accidents for every kind of table.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from tests.runners.spark.sinks.damage import damage, put_back
from tests.runners.spark.sinks.feeding import fed, prefixes, read, revised
from tests.runners.spark.sinks.test_content import counted, offsets, source_log

from recension.core.batch import empty
from recension.core.difference import difference
from recension.core.errors import RecensionError
from recension.core.history import History
from recension.runners.spark.sinks import revision
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.checkpoint import InputLog, LocalFiles, claim, query_of, require_owner
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.testing.generator.settings import SCHEMA

BATCHES = [*revised(11, 6, size=90)[:3], empty(SCHEMA), *revised(11, 6, size=90)[3:]]
EXPECTED = prefixes(BATCHES)
T = TypeVar("T")
# The last is what comes next.
DONE = len(BATCHES) - 1
SINKS: dict[str, Callable[[Path], Changelog | HistoryTable]] = {
    "changelog": Changelog,
    "history": lambda path: HistoryTable(path, keep=0),
}


class Tables:
    """A table of each kind, and as it was before, to be damaged again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name, make in SINKS.items():
            sink = make(folder / name)
            for number, batch in enumerate(BATCHES[:DONE]):
                sink.apply(fed(batch, number, content=f"c{number}"))
                if number == DONE - 3:
                    shutil.copytree(folder / name, folder / f"{name} before")

    def copy(self, kind: str) -> Path:
        """A whole table of a kind."""
        path = self._folder / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._folder / kind, path)
        return path

    def earlier(self, kind: str) -> Path:
        return self._folder / f"{kind} before"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    with pytest.MonkeyPatch.context() as patch:
        # So that there are merged, final and deletion files.
        patch.setattr(revision, "FULL", 60)
        patch.setattr(revision, "SMALLEST", 4)
        patch.setattr(revision, "FAN_IN", 3)
        return Tables(tmp_path_factory.mktemp("tables"))


def outcome(attempt: Callable[[], T], what: str) -> T | None:
    """What came of it; none if it was refused in one line."""
    try:
        return attempt()
    except Exception as why:
        if isinstance(why, RecensionError) and "\n" not in str(why):
            return None
        raise AssertionError(f"{what}: {why!r}") from why


def is_noticed(attempt: Callable[[], History], expected: History, what: str) -> bool:
    """Either an error of one line, or the right answer."""
    found = outcome(attempt, what)
    apart = None if found is None else difference(found, expected)
    assert not apart, f"{what}: {apart}"
    return found is None


def play(tables: Tables, kind: str, seeds: range) -> int:
    """Accidents, then a reader, a writer and a reader again; how many were noticed."""
    noticed = 0
    for seed in seeds:
        path, draw = tables.copy(kind), random.Random(seed)
        is_back = seed % 8 == 0
        what = put_back(draw, path, tables.earlier(kind)) if is_back else damage(seed, path)
        what = f"{kind}, seed {seed}: {what}"
        seen = is_noticed(partial(read, path), EXPECTED[DONE - 1], what)
        noticed += is_noticed(partial(_continued, kind, path), EXPECTED[DONE], what) or seen
    return noticed


def _continued(kind: str, path: Path) -> History:
    SINKS[kind](path).apply(fed(BATCHES[DONE], DONE, content="next", before=f"c{DONE - 1}"))
    return read(path)


@pytest.mark.parametrize("kind", SINKS)
def test_damaged_tables(tables: Tables, kind: str) -> None:
    assert play(tables, kind, range(30)) > 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", SINKS)
def test_damaged_tables_many_times_over(tables: Tables, kind: str) -> None:
    assert play(tables, kind, range(1000, 3000)) > 500


def _checkpoint(path: Path) -> None:
    """Ours and what we read of Spark's."""
    (path / "commits").mkdir(parents=True)
    (path / "commits" / "0").write_text("v1\n{}")
    (path / "metadata").write_text('{"id":"852c1823-ea1c-4eef-bff7-5fd7b6134f29"}')
    (path / "recension.json").write_text(OWNER)
    for number in range(3):
        offsets(path, number, counted(number), '{"t":{"0":5}}')
        source_log(path, str(number), (f"file{number}", number))


OWNER = '{"plan": [["source s", [], {"k": "int64"}]], "shards": 2}'


def _look(path: Path) -> str:
    """What the sinks ask a checkpoint for: all of it is compared before anything is written."""
    files = LocalFiles(path)
    require_owner(files, OWNER)
    claim(files, OWNER)
    return f"{query_of(files)} {InputLog(files, 'q', (0,)).contents(2)}"


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(40), id="few"), pytest.param(range(40, 10_000), id="many", marks=pytest.mark.soak)],
)
def test_damaged_checkpoints(tmp_path: Path, seeds: range) -> None:
    """An error of one line, or what can be compared; that it is another is noticed by the tables."""
    _checkpoint(tmp_path / "whole")
    for seed in seeds:
        path = tmp_path / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", path)
        what = damage(seed, path)
        outcome(partial(_look, path), f"seed {seed}: {what}")
