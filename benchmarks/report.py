"""Results as a table for people, and as JSON beside a description of the machine."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness import Result

_PACKAGES = ("numpy", "pyarrow", "duckdb", "pyspark")


def show(found: Mapping[str, list[Result]], console: Console) -> None:
    """Print all results as one table, suite after suite."""
    table = Table("measurement")
    for title in ("elements", "elements/s", "target", "compared", "twice as many takes", "peak memory"):
        table.add_column(title, justify="right")
    for title, results in found.items():
        table.add_row(Text(title, style="bold"))
        names = list(dict.fromkeys(result.name for result in results))
        for result in sorted(results, key=lambda r: (names.index(r.name), r.size)):
            table.add_row(*_cells(result, results))
        table.add_section()
    console.print(table)


def _cells(result: Result, results: Iterable[Result]) -> list[str]:
    half = next((r for r in results if r.name == result.name and r.size * 2 == result.size), None)
    return [
        result.name,
        f"{result.size:,}",
        f"{result.rate:,.0f}" + (f"\n(wall {result.wall_rate:,.0f})" if result.wall_rate else ""),
        f"{result.target:,.0f}" if result.target else "",
        "\n".join(f"{ratio:.2f} × {name}" for name, ratio in result.against.items()),
        f"× {result.time / half.time:.2f}" if half else "",
        f"{result.peak_mb:,.0f} MB ({result.loaded_mb:,.0f} before)" if result.peak_mb else "",
    ]


def markdown(table: Table) -> str:
    """A table as it stands in the guide."""
    lines = [[str(column.header) for column in table.columns]]
    lines.append(["---"] * len(table.columns))
    lines += [list(row) for row in zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill_page(page: Path, name: str, text: str) -> None:
    """Put what was measured between the two comments of that name, instead of what is there."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    head, _, rest = page.read_text().partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        raise ValueError(f"{page} has no comments {begin.strip()} and {end}")
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def save(results: Iterable[Result], folder: Path, suffix: str = "") -> Path:
    """Write the results as JSON; gives the file."""
    folder.mkdir(exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}{suffix}.json"
    document = {
        "when": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "results": [asdict(result) | {"rate": result.rate} for result in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def machine() -> dict[str, Any]:
    """What the timings depend on."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    """Linux names it in a file; elsewhere the platform module has to know."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
