"""``recension run --engine batch``: the query as one Spark job over the inputs' histories.

Inputs are read, checked and reconstituted here, so that a fault is told with its file and row; Spark gets
them as Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from recension.cli.inputs import readers_of, time_type_of
from recension.cli.outputs import Results
from recension.cli.progress import metered, watched
from recension.cli.show import in_order
from recension.cli.sources import tell_counts
from recension.core.batch import EventBatch, cti, inserts
from recension.core.formats import StreamReader, write_history
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.plan.nodes import Node


def run_batch(plan: Node, given: Mapping[str, Path], results: Results, batch_size: int) -> None:
    """Run a query as a batch job; what it gives is inserts and a closing CTI."""
    readers = readers_of(given, plan, set(), batch_size)
    _require_runnable(plan)
    with TemporaryDirectory() as folder:
        paths = {
            name: _staged(Path(folder) / f"{i}.parquet", name, reader)
            for i, (name, reader) in enumerate(readers.items())
        }
        with metered("batch") as meter:
            meter.say("running on Spark")
            found = in_order(_computed(plan, paths, Path(folder) / "spark.log"))
    time_type = time_type_of(readers)
    if results.output is not None:
        results.output.write_stream(_elements(found, batch_size), plan.schema, time_type)
    if results.needs_history:
        results.put_history(found, time_type)
    tell_counts({name: reader.counts for name, reader in readers.items()})


def _staged(path: Path, name: str, reader: StreamReader) -> str:
    """A file for Spark with the history of a stream."""
    write_history(path, reconstitute(watched(reader, f"reading {name}"), reader.schema))
    return str(path)


def _require_runnable(plan: Node) -> None:
    # pyspark takes a second to load, and whoever runs on another engine need not have it.
    from recension.runners.spark.batch.lower import require_runnable

    require_runnable(plan)


def _computed(plan: Node, paths: dict[str, str], log: Path) -> History:
    from recension.runners.spark.batch.files import history_of_files

    return history_of_files(plan, paths, log)


def _elements(history: History, size: int) -> Iterator[EventBatch]:
    for start in range(0, len(history), size):
        payload = history.payload.slice(start, size).combine_chunks().to_batches()[0]
        yield inserts(history.vs[start : start + size], history.ve[start : start + size], payload)
    yield cti(FOREVER, history.schema)
