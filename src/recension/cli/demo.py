"""``recension demo``: what the library is for, shown on streams made on the spot.

Three witnesses tell one history in different words. Each is read, checked and compared; then one query
runs over each of them, answers at once, revises itself, and arrives at the same history; and once more on
Spark, as a pipeline that is stopped and started again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import recension as rc
from recension.cli.demo_spark import ask_spark
from recension.cli.root import FAILED, app
from recension.core.batch import RETRACT, EventBatch, concat
from recension.core.difference import difference
from recension.core.formats import open_stream, write_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.rowhash import combine, row_hash
from recension.runners.result import Result
from recension.testing.generator import StreamSettings, replicas
from recension.testing.generator.settings import SCHEMA

_WITNESSES = 3


@dataclass(frozen=True)
class Witness:
    """One telling of the history, read back from its file."""

    name: str
    elements: EventBatch
    history: History


@app.command()
def demo(
    size: Annotated[int, typer.Option(min=100, help="Elements in each stream.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another history.")] = 0,
    spark: Annotated[bool, typer.Option(help="Ask on Spark as well.")] = True,
) -> int:
    """Three witnesses, one truth: replicas that differ in every row, and a query that corrects itself."""
    console = Console(width=min(110, Console().width))
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        witnesses = _witnesses(Path(folder), size, seed, console)
        _compare_inputs(witnesses, console)
        outputs = [_ask(witness) for witness in witnesses]
        truth = _answer_from_history(witnesses[0].history)
        agree = _compare_outputs(witnesses, outputs, truth, console)
        if spark:
            elements = witnesses[0].elements
            agree &= ask_spark(_question().plan, "events", elements, truth, Path(folder), console)
    console.print(f"\n{time.perf_counter() - began:.1f} s.", style="dim")
    return 0 if agree else FAILED


def _witnesses(folder: Path, size: int, seed: int, console: Console) -> list[Witness]:
    settings = StreamSettings.of("R3", size=size, seed=seed, revisions=1.0, ties=0.1, max_gap="2s")
    console.print(
        f"\nMaking {_WITNESSES} Parquet streams of {size:,} elements: one history, told in different words."
    )
    found = []
    for number, batches in enumerate(replicas(settings, _WITNESSES), 1):
        path = folder / f"witness-{number}.parquet"
        write_stream(path, batches, SCHEMA)
        elements = concat(list(open_stream(path)))
        found.append(Witness(f"witness {number}", elements, reconstitute([elements], SCHEMA)))
    return found


def _compare_inputs(witnesses: list[Witness], console: Console) -> None:
    table = Table("", "elements", "retractions", "rows like witness 1", "events in history", "history equal")
    first = witnesses[0]
    for witness in witnesses:
        retractions = int((witness.elements.kind == RETRACT).sum())
        equal = not difference(first.history, witness.history)
        alike = "" if witness is first else f"{_rows_alike(first.elements, witness.elements):,}"
        told = f"{len(witness.elements):,}", f"{retractions:,}", alike, f"{len(witness.history):,}"
        table.add_row(witness.name, *told, "yes" if equal else "NO")
    console.print(table)


def _rows_alike(a: EventBatch, b: EventBatch) -> int:
    """In how many places do both streams have the same row?"""
    size = min(len(a), len(b))
    identities = [combine(combine(combine(row_hash(x.payload), x.vs), x.ve), x.new_ve)[:size] for x in (a, b)]
    same = (identities[0] == identities[1]) & (a.kind[:size] == b.kind[:size])
    return int((same & a.is_data()[:size]).sum())


def _question() -> rc.Stream:
    events = rc.source("events", SCHEMA)
    return events.where(rc.col("value") < 10).group_by("value").agg(live=rc.count(), speculate="eager")


def _ask(witness: Witness) -> Result:
    return rc.run(_question(), {"events": witness.elements}, batch_size=2_000)


def _compare_outputs(
    witnesses: list[Witness], outputs: list[Result], truth: History, console: Console
) -> bool:
    console.print(
        "\nHow many events are live, for each value below 10? Asked of each witness, answered at once:"
    )
    table = Table("", "answers given", "taken back or corrected", "final answers", "equal to the final truth")
    agree = True
    for witness, output in zip(witnesses, outputs, strict=True):
        batch = output.batch()
        given, revised = int((batch.kind == 0).sum()), int((batch.kind == RETRACT).sum())
        equal = not difference(truth, output.history())
        agree &= equal
        table.add_row(
            witness.name, f"{given:,}", f"{revised:,}", f"{len(output.history()):,}", "yes" if equal else "NO"
        )
    console.print(table)
    return agree


def _answer_from_history(history: History) -> History:
    """The same question asked once everything is known: no disorder, no revisions."""
    events = rc.source("events", SCHEMA)
    busy = events.where(rc.col("value") < 10).group_by("value").agg(live=rc.count())
    return rc.run(busy, {"events": history.to_arrow()}).history()
