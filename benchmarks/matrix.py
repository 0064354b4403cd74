"""What the guide shows, measured: one table of what a user may choose, for the workloads of the peers.

    python -m benchmarks matrix                     the default row, and a row for each choice that differs
    python -m benchmarks matrix --rows default      the default row alone
    python -m benchmarks matrix --rows all          every combination

The default row is what a newcomer writes: floats, text keys, timestamps, nothing declared of the source,
answers at once, Parquet. Each other row differs in one choice, the last one in all. W1 is a hopping window of
10 s every 2 s, W2 an interval join (of half as many events), W3 a tumbling window of 10 s; 20 % of the rows
are late by up to 30 s. The input comes in 40 steps, and what each gave is read. Rates are events per second
of one core's time, reading of files included. Each cell is a process of its own; the median run counts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.harness import Measurement, Result, Suite, run_child
from benchmarks.peers.data import STEPS, make_table
from benchmarks.report import machine, save

Values = Literal["floats", "whole numbers"]
Keys = Literal["text keys", "number keys"]
Declared = Literal["undeclared", "declared"]
Level = Literal["at once", "final"]
Origin = Literal["Parquet", "Arrow", "pandas", "JSON"]

EVENTS, QUICK, REPEATS, WIDTH = 2_000_000, 100_000, 3, 150
LATENESS = dt.timedelta(seconds=30)
SOURCES = {"W1": ("feed",), "W2": ("left", "right"), "W3": ("feed",)}


@dataclass(frozen=True)
class Choices:
    """A row of the table."""

    values: Values = "floats"
    keys: Keys = "text keys"
    declared: Declared = "undeclared"
    level: Level = "at once"
    origin: Origin = "Parquet"

    def __str__(self) -> str:
        return ", ".join((self.values, self.keys, self.declared, self.level, self.origin))


@dataclass(frozen=True)
class Column:
    """A workload over so many keys, and the events a second to aim for in the default row."""

    workload: str
    keys: int
    target: float

    def __str__(self) -> str:
        return f"{self.workload}, {self.keys:,} keys"


DEFAULT = Choices()
COLUMNS = (
    Column("W1", 1_000, 2e6),
    Column("W2", 1_000, 1.5e6),
    Column("W3", 1_000, 4e6),
    Column("W1", 1_000_000, 1e6),
    Column("W3", 1_000_000, 2e6),
)
ALL = tuple(Choices(*chosen) for chosen in product(*map(get_args, (Values, Keys, Declared, Level, Origin))))
ROWS = (
    DEFAULT,
    replace(DEFAULT, values="whole numbers"),
    replace(DEFAULT, keys="number keys"),
    replace(DEFAULT, declared="declared"),
    replace(DEFAULT, level="final"),
    *(replace(DEFAULT, origin=origin) for origin in get_args(Origin)[1:]),
    Choices("whole numbers", "number keys", "declared", "final", "Arrow"),
)


def _query(choices: Choices, workload: str) -> rc.Stream:
    known = rc.Properties(is_insert_only=True) if choices.declared == "declared" else None
    kinds = {
        "key": "string" if choices.keys == "text keys" else "int64",
        "value": "float64" if choices.values == "floats" else "int64",
    }
    end = "until" if workload == "W2" else None
    sources = [rc.source(name, kinds, start="ts", end=end, properties=known) for name in SOURCES[workload]]
    if workload == "W2":
        query = sources[0].join(sources[1], on="key")
    else:
        grouped = sources[0].group_by("key")
        windows = grouped.hopping("10s", "2s") if workload == "W1" else grouped.tumbling("10s")
        query = windows.agg(n=rc.count(), s=rc.sum("value"))
    return query.consistency(rc.MIDDLE) if choices.level == "at once" else query


def _load(choices: Choices, column: Column, size: int, folder: Path) -> _Input:
    """Make the files, or the tables in memory."""
    steps = {
        name: list(_steps(choices, _typed(choices, make_table(name, size, column.keys)), folder / name))
        for name in SOURCES[column.workload]
    }
    return _Input(_query(choices, column.workload), choices, steps)


def _typed(choices: Choices, table: pa.Table) -> pa.Table:
    if choices.keys == "number keys":
        numbers = pc.utf8_slice_codeunits(table["key"], 4).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("key"), "key", numbers)
    if choices.values == "whole numbers":
        numbers = pc.floor(table["value"]).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("value"), "value", numbers)
    return table


def _steps(choices: Choices, table: pa.Table, place: Path) -> Iterator[Any]:
    """What is read in each step: a table, a frame, or the place of a part of a file."""
    rows = -(-table.num_rows // STEPS)
    parts = [table.slice(start, rows).combine_chunks() for start in range(0, table.num_rows, rows)]
    if choices.origin == "Parquet":
        file = place.with_suffix(".parquet")
        pq.write_table(table, file, row_group_size=rows)
        yield from ((file, step) for step in range(len(parts)))
    elif choices.origin == "JSON":
        for step, part in enumerate(parts):
            file = place.with_name(f"{place.name}-{step:02}.jsonl")
            part.to_pandas().to_json(file, orient="records", lines=True, date_format="iso", date_unit="us")
            yield file, table.schema
    else:
        yield from parts if choices.origin == "Arrow" else (part.to_pandas() for part in parts)


@dataclass(frozen=True)
class _Input:
    query: rc.Stream
    choices: Choices
    steps: dict[str, list[Any]]

    def read(self) -> Iterator[tuple[str, Any, Any]]:
        """Source, rows and the last start of each step, sources in turn."""
        opened: dict[Path, pq.ParquetFile] = {}
        for parts in zip(*self.steps.values(), strict=True):
            for name, part in zip(self.steps, parts, strict=True):
                rows = part
                if self.choices.origin == "Parquet":
                    file, step = part
                    opened[file] = opened.get(file) or pq.ParquetFile(file)
                    rows = opened[file].read_row_group(step)
                elif self.choices.origin == "JSON":
                    file, schema = part
                    rows = pj.read_json(file, parse_options=pj.ParseOptions(explicit_schema=schema))
                is_frame = self.choices.origin == "pandas"
                yield name, rows, rows["ts"].max() if is_frame else pc.max(rows["ts"]).as_py()


def _run(data: _Input) -> int:
    """The number of answers that stand at the end."""
    live, answers = rc.session(data.query, history_limit=0), 0
    seen = dict.fromkeys(data.steps, dt.datetime.min.replace(tzinfo=dt.UTC))
    for name, rows, last in data.read():
        live.push(name, rows)
        seen[name] = max(seen[name], last)
        live.advance(name, seen[name] - LATENESS)
        if name == list(seen)[-1]:
            answers += _count(live.read())
    live.close()
    return answers + _count(live.read())


def _count(out: rc.Result) -> int:
    """Inserts less what was taken back."""
    return sum(
        int((batch.kind == 0).sum() - ((batch.kind == 1) & (batch.new_ve == batch.vs)).sum())
        for batch in out.batches
    )


def _name(choices: Choices, column: Column) -> str:
    return f"{column}: {choices}"


SUITE = Suite(
    "matrix",
    "The user's path: every choice, for W1, W2 and W3",
    tuple(
        Measurement(
            _name(choices, column),
            partial(_load, choices, column),
            _run,
            sizes=(EVENTS,),
            target=column.target if choices == DEFAULT else None,
            repeats=REPEATS,
        )
        for choices, column in product(ALL, COLUMNS)
    ),
)


def main(arguments: list[str]) -> None:
    """Measure, print one table, save everything as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rows", choices=("default", "each", "all"), default="each")
    asked = parser.parse_args(arguments)
    out = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    rows = {"default": (DEFAULT,), "each": ROWS, "all": ALL}[asked.rows]
    found = _measure(rows, asked.events, out)
    out.print(f"saved as {save(found, Path('bench-results'))}")


