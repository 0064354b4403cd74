"""Folders that Python does not see, such as ``s3a://bucket/orders``: Spark brings the bytes of their files.

Spark lists the folder and opens its files, with the credentials that it has; nothing else needs any. A task
puts the bytes of a file on its own disk for as long as it reads them, so that each format is read by the code
that reads it everywhere else. Errors and the order of files go by the addresses.

Guarantees  the same as a folder on a disk: files in the order of their names, each taken once.
Cost        the bytes of a file go through Spark to one task; shards do not read files for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.listing import is_data_file
from recension.runners.exchange.packets import Packet
from recension.runners.spark.failures import reason_of
from recension.runners.spark.sinks.files import escape_wildcards
from recension.runners.spark.stream.packing import Packing, SourcePacker, path_of


class BytesPacker(SourcePacker):
    """The files of a source into packets, given their addresses and their bytes."""

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """What one task sends for its files."""
        with TemporaryDirectory(prefix="recension-") as here:
            for batch in batches:
                for row in range(batch.num_rows):
                    address, content = (batch.column(n)[row] for n in ("path", "content"))
                    with _on_disk(Path(here), address.as_py(), content.as_buffer()) as file:
                        yield from packing.read_file(file, address.as_py())


@contextmanager
def _on_disk(folder: Path, address: str, content: pa.Buffer) -> Iterator[Path]:
    """The bytes of a file as a file, for now; errors name its address."""
    file = folder / PurePosixPath(address).name
    try:
        with file.open("wb") as sink:
            sink.write(content)
        yield file
    except FormatError as why:
        if why.file != str(file):
            raise
        raise FormatError(why.reason, file=address, row=why.row) from None
    finally:
        file.unlink(missing_ok=True)


def list_files(spark: SparkSession, address: str) -> list[str]:
    """The addresses of the files in a folder and below, in the order of their names; or the one file.

    None of a folder that is empty: its files may have been taken and archived.
    """
    with _spark_errors(address):
        found = _binary_files(spark, address).select("path").collect()
    return sorted(row.path for row in found)


def require_stream_files(address: str, files: Iterable[str], *, has_partitions: bool) -> None:
    """Refuse files of which no stream can be made, and folders in a folder that are no partitions."""
    folder = path_of(address)
    for file in files:
        if not is_data_file(Path(file)):
            raise FormatError("not the name of a file of a known format", file=file)
        if not has_partitions and path_of(file).parent != folder and path_of(file) != folder:
            raise FormatError("a directory inside a stream's directory", file=file)


@contextmanager
def fetch_files(spark: SparkSession, files: Iterable[str]) -> Iterator[Path]:
    """A folder on this machine with the bytes of these files, for now; errors name their addresses."""
    named: dict[str, str] = {}
    with TemporaryDirectory(prefix="recension-") as here:
        for number, address in enumerate(files):
            with _spark_errors(address):
                content = _binary_files(spark, address).select("content").toArrow().column("content")
            file = Path(here) / f"{number:09}-{PurePosixPath(address).name}"
            file.write_bytes(content[0].as_buffer())
            named[str(file)] = address
        try:
            yield Path(here)
        except FormatError as why:
            raise FormatError(why.reason, file=named.get(why.file or "", why.file), row=why.row) from None


def _binary_files(spark: SparkSession, address: str) -> DataFrame:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    return reader.load(escape_wildcards(address))


@contextmanager
def _spark_errors(address: str) -> Iterator[None]:
    """What Spark says of an address that it cannot read, in one line."""
    try:
        yield
    except PySparkException as why:
        raise RecensionError(f"{address}: Spark cannot read it: {reason_of(why)}") from None
