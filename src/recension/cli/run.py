"""``recension run``: a query over files.

All that can be checked beforehand is checked before an engine starts or a row is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import pyarrow.parquet as pq
import typer

from recension.cli.inputs import (
    OnViolation,
    common_time_type,
    open_inputs,
    parse_inputs,
    refuse_versions,
    report_blockers,
    report_dropped,
    with_policy,
)
from recension.cli.outputs import FormatOption, ResultTargets
from recension.cli.progress import show_progress, with_progress
from recension.cli.query_file import load_query
from recension.cli.root import app
from recension.cli.run_spark import missing_for_spark, run_spark
from recension.cli.show import show_memory, show_profile, sort_by_lifetime
from recension.core.batch import EventBatch, cti, inserts
from recension.core.errors import RecensionError
from recension.core.formats import write_history
from recension.core.formats.reader import BATCH_SIZE
from recension.core.history import History
from recension.core.memory_pool import MemoryPool, open_pool, require_limit
from recension.core.reconstitution import HistoryBuilder, reconstitute
from recension.core.ticks import FOREVER
from recension.gate.files import StreamReader
from recension.plan.nodes import Node, Table, walk

if TYPE_CHECKING:
    from recension.runners.local import Session


class EngineName(StrEnum):
    """Where a query can run."""

    LOCAL = "local"
    SPARK = "spark"
    BATCH = "batch"


@app.command()
def run(
    query: Annotated[str, typer.Argument(metavar="QUERY.py[:name]", help="A file that defines a stream.")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", "-i", metavar="NAME=PATH", help="A source of the query and its stream; once for each."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the output stream to this file; - is standard output."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(help="Write the history of the output to this file; - is standard output."),
    ] = None,
    form: FormatOption = None,
    engine: Annotated[
        EngineName, typer.Option(help="Run in this process, as a Spark stream, or as a Spark batch job.")
    ] = EngineName.LOCAL,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    on_violation: Annotated[
        OnViolation | None,
        typer.Option(
            help="What to do with invalid elements: stop, drop them, or move late ones to the last CTI. "
            "By default the policy of each source in the query."
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Elements per batch; a Spark stream takes whole files.")
    ] = BATCH_SIZE,
    shards: Annotated[int | None, typer.Option(min=1, help="Spark stream: the number of shards.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark stream: the folder of its checkpoint, from which it continues.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="How much of the state, of a shard on Spark, stays in memory, such as 512MB."
        ),
    ] = None,
    spill: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Local engine: the directory for the rest of the state."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show what each operator did.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Local engine: record the streams of every step here, for recension inspect."
        ),
    ] = None,
    record_limit: Annotated[
        str, typer.Option(metavar="SIZE", help="How large a recording may be; the oldest steps are deleted.")
    ] = "1GiB",
) -> None:
    """Run a query over stream files. The query file is Python and is executed.

    Several inputs are read in turn, a batch from each. The end of a file closes its input only with --close,
    or if it is a plain table: a stream that just stops may have died. With --engine spark the query runs as a
    streaming pipeline, which continues from --checkpoint if there is one; with --engine batch it runs on
    Spark over the inputs' whole histories, every input closed.

    Without --output and --history the history is shown: on a terminal its first rows, otherwise all rows as
    CSV.
    """
    paths = parse_inputs(inputs)
    results = ResultTargets.from_options(output, history, form)
    results.check(paths.values())
    _check_engine(engine, shards, checkpoint, profile=profile)
    pool = _check_memory(engine, memory, spill)
    if record is not None and engine is not EngineName.LOCAL:
        raise RecensionError("--record is for --engine local")
    plan = load_query(query).plan
    if on_violation is not None:
        plan = with_policy(plan, on_violation.value)
    results.check_columns(plan.schema)
    if engine is not EngineName.SPARK:
        refuse_versions(paths, plan)
    match engine:
        case EngineName.SPARK:
            run_spark(
                plan,
                paths,
                results,
                close=close,
                shards=shards,
                checkpoint=checkpoint,
                memory=memory,
                profile=profile,
            )
        case EngineName.BATCH:
            _run_batch(plan, paths, results, batch_size)
        case EngineName.LOCAL:
            from recension.runners.finite import without_idleness
            from recension.runners.local import Session

            with nullcontext() if pool is None else pool.use():  # what readers keep is in it too
                session = Session({"query": without_idleness(plan)}, batch_size, history_limit=0, pool=pool)
                session.warn_of_meaning()
                readers = open_inputs(paths, plan, session.unchecked_sources, batch_size)
                with nullcontext() if record is None else _recorded(session, record, record_limit):
                    _run_local(session, plan, readers, results, batch_size, close=close, profile=profile)


@contextmanager
def _recorded(session: Session, folder: Path, limit: str) -> Iterator[None]:
    """Record a run. A recording that could not be written does not stop it, but is an error at its end."""
    said = logging.getLogger("recension.recording")
    was_quiet, said.disabled = said.disabled, True
    try:
        with session.record(folder, "all", limit) as recorder:
            yield
    finally:
        said.disabled = was_quiet
    if recorder.stopped != "closed":
        raise RecensionError(f"--record {folder}: {recorder.stopped}; the answer itself is whole")


def _check_engine(engine: EngineName, shards: int | None, checkpoint: Path | None, *, profile: bool) -> None:
    """Refuse options that the engine does not use, and an engine that is not installed."""
    if engine is not EngineName.SPARK and (shards is not None or checkpoint is not None):
        raise RecensionError("--shards and --checkpoint are for --engine spark")
    if engine is EngineName.BATCH and profile:
        raise RecensionError("--profile shows the operators of other engines; a batch job has Spark's own UI")
    if engine is not EngineName.LOCAL and (missing := missing_for_spark()):
        raise RecensionError(f"--engine {engine} needs {missing}, which is not installed")


def _check_memory(engine: EngineName, memory: str | None, spill: Path | None) -> MemoryPool | None:
    """The memory of a local session; refuse engines without such a bound."""
    if engine is EngineName.LOCAL:
        return open_pool(memory, spill)
    if spill is not None:
        raise RecensionError("--spill is for --engine local; Spark has local directories of its own")
    if memory is not None:
        if engine is EngineName.BATCH:
            raise RecensionError("--memory is for other engines; a batch job holds no state")
        require_limit(memory)
    return None


def _run_local(
    session: Session,
    plan: Node,
    readers: Mapping[str, StreamReader],
    results: ResultTargets,
    size: int,
    *,
    close: bool,
    profile: bool,
) -> None:
    time_type = common_time_type(readers)
    builder = HistoryBuilder(plan.schema)
    elements = _run_session(session, readers, size, close=close)
    if results.needs_history:
        elements = _add_to(builder, elements)
    if results.output is not None:
        results.output.write_stream(elements, plan.schema, time_type)
    else:
        for _ in elements:
            pass
    if results.needs_history:
        results.put_history(sort_by_lifetime(builder.build()), time_type)
    report_dropped(session.counts())
    report_blockers(session.blockers())
    if profile:
        show_profile(session.metrics())
        if (use := session.memory()) is not None:
            show_memory(use.resident_bytes, use.spilled_bytes)


def _run_session(
    session: Session, readers: Mapping[str, StreamReader], size: int, *, close: bool
) -> Iterator[EventBatch]:
    """The output as it comes; on a terminal, with progress."""
    from recension.runners.finite import push_inputs

    taken = given = 0
    with show_progress("running") as meter:
        for taken, _ in enumerate(push_inputs(session, readers, batch_size=size, close=close), start=1):
            for batch in session.read().batches:
                given += len(batch)
                yield batch
            meter.say(f"running: {taken:,} batches read, {given:,} elements given")


def _add_to(builder: HistoryBuilder, batches: Iterator[EventBatch]) -> Iterator[EventBatch]:
    """The batches unchanged; each is added to the history."""
    for batch in batches:
        builder.add(batch)
        yield batch


def _run_batch(plan: Node, paths: Mapping[str, Path], results: ResultTargets, batch_size: int) -> None:
    """The query as one Spark job over the inputs' histories; its output is inserts and a closing CTI.

    Inputs are read, checked and reconstituted here, so that an error names file and row. Spark gets them as
    Parquet files.
    """
    # pyspark takes a second to load, and whoever runs on another engine need not have it.
    from recension.runners.spark.batch.lower import require_runnable
    from recension.runners.spark.batch.run import history_of_files

    readers = open_inputs(paths, plan, set(), batch_size)
    tables = {node.name for node in walk(plan) if isinstance(node, Table)}
    require_runnable(plan)
    with TemporaryDirectory() as folder:
        staged = {
            name: _stage_history(Path(folder) / f"{i}.parquet", name, reader, is_timeless=name in tables)
            for i, (name, reader) in enumerate(readers.items())
        }
        with show_progress("batch") as meter:
            meter.say("running on Spark")
            history = sort_by_lifetime(history_of_files(plan, staged, Path(folder) / "spark.log"))
    time_type = common_time_type(readers)
    if results.output is not None:
        results.output.write_stream(_closed_stream(history, batch_size), plan.schema, time_type)
    if results.needs_history:
        results.put_history(history, time_type)
    report_dropped({name: reader.counts for name, reader in readers.items()})


def _stage_history(path: Path, name: str, reader: StreamReader, *, is_timeless: bool) -> str:
    """A file for Spark with the history of a stream, or with a table."""
    found = reconstitute(with_progress(reader, f"reading {name}"), reader.schema)
    if is_timeless:
        pq.write_table(found.payload, path)
    else:
        write_history(path, found)
    return str(path)


def _closed_stream(history: History, size: int) -> Iterator[EventBatch]:
    for start in range(0, len(history), size):
        payload = history.payload.slice(start, size).combine_chunks().to_batches()[0]
        yield inserts(history.vs[start : start + size], history.ve[start : start + size], payload)
    yield cti(FOREVER, history.schema)
