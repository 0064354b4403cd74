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
from rich.table import Table

from recension.cli.inputs import readers_of, time_type_of
from recension.cli.query_file import load_query
from recension.cli.root import app
from recension.cli.run_batch import run_batch
from recension.cli.show import in_order, show_history
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.formats import StreamReader, write_history, write_stream
from recension.core.reconstitution import HistoryBuilder
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import STALE_CTI
from recension.runners.engine import Metrics
from recension.runners.local import BATCH_SIZE, Session, steps


class EngineName(StrEnum):
    """Where a query can run."""

    LOCAL = "local"
    BATCH = "batch"


@app.command()
def run(
    query: Annotated[str, typer.Argument(metavar="QUERY.py[:name]", help="A file that defines a stream.")],
    inputs: Annotated[
        list[str], typer.Option("--input", "-i", metavar="NAME=PATH", help="A source and its stream.")
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="For the physical output.")] = None,
    history: Annotated[Path | None, typer.Option(help="For the history of the output.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Where to run.")] = EngineName.LOCAL,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Elements taken at a time.")] = BATCH_SIZE,
    profile: Annotated[bool, typer.Option("--profile", help="Show what each operator did.")] = False,
) -> None:
    """Run a query over stream files. The query file is Python and is executed.

    Several inputs are read in turn, a batch from each. The end of a file closes its input only with
    --close, or if it is a plain table: a stream that just stops may have died. With --engine batch the
    query runs on Spark over the inputs' whole histories, every input closed.
    """
    plan = load_query(query).plan
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
    _tell_what_is_missing(session)
    if profile:
        console = Console(stderr=True)
        console.width = console.width if console.is_terminal else 160
        console.print(_profile(session.metrics()))


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


def _tell_what_is_missing(session: Session) -> None:
    for source, counts in session.counts().items():
        told = [f"{n} × {reason}" for reason, n in sorted(counts.items()) if n and reason != STALE_CTI]
        if told:
            print(f"recension: {source}: left out or moved: {', '.join(told)}", file=sys.stderr)


def _profile(metrics: list[Metrics]) -> Table:
    table = Table("operator")
    for column in ("in", "retracted", "out", "retracted", "cti", "state rows", "state", "dropped", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for m in metrics:
        cti = "∞" if m.cti == FOREVER else "" if m.cti == BEGINNING else str(m.cti)
        counts = [f"{x:,}" for x in (m.events_in, m.retractions_in, m.events_out, m.retractions_out)]
        state = [f"{m.state_rows:,}", f"{m.state_bytes / 2**20:.1f} MiB"]
        table.add_row(m.name, *counts, cti, *state, f"{m.dropped:,}", f"{m.seconds:.3f} s")
    return table
