"""Spark's Python daemon with the library loaded: what its workers do not do again before every task."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from recension.runners.spark.daemon import FixedArchive, fix_archives


def _archive(path: Path, *modules: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name in modules:
            archive.writestr(f"{name}.py", f"NAME = {name!r}\n")
    return str(path)


def test_archives_are_read_once_and_those_that_come_later_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = tmp_path / "first.zip", tmp_path / "later.zip"
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setattr(sys, "path", [_archive(first, "early_module"), *sys.path])
    fix_archives()
    assert importlib.import_module("early_module").NAME == "early_module"
    monkeypatch.setattr(sys, "path", [_archive(later, "late_module"), *sys.path])
    assert importlib.import_module("late_module").NAME == "late_module"
    _archive(later, "late_module", "newer_module")
    importlib.invalidate_caches()
    assert importlib.import_module("newer_module").NAME == "newer_module"
    kinds = [type(sys.path_importer_cache[str(path)]) for path in (first, later)]
    assert kinds == [FixedArchive, zipimporter]
    for name in ("early_module", "late_module", "newer_module"):
        monkeypatch.delitem(sys.modules, name)
    for path in (first, later):
        monkeypatch.delitem(sys.path_importer_cache, str(path))
