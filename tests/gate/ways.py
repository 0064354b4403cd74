"""The ways in: each brings the rows of a case to a query, and says what became of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from tests.gate.cases import Case
from tests.gate.plain import PlainGate, says
from tests.gate.verdicts import Verdict, added, refused, taken, without_partition

import recension as rc
from recension.cli import main
from recension.cli.inputs import open_inputs
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream, read_history
from recension.plan.source import sources_of

FORMATS: Final = ("parquet", "jsonl", "csv", "arrow")


Way: TypeAlias = Callable[[Case, Path], Verdict]


def push_pieces(case: Case, pieces: list[Any], *, restored: bool = False, **how: Any) -> Verdict:
    """Push pieces in turn, each perhaps to a session that was restored from the one before."""
    session = rc.session(case.query())
    try:
        for piece in pieces:
            session.push("s", piece, **how)
            if restored:
                state, session = session.snapshot(), rc.session(case.query())
                session.restore(state)
    except rc.RecensionError as why:
        return refused(why)
    return taken(added(session.counts()), session.history())


def _tables(case: Case, size: int) -> list[pa.Table]:
    return [case.table(at, at + size) for at in range(0, len(case.rows), size)]


def by_run(case: Case, data: Any, size: int = 1 << 16) -> Verdict:
    """By `rc.run`."""
    try:
        found = rc.run(case.query(), {"s": data}, batch_size=size)
    except rc.RecensionError as why:
        return refused(why)
    return in_all(found)


def in_all(found: rc.Result) -> Verdict:
    """What a run took in, and how much it did not."""
    counts = {
        "dropped": sum(one.dropped for one in found.metrics),
        "late": sum(one.late for one in found.metrics),
    }
    return Verdict(counts=counts, history=taken({}, found.history()).history)


def write(case: Case, path: Path, start: int = 0, stop: int | None = None) -> Path:
    """Some rows as a file of the format that its name says."""
    table = case.table(start, stop)
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text(
                "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()), encoding="utf-8"
            )
    return path


def _opened(case: Case, path: Path, size: int) -> Any:
    """The file as `open_stream` gives it, told what the source says of its columns."""
    (source,) = sources_of(case.query().plan).values()
    return open_stream(
        path,
        schema=source.columns,
        start=source.start,
        end=source.end,
        times=source.times,
        is_timeless=source.time_columns.is_timeless,
        places=source.sub_streams,
        on_violation=source.on_violation,
        check_orphans=not source.are_rows,
        check_lateness=not source.are_rows,
        batch_size=size,
    )


def _command(case: Case, path: Path, *options: str) -> Verdict:
    """By ``recension run``."""
    folder, err = path.parent, StringIO()
    (folder / "q.py").write_text(case.program(), encoding="utf-8")
    arguments = ["run", "q.py", "-i", f"s={path.name}", "--history", "h.parquet", *options]
    with chdir(folder), redirect_stderr(err), redirect_stdout(StringIO()):
        code = main(arguments)
    if code:
        return _printed_refusal(err.getvalue())
    return taken(
        _printed_counts(err.getvalue()), read_history(folder / "h.parquet", schema=case.query().schema)
    )


def _printed_refusal(text: str) -> Verdict:
    """``recension: FILE: row 3: why``."""
    found = re.fullmatch(r"recension: (?:[^ ]*: )?(?:row (\d+): )?(.*)\n", text)
    assert found is not None, text
    return Verdict(without_partition(found[2]), None if found[1] is None else int(found[1]))


def _printed_counts(text: str) -> Counter[str]:
    """``recension: s: dropped or moved: 2 × why, 1 × why else``."""
    counts = Counter[str]()
    for number, reason in re.findall(r"(\d+) × (.+?)(?=, \d+ ×|\n|$)", text):
        counts[reason] += int(number)
    return counts


def _in_two_files(case: Case, folder: Path) -> Verdict:
    """A folder of two files: rows are numbered in each."""
    half = len(case.rows) // 2
    place = folder / "two"
    place.mkdir(exist_ok=True)
    write(case, place / "1.parquet", 0, half)
    write(case, place / "2.parquet", half)
    try:
        found = rc.run(case.query(), {"s": _opened(case, place, 3)})
    except rc.RecensionError as why:
        is_second = isinstance(why, rc.StreamError) and str(why.file).endswith("2.parquet")
        return refused(why, before=half if is_second else 0)
    return in_all(found)


def by_elements(case: Case, folder: Path) -> Verdict:
    """A push of elements."""
    return push_pieces(case, [case.elements()])


def row_by_row(case: Case, folder: Path) -> Verdict:
    """A push for each row: what all other ways must agree with, as no later row can be in the way."""
    return push_pieces(case, _tables(case, 1))


PUSHED: Final[dict[str, Way]] = {
    "a table": lambda case, _: push_pieces(case, [case.table()]),
    "a batch": lambda case, _: push_pieces(case, case.table().combine_chunks().to_batches()),
    "pieces": lambda case, _: push_pieces(case, _tables(case, 3)),
    "pieces, restored": lambda case, _: push_pieces(case, _tables(case, 2), restored=True),
    "elements": by_elements,
    "elements one by one": lambda case, _: push_pieces(case, [[e] for e in case.elements() or ()]),
}
RUN: Final[dict[str, Way]] = {
    "run of a table": lambda case, _: by_run(case, case.table()),
    "run of a table by threes": lambda case, _: by_run(case, case.table(), 3),
    "run of elements": lambda case, _: by_run(case, case.elements()),
}


def opened(name: str, size: int, case: Case, folder: Path) -> Verdict:
    """A run of a stream that `open_stream` has opened."""
    try:
        return by_run(case, _opened(case, write(case, folder / f"s.{name}"), size))
    except rc.RecensionError as why:
        return refused(why)


def path_run(name: str, case: Case, folder: Path) -> Verdict:
    """A run of a path."""
    return by_run(case, str(write(case, folder / f"s.{name}")))


def path_pushed(name: str, case: Case, folder: Path) -> Verdict:
    """A push of a path."""
    return push_pieces(case, [write(case, folder / f"s.{name}")])


def command(name: str, case: Case, folder: Path) -> Verdict:
    """The command, reading a file a few rows at a time."""
    return _command(case, write(case, folder / f"s.{name}"), "--batch-size", "3")


def read_for_batch(name: str, case: Case, folder: Path) -> Verdict:
    """What ``recension run --engine batch`` reads before Spark gets the history."""
    paths = {"s": write(case, folder / f"s.{name}")}
    try:
        reader = open_inputs(paths, case.query().plan, set(), 3)["s"]
        found = replace(reconstitute(reader, reader.schema), time_type=reader.time_type)
    except rc.RecensionError as why:
        return refused(why)
    return taken(reader.counts, found)


OPENED: Final[dict[str, Way]] = {
    **{f"{name} opened": partial(opened, name, 1 << 16) for name in FORMATS},
    "parquet opened by threes": partial(opened, "parquet", 3),
    "two files opened": _in_two_files,
}
PATHS: Final[dict[str, Way]] = {
    **{f"run of a path, {name}": partial(path_run, name) for name in FORMATS},
    **{f"a path pushed, {name}": partial(path_pushed, name) for name in FORMATS},
}
COMMAND: Final[dict[str, Way]] = {f"command, {name}": partial(command, name) for name in FORMATS}
BATCH: Final[dict[str, Way]] = {f"read for batch, {name}": partial(read_for_batch, name) for name in FORMATS}
# What has no counts by reason.
IN_ALL: Final = {*RUN, *OPENED, *(name for name in PATHS if name.startswith("run"))}
NEEDS_ELEMENTS: Final = {"elements", "elements one by one", "run of elements"}
IN_PIECES: Final = {
    "pieces",
    "pieces, restored",
    "elements one by one",
    "run of a table by threes",
    "row by row",
}


def may_take(name: str, case: Case) -> bool:
    """Can a case come by a way?"""
    if name in NEEDS_ELEMENTS and case.elements() is None:
        return False
    # Steps above the source are Spark's in a batch, and so is the restating of rows.
    if name in BATCH and (case.above or "key" in case.options):
        return False
    # Spark reads tables without times where the query is built.
    if name.startswith("Spark") and case.make == "table":
        return False
    # Two rows of one order may be of two shards, and where no error is raised neither knows of the other.
    if "shards" in name and not case.may_be_cut and case.policy != "raise":
        return False
    return case.may_be_cut or not (name in IN_PIECES or name.endswith("twos"))


def compare(name: str, case: Case, expected: Verdict, found: Verdict) -> None:
    """Fail unless a way has given the verdict that is expected of it."""
    if name in IN_ALL:
        expected = expected.in_all()
    if case.above == ".finalize()":
        # It counts what it drops of the net effect of a batch.
        expected, found = replace(expected, counts={}), replace(found, counts={})
    if name.startswith("Spark") and found.refused and expected.refused:
        found = _on_spark(name, case, expected, found)
    assert found == expected, f"{name}\n{found}\n{expected}\n{case.options}\n" + "\n".join(
        map(str, case.rows)
    )


def _on_spark(name: str, case: Case, expected: Verdict, found: Verdict) -> Verdict:
    """Which of several faults is found first depends on how Spark divides the work, and is none of ours.

    A task finds a row that no element can be made of before a shard sees any. A shard sees its own rows only.
    Rows of a DataFrame have numbers only if they are read from files, as a stream.
    """
    undecodable = PlainGate(case).first_undecodable()
    if "shards" in name or (undecodable is not None and says(found.refused, undecodable[1])):
        return expected
    return replace(found, row=expected.row) if "rows" in name and found.row is None else found
