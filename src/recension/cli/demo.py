"""``recension demo``: the main job as a demonstration, with its numbers and a page of figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from recension.cli.outputs import check_made_file
from recension.cli.root import FAILED, app
from recension.cli.run_spark import missing_for_spark


@app.command()
def demo(
    size: Annotated[int, typer.Option(min=500, help="Leases in the day.")] = 6_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another day.")] = 0,
    spark: Annotated[bool, typer.Option(help="On Spark Structured Streaming, or in this process.")] = True,
    report: Annotated[Path, typer.Option(help="The file for the page with the figures.")] = Path(
        "demo/report.html"
    ),
) -> int:
    """Replicas of one query that disagree, die and are replaced; one answer, compared with the truth."""
    from recension.demo.leases import SITES
    from recension.demo.performance import inspector_beside, perform
    from recension.demo.script import World

    check_made_file(report)
    began = time.perf_counter()
    console = Console(width=min(100, Console().width))
    console.print(
        f"\n{size:,} leases of a day at {len(SITES)} sites, reported by three servers that disagree: how "
        "many devices are online at each site?\nThree replicas of one query answer all the time; a merge "
        "makes one stream of their outputs.\n",
        highlight=False,
    )
    if spark and (missing := missing_for_spark()):
        reason = f"The replicas run in this process: Spark needs {missing}, which is not here.\n"
        console.print(reason, markup=False)
        spark = False
    verdict = perform(World(size, seed), console, report, on_spark=spark)
    console.print(f"\nFigures: {report}   [dim]{time.perf_counter() - began:.0f} s[/]", highlight=False)
    console.print(f"The run, step by step: {inspector_beside(report)}", highlight=False)
    return 0 if verdict.is_right else FAILED
