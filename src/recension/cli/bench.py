"""``recension bench compare``: two runs of the benchmarks side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from recension.cli.root import app
from recension.core.errors import RecensionError

bench = typer.Typer(name="bench", help="Compare two runs of the benchmarks (`make bench`).")
app.add_typer(bench)

Key: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True)
class BenchmarkRun:
    """One run of the benchmarks, as `make bench` saves it."""

    when: str
    machine: dict[str, Any]
    results: dict[Key, dict[str, Any]]


@bench.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The JSON file of a run, from bench-results.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The JSON file of a later run.")],
) -> None:
    """Each measurement of B next to that of A: elements per second and peak memory."""
    before, after = load_run(a), load_run(b)
    console = Console(width=None if Console().is_terminal else 120)
    for line in _machine_differences(before, after):
        console.print(line, style="yellow", highlight=False)
    console.print(_table(before, after))
    for path, run, other in ((a, before, after), (b, after, before)):
        if only := [key for key in run.results if key not in other.results]:
            console.print(f"only in {path}: {', '.join(map(_name_of, only))}", highlight=False)


def load_run(path: Path) -> BenchmarkRun:
    """The run in a file; any other file is refused."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        results = {(r["suite"], r["name"], int(r["size"])): r for r in document["results"]}
        for result in results.values():
            float(result["rate"]), float(result["peak_mb"])
        return BenchmarkRun(str(document["when"]), dict(document["machine"]), results)
    except (ValueError, KeyError, TypeError):
        raise RecensionError(f"{path}: not a file that `make bench` has saved") from None


def _machine_differences(before: BenchmarkRun, after: BenchmarkRun) -> list[str]:
    """Figures of different machines are hard to compare."""
    names = dict.fromkeys([*before.machine, *after.machine])
    pairs = {name: (before.machine.get(name, "none"), after.machine.get(name, "none")) for name in names}
    return [f"the machines differ: {name} {a} / {b}" for name, (a, b) in pairs.items() if a != b]


def _table(before: BenchmarkRun, after: BenchmarkRun) -> Table:
    table = Table("measurement", title=f"{before.when} / {after.when}", title_justify="left")
    for title in ("elements", "A, a second", "B, a second", "B / A", "peak memory, B / A"):
        table.add_column(title, justify="right")
    for key in (key for key in before.results if key in after.results):
        a, b = before.results[key], after.results[key]
        table.add_row(
            f"{key[0]}: {key[1]}",
            f"{key[2]:,}",
            f"{a['rate']:,.0f}",
            f"{b['rate']:,.0f}",
            f"{_ratio(b['rate'], a['rate'])}",
            f"{_ratio(b['peak_mb'], a['peak_mb'])}",
        )
    return table


def _ratio(b: float, a: float) -> str:
    return f"{b / a:.2f}" if a else ""


def _name_of(key: Key) -> str:
    return f"{key[0]}: {key[1]} ({key[2]:,})"
