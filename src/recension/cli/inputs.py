"""What the commands read: their options, a reader for every source of a query, and what was dropped."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import pyarrow as pa
import typer

from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TICKS, merge_kinds
from recension.core.validity import STALE_CTI, Policy
from recension.gate.files import StreamReader, open_input
from recension.plan.node import rebuild
from recension.plan.nodes import Node, Source, Table, walk
from recension.plan.source import describe_unknown_source, require_one_kind

if TYPE_CHECKING:
    from recension.runners.blockers import Blocker


class OnViolation(StrEnum):
    """What to do with invalid elements."""

    RAISE = "raise"
    DROP = "drop"
    ADJUST = "adjust"


StartOption: TypeAlias = Annotated[
    str | None, typer.Option("--start", metavar="COLUMN", help="The column of a plain table with the starts.")
]
EndOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--end", metavar="COLUMN", help="The column with the ends. Without it, a row lasts one tick."
    ),
]
OnViolationOption: TypeAlias = Annotated[
    OnViolation,
    typer.Option(
        help="What to do with invalid elements: stop, drop them, or move late ones to the last CTI."
    ),
]


def parse_inputs(given: Sequence[str]) -> dict[str, Path]:
    """The paths given as ``NAME=PATH``, by name."""
    paths: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise RecensionError(f"--input {text}: write NAME=PATH")
        if name in paths:
            raise RecensionError(f"--input {text}: {name} was given already")
        paths[name] = Path(path)
    return paths


def with_policy(plan: Node, policy: Policy) -> Node:
    """The same query, with this policy for invalid elements on all sources."""

    def step(node: Node) -> Node:
        return replace(node, on_violation=policy) if isinstance(node, Source) else node

    (new,) = rebuild([plan], step)
    return new


def refuse_versions(paths: Mapping[str, Path], plan: Node) -> None:
    """Refuse a folder of versions where the table would be read only once."""
    tables = (node for node in walk(plan) if isinstance(node, Table) and node.refresh is not None)
    for table in tables:
        if table.name in paths and paths[table.name].is_dir():
            raise RecensionError(
                f"--input {table.name}={paths[table.name]}: a folder of versions is for --engine spark; "
                "other engines read the table once: give one file"
            )


def open_inputs(
    paths: Mapping[str, Path],
    plan: Node,
    unchecked_sources: set[str],
    batch_size: int,
    elsewhere: Collection[str] = (),
) -> dict[str, StreamReader]:
    """The streams at the paths, each with the options of its source. Files are opened, not yet read.

    Sources that are read ``elsewhere`` need no path.
    """
    known = {node.name: node for node in walk(plan) if isinstance(node, Source)}
    for name, path in paths.items():
        if name not in known:
            raise RecensionError(f"--input {name}={path}: {describe_unknown_source(name, known)}")
    if missing := [name for name in known if name not in paths and name not in elsewhere]:
        raise RecensionError(f"no input for source {missing[0]!r}: add --input {missing[0]}=PATH")
    readers = {
        name: open_input(
            known[name], path, check_orphans=name not in unchecked_sources, batch_size=batch_size
        )
        for name, path in paths.items()
    }
    require_one_kind(plan, {name: reader.kind for name, reader in readers.items()})
    return readers


def common_time_type(readers: Mapping[str, StreamReader]) -> pa.DataType:
    """The type of the times of all inputs."""
    found = reduce(merge_kinds, (reader.kind for reader in readers.values()), None)
    return TICKS if found is None else found


def report_blockers(blockers: Sequence[Blocker]) -> None:
    """Print which inputs without any CTI leave answers unfinal: a line on standard error for each."""
    for one in blockers:
        if one.cti == BEGINNING:
            print(
                f"recension: the answer is not final: it waits for {one.name}, which has no cti: add ctis to "
                "it, close it with --close, or put advance_time(...) on it in the query",
                file=sys.stderr,
            )


def report_dropped(counts_by_source: Mapping[str, Mapping[str, int]]) -> None:
    """Print how many elements were dropped or moved: a line on standard error for each source, by reason."""
    for source, counts in counts_by_source.items():
        reasons = [f"{n} × {reason}" for reason, n in sorted(counts.items()) if n and reason != STALE_CTI]
        if reasons:
            prefix = f"{source}: " if source else ""
            print(f"recension: {prefix}dropped or moved: {', '.join(reasons)}", file=sys.stderr)