def measured(folder: Path, out: Console, *, quick: bool = False) -> list[Result]:
    """For the table of all benchmarks."""
    return _measure(ROWS, QUICK if quick else EVENTS, out)


def _measure(rows: tuple[Choices, ...], events: int, out: Console) -> list[Result]:
    """Print the table; the rows of a column must find equally many answers."""
    table = Table("", title=f"{events:,} events in {STEPS} steps: million events/s of one core's time")
    for column in COLUMNS:
        table.add_column(f"{column.workload}\n{column.keys:,} keys", justify="right")
    found: dict[Column, list[Result]] = {column: [] for column in COLUMNS}
    for choices in rows:
        cells = []
        for column in COLUMNS:
            result = _measure_cell(choices, column, events)
            if found[column] and found[column][0].answer != result.answer:
                raise SystemExit(f"{result.name} found {result.answer}, not {found[column][0].answer}")
            found[column].append(result)
            cells.append(f"{result.rate / 1e6:.2f}")
        table.add_row(_difference(choices), *cells)
        print(_difference(choices), *cells, file=sys.stderr, flush=True)
    table.add_row("aim of the default row", *(f"{column.target / 1e6:.1f}" for column in COLUMNS))
    out.print(table)
    return [result for results in found.values() for result in results]


def _measure_cell(choices: Choices, column: Column, events: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        size = events // len(SOURCES[column.workload])
        return Result(**run_child(SUITE, _name(choices, column), size, Path(folder), "measure"))


def _difference(choices: Choices) -> str:
    """What of the choices is not the default; all of the default."""
    usual = vars(DEFAULT)
    other = [value for name, value in vars(choices).items() if value != usual[name]]
    return ", ".join(other) if other else f"{choices} (default)"
