"""``recension run``: a query over files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from recension.cli.inputs import readers_of, time_type_of
from recension.cli.profile import show_profile, tell_counts
from recension.cli.query_file import load_query
from recension.cli.root import app
from recension.cli.run_batch import run_batch
from recension.cli.run_spark import run_spark
from recension.cli.show import in_order, show_history
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.formats import StreamReader, write_history, write_stream
from recension.core.reconstitution import HistoryBuilder
from recension.runners.finite import steps
from recension.runners.local import BATCH_SIZE, Session


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
        Path | None, typer.Option("--output", "-o", help="Write the output stream here.")
    ] = None,
    history: Annotated[Path | None, typer.Option(help="Write the history of the output here.")] = None,
    engine: Annotated[
        EngineName, typer.Option(help="In this process, as a Spark stream, or as a Spark batch job.")
    ] = EngineName.LOCAL,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Elements taken at a time.")] = BATCH_SIZE,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Spark stream: in how many parts it runs.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark stream: the folder that it keeps, and goes on from.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show what each operator did.")] = False,
) -> None:
    """Run a query over stream files. The query file is Python and is executed.

    Several inputs are read in turn, a batch from each. The end of a file closes its input only with
    --close, or if it is a plain table: a stream that just stops may have died. With --engine spark the
    query runs as a streaming pipeline, which goes on from --checkpoint if there is one; with --engine batch
    it runs on Spark over the inputs' whole histories, every input closed.
    """
    plan = load_query(query).plan
    if engine is not EngineName.SPARK and (shards is not None or checkpoint is not None):
        raise RecensionError("--shards and --checkpoint are for --engine spark")
    if engine is EngineName.SPARK:
        run_spark(
            plan, inputs, output, history, close=close, shards=shards, checkpoint=checkpoint, profile=profile
        )
        return
    if engine is EngineName.BATCH:
        if profile:
            raise RecensionError(
                "--profile shows the operators of other engines; a batch job has Spark's own UI"
            )
        run_batch(plan, inputs, output, history, batch_size)
        return
    session = Session({"query": plan}, batch_size)
    readers = readers_of(inputs, plan, session.unchecked, batch_size)
    builder = HistoryBuilder(plan.schema)
    results = _results(session, readers, builder, batch_size, close=close)
    if output is None:
        for _ in results:
            pass
    else:
        write_stream(output, results, plan.schema, time_type_of(readers))
    if history is not None:
        write_history(history, in_order(builder.build()), time_type_of(readers))
    elif output is None:
        show_history(in_order(builder.build()), time_type_of(readers))
    tell_counts(session.counts())
    if profile:
        show_profile(session.metrics())


def _results(
    session: Session, readers: dict[str, StreamReader], builder: HistoryBuilder, size: int, *, close: bool
) -> Iterator[EventBatch]:
    """The output as it comes; on a terminal, with a sign of life."""
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} elements out"), TimeElapsedColumn())
    shown = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)
        for _ in steps(session, readers, batch_size=size, close=close):
            for batch in session.read().batches:
                builder.add(batch)
                progress.update(task, advance=len(batch))
                yield batch
