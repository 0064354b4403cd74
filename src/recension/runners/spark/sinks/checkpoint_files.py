"""The files of a checkpoint, wherever it is: read by Python on a disk, else by the file systems of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from recension.core.errors import RecensionError
from recension.core.formats.files import format_errors
from recension.runners.spark.sinks.place import is_local, local_path


class CheckpointFiles(Protocol):
    """Small text files by their names under the checkpoint, such as ``offsets/12``."""

    def text(self, name: str) -> str | None:
        """What a file says; none if it is not there."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""


def files_of(spark: SparkSession, checkpoint: str | PathLike[str]) -> CheckpointFiles:
    """The files of a checkpoint."""
    if is_local(checkpoint):
        return LocalFiles(local_path(checkpoint))
    return HadoopFiles(spark, str(checkpoint))


class LocalFiles:
    """On a file system that Python sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, name: str) -> str | None:
        """What a file says; none if it is not there."""
        file = self._folder / name
        with format_errors(str(file)):
            return file.read_text(encoding="utf-8") if file.is_file() else None

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        place = self._folder / folder
        with format_errors(str(place)):
            return [file.name for file in place.iterdir()] if place.is_dir() else []


class HadoopFiles:
    """On any other that Spark knows."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._folder = folder
        with self._telling():
            self._system = self._path("").getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def text(self, name: str) -> str | None:
        """What a file says; none if it is not there."""
        with self._telling():
            if not self._system.exists(self._path(name)):
                return None
            stream = self._system.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        with self._telling():
            if not self._system.exists(self._path(folder)):
                return []
            return [str(found.getPath().getName()) for found in self._system.listStatus(self._path(folder))]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors of the file system become one line."""
        try:
            yield
        except Py4JJavaError as why:
            told = " ".join(str(why.java_exception.getMessage()).split())
            raise RecensionError(f"{self._folder}: the checkpoint cannot be read: {told}") from None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{name}".rstrip("/"))
