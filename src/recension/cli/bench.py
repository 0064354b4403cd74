"""``recension bench``: two runs of the benchmarks side by side, and where the time of one goes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from recension.cli.root import app
from recension.core.errors import RecensionError

bench = typer.Typer(name="bench", help="Compare two runs of the benchmarks (`make bench`), or profile one.")
app.add_typer(bench)

Key: TypeAlias = tuple[str, str, int]
# Below this ratio a measurement has got slower. Two runs of the same code differ by less, mostly.
SLOWER = 0.9


@dataclass(frozen=True)
class BenchmarkRun:
    """One run of the benchmarks, as `make bench` saves it."""

    when: str
    machine: dict[str, Any]
    results: dict[Key, dict[str, Any]]


@bench.callback(invoke_without_command=True, no_args_is_help=True)
def profile(
    context: typer.Context,
    is_wanted: Annotated[
        bool, typer.Option("--profile", help="Show where time goes by stage and by operator, and save it.")
    ] = False,
    suite: Annotated[str, typer.Option(help="With --profile: the benchmarks to run.")] = "matrix",
    events: Annotated[int | None, typer.Option(help="With --profile: how many events.", min=1)] = None,
) -> None:
    """Compare two runs of the benchmarks (`make bench`), or profile one."""
    if context.invoked_subcommand is not None or not is_wanted:
        return
    if not Path("benchmarks", "profile.py").is_file():
        raise RecensionError(
            "there are no benchmarks here: they come with the source, not with the package; "
            "run this in a checkout of the project"
        )
    size = [] if events is None else ["--events", str(events)]
    command = [sys.executable, "-m", "benchmarks.profile", "--suite", suite, *size]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@bench.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The JSON file of a run, from bench-results.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The JSON file of a later run.")],
) -> None:
    """Each measurement of B next to that of A: rate, peak memory, and what got slower."""
    before, after = load_run(a), load_run(b)
    console = Console(width=None if Console().is_terminal else 120)
    for line in _machine_differences(before, after):
        console.print(line, style="yellow", highlight=False)
    console.print(_table(before, after))
    if slower := [key for key in before.results if _is_slower(before, after, key)]:
        names = ", ".join(map(_name_of, slower))
        console.print(f"slower by more than {1 - SLOWER:.0%}: {names}", style="red", highlight=False)
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
            f"{_ratio(b['rate'], a['rate'])}{' slower' * _is_slower(before, after, key)}",
            f"{_ratio(b['peak_mb'], a['peak_mb'])}",
        )
    return table


def _is_slower(before: BenchmarkRun, after: BenchmarkRun, key: Key) -> bool:
    """Has a measurement that both runs have got slower?"""
    return key in after.results and after.results[key]["rate"] < SLOWER * before.results[key]["rate"]


def _ratio(b: float, a: float) -> str:
    return f"{b / a:.2f}" if a else ""


def _name_of(key: Key) -> str:
    return f"{key[0]}: {key[1]} ({key[2]:,})"
