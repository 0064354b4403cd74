"""The story in numbers, for the terminal and for the page."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from recension.core.ticks import FOREVER
from recension.demo.leases import clock
from recension.demo.verdict import Verdict, Witness

ENGINES: Final = {
    "spark": "Spark Structured Streaming: a streaming query for each replica, and one for the merge",
    "local": "the local engine: a session for each replica, and one for the merge",
}


def numbers(verdict: Verdict) -> list[tuple[str, str]]:
    """What there is to count, with its words."""
    made = sum(witness.revisions for witness in verdict.inputs)
    return [
        ("elements told by three feeds", f"{sum(verdict.told.values()):,}"),
        ("revisions made by the replicas", f"{made:,}"),
        ("revisions in the merged stream", f"{verdict.output.revisions:,}"),
        ("answers in the merged history", f"{len(verdict.merged):,}"),
        ("of them shown before they were final", f"{len(verdict.speculative):,}"),
        (f"so long at the median, {verdict.longest_wait:.1f} s at most", f"{verdict.usual_wait:.1f} s"),
    ]


def tell(verdict: Verdict, console: Console) -> None:
    """A few lines that say how it went."""
    told = ", ".join(f"{name} {count:,}" for name, count in verdict.told.items())
    console.print(
        f"\nEvents in: {sum(verdict.told.values()):,} elements on {verdict.leases:,} leases ({told})."
    )
    console.print(_table(verdict))
    console.print(
        f"{len(verdict.speculative):,} answers were shown before they were final: speculative for "
        f"{verdict.usual_wait:.1f} s at the median, {verdict.longest_wait:.1f} s at most."
    )
    word = "yes" if verdict.is_right else "NO"
    console.print(
        f"Merged history ({len(verdict.merged):,} answers) equals the batch answer "
        f"({len(verdict.truth):,}): [bold {'green' if verdict.is_right else 'red'}]{word}[/]"
    )
    if not verdict.is_right:
        console.print(str(verdict.difference), markup=False)


def _table(verdict: Verdict) -> Table:
    table = Table("", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("new answers", "revisions", "final up to", "answers it missed", "left wrong"):
        table.add_column(name, justify="right")
    for witness in [*verdict.inputs, verdict.output]:
        counts = f"{witness.answers:,}", f"{witness.revisions:,}"
        table.add_row(witness.name, *counts, up_to(witness), f"{witness.missed:,}", f"{witness.wrong:,}")
    return table


def up_to(witness: Witness) -> str:
    """Up to when its answers are final, in words."""
    return "the end" if witness.final_up_to == FOREVER else clock(witness.final_up_to)
