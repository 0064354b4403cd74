"""The inputs of ``recension run``: a reader for every source of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa

from recension.core.errors import RecensionError, nearest
from recension.core.formats import StreamReader, open_stream
from recension.core.time_kind import TICKS, merge_kinds
from recension.core.validity import Policy
from recension.plan.nodes import Node, Source, walk
from recension.plan.rewrites.sharing import rebuild
from recension.plan.times import require_one_kind


def paths_of(given: Sequence[str]) -> dict[str, Path]:
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
    """The same query, all of whose sources do this with elements that may not be there."""

    def step(node: Node) -> Node:
        return replace(node, on_violation=policy) if isinstance(node, Source) else node

    (new,) = rebuild([plan], step)
    return new


def readers_of(
    paths: Mapping[str, Path], plan: Node, unchecked: set[str], batch_size: int
) -> dict[str, StreamReader]:
    """The streams at the paths, each read as its source says. Their files are opened, and not yet read."""
    known = {node.name: node for node in walk(plan) if isinstance(node, Source)}
    for name, path in paths.items():
        if name not in known:
            hint = nearest(name, list(known))
            raise RecensionError(
                f"--input {name}={path}: no source {name!r}{hint}; the query reads {', '.join(known)}"
            )
    if missing := [name for name in known if name not in paths]:
        raise RecensionError(f"no input for source {missing[0]!r}: add --input {missing[0]}=PATH")
    readers = {
        name: _reader(path, known[name], batch_size, check_orphans=name not in unchecked)
        for name, path in paths.items()
    }
    require_one_kind(plan, {name: reader.kind for name, reader in readers.items()})
    return readers


def _reader(path: Path, source: Source, batch_size: int, *, check_orphans: bool) -> StreamReader:
    return open_stream(
        path,
        schema=source.columns,
        start=source.start,
        end=source.end,
        on_violation=source.on_violation,
        check_orphans=check_orphans,
        batch_size=batch_size,
    )


def time_type_of(readers: Mapping[str, StreamReader]) -> pa.DataType:
    """The type of the times of all inputs, which are of one kind."""
    found = reduce(merge_kinds, (reader.kind for reader in readers.values()), None)
    return TICKS if found is None else found
