"""Pipes, devices and links that lead nowhere, where files should be: refused by name, never waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recension.core.errors import FormatError
from recension.core.formats.changelog import MARK
from recension.core.formats.listing import SPARK_LOG
from recension.core.formats.manifest import FOLDER
from recension.gate.files import open_stream

_ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "dangling": (lambda path: path.symlink_to("gone"), "no such file or directory"),
    "loop": (lambda path: path.symlink_to(path.name), "too many levels of symbolic links"),
}


@pytest.mark.parametrize("odd", _ODD)
@pytest.mark.parametrize(
    "place", ["b.csv", "b.parquet", MARK, f"{FOLDER}/000000000000.json", f"{SPARK_LOG}/0", "a.csv"]
)
def test_what_is_not_a_file(tmp_path: Path, odd: str, place: str) -> None:
    (tmp_path / "0.csv").write_text("_vs,x\n1,2\n")
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    make, reason = _ODD[odd]
    make(file)
    with pytest.raises(FormatError, match=rf"/{place}: {reason}$"):
        open_stream(tmp_path)


def test_digits_of_other_scripts_number_nothing(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "٣.json").write_text("{}")
    with pytest.raises(FormatError, match="a history table to which nothing was committed yet"):
        open_stream(tmp_path)
