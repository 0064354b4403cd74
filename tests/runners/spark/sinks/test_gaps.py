"""Changelogs and tables of which a file is missing, foreign or exchanged: told in a line, with its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, read, revised
from tests.runners.spark.sinks.test_known import SINKS, filled

from recension.cli import main
from recension.core.batch import empty
from recension.core.errors import FormatError
from recension.core.formats.changelog import part_path
from recension.core.formats.manifest import FOLDER, current_manifest, manifest_path
from recension.runners.spark.sinks.changelog import Changelog
from recension.testing.generator.settings import SCHEMA

BATCHES = [*revised(9, 4, size=100)[:2], empty(SCHEMA), *revised(9, 4, size=100)[2:]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A changelog of five micro-batches, of which the third has no rows."""
    path = tmp_path / "log"
    sink = Changelog(path)
    for number, batch in enumerate(BATCHES):
        sink.apply(fed(batch, number))
    return path


def part(path: Path, number: int) -> Path:
    return part_path(path, number)


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_missing_part(log: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The first, one in the middle, the last: by readers, the command and the writer."""
    part(log, number).unlink()
    told = f"{log}: a changelog of which part-{number:012}.parquet is missing; restore it from a backup"
    with pytest.raises(FormatError) as caught:
        read(log)
    assert str(caught.value) == told
    with pytest.raises(FormatError) as caught:
        Changelog(log).apply(fed(BATCHES[0], 5))
    assert str(caught.value) == told
    assert main(["check", str(log)]) == 2
    assert capsys.readouterr().err == f"recension: {told}\n"


def _exchange(log: Path) -> None:
    a, b = part(log, 1).read_bytes(), part(log, 3).read_bytes()
    part(log, 1).write_bytes(b)
    part(log, 3).write_bytes(a)


def _replace(log: Path) -> None:
    """By the part of that number of another changelog."""
    other = log.parent / "other"
    sink = Changelog(other)
    for number, batch in enumerate(revised(10, 3, size=100)):
        sink.apply(fed(batch, number, query="another"))
    shutil.copy(part(other, 1), part(log, 1))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_exchange, "part-000000000001.parquet is not a part"),
        (_replace, "part-000000000001.parquet: not the file that was written here"),
        (lambda log: shutil.copy(part(log, 1), part(log, 2)), "part-000000000002.parquet is not a part"),
        (lambda log: shutil.copy(part(log, 1), log / "a.parquet"), "a.parquet is not a part"),
        (lambda log: part(log, 3).write_bytes(b""), "part-000000000003.parquet"),
    ],
)
def test_parts_that_are_not_what_they_were(log: Path, damage: Callable[[Path], None], told: str) -> None:
    damage(log)
    with pytest.raises(FormatError, match=told):
        read(log)


def test_a_file_of_the_same_size_and_other_bytes(log: Path) -> None:
    file = part(log, 1)
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(FormatError, match="its bytes have changed"):
        read(log)


def test_a_changelog_may_be_read_while_it_grows(tmp_path: Path) -> None:
    """Whatever part has just appeared; the mark may be one behind."""
    expected = prefixes(BATCHES)
    for number, batch in enumerate(BATCHES):
        Changelog(tmp_path).apply(fed(batch, number))
        assert_same(read(tmp_path), expected[number])


def test_a_table_without_one_of_its_files(tmp_path: Path) -> None:
    filled(SINKS[1], tmp_path / "whole")
    manifest = current_manifest(tmp_path / "whole")
    assert manifest is not None
    manifests = {manifest_path(tmp_path, manifest.number - back).name for back in (0, 1)}
    for number, name in enumerate({*manifest.used_files(), manifest.schema, *manifests}):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", copy)
        (copy / FOLDER / name).unlink()
        with pytest.raises(FormatError, match=r"missing|no such file"):
            read(copy)


def test_a_table_that_lacks_all_but_its_first_manifest(tmp_path: Path) -> None:
    filled(SINKS[1], tmp_path, 1)
    manifest_path(tmp_path, 1).unlink()
    with pytest.raises(FormatError, match="the newest manifest is missing; restore the table from a backup"):
        read(tmp_path)
    with pytest.raises(FormatError, match="the newest manifest is missing"):
        SINKS[1](tmp_path).apply(fed(BATCHES[1], 1))


def test_a_manifest_of_another_commit(tmp_path: Path) -> None:
    filled(SINKS[1], tmp_path)
    shutil.copy(manifest_path(tmp_path, 3), manifest_path(tmp_path, 4))
    with pytest.raises(FormatError, match=r"000000000004\.json: the manifest of another commit, number 3"):
        read(tmp_path)
