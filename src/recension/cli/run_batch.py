"""``recension run --engine batch``: the query as one Spark job over the inputs' histories.

Inputs are read, checked and reconstituted here, so that a fault is told with its file and row; Spark gets
them as Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from recension.cli.inputs import readers_of, time_type_of
from recension.cli.show import in_order, show_history
from recension.cli.sources import tell_what_is_missing
from recension.core.batch import EventBatch, cti, inserts
from recension.core.formats import StreamReader, write_history, write_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.plan.nodes import Node


def run_batch(
    plan: Node, given: list[str], output: Path | None, history: Path | None, batch_size: int
) -> None:
    """Run a query as a batch job; what it gives is inserts and a closing CTI."""
    readers = readers_of(given, plan, set(), batch_size)
    with TemporaryDirectory() as folder:
        paths = {
            name: _staged(Path(folder) / f"{i}.parquet", r) for i, (name, r) in enumerate(readers.items())
        }
        found = in_order(_computed(plan, paths))
    time_type = time_type_of(readers)
    if output is not None:
        write_stream(output, _elements(found, batch_size), plan.schema, time_type)
    if history is not None:
        write_history(history, found, time_type)
    elif output is None:
        show_history(found, time_type)
    for reader in readers.values():
        tell_what_is_missing(reader)


def _staged(path: Path, reader: StreamReader) -> str:
    """A file for Spark with the history of a stream."""
    write_history(path, reconstitute(reader, reader.schema))
    return str(path)


def _computed(plan: Node, paths: dict[str, str]) -> History:
    # pyspark takes a second to load, and whoever runs on another engine need not have it.
    from recension.runners.spark.batch.files import history_of_files

    return history_of_files(plan, paths)


def _elements(history: History, size: int) -> Iterator[EventBatch]:
    for start in range(0, len(history), size):
        payload = history.payload.slice(start, size).combine_chunks().to_batches()[0]
        yield inserts(history.vs[start : start + size], history.ve[start : start + size], payload)
    yield cti(FOREVER, history.schema)
