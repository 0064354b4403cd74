"""The inputs of ``recension run``: a reader for every source of the query."""

from __future__ import annotations

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.formats import StreamReader, open_stream
from recension.plan.nodes import Node, Source, walk


def readers_of(given: list[str], plan: Node, unchecked: set[str], batch_size: int) -> dict[str, StreamReader]:
    """The streams given as ``NAME=PATH``, each read as its source says."""
    known = {node.name: node for node in walk(plan) if isinstance(node, Source)}
    readers: dict[str, StreamReader] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise RecensionError(f"--input {text}: write NAME=PATH")
        if name in readers:
            raise RecensionError(f"--input {text}: {name} was given already")
        if name not in known:
            raise RecensionError(f"--input {text}: no source {name!r}; the query reads {', '.join(known)}")
        readers[name] = _reader(path, known[name], batch_size, check_orphans=name not in unchecked)
    if missing := [name for name in known if name not in readers]:
        raise RecensionError(f"no input for source {missing[0]!r}: add --input {missing[0]}=PATH")
    return readers


def _reader(path: str, source: Source, batch_size: int, *, check_orphans: bool) -> StreamReader:
    return open_stream(
        path,
        schema=source.columns,
        start=source.start,
        end=source.end,
        on_violation=source.on_violation,
        check_orphans=check_orphans,
        batch_size=batch_size,
    )


def time_type_of(readers: dict[str, StreamReader]) -> pa.DataType:
    """Timestamps if any input has them."""
    kinds = [reader.time_type for reader in readers.values()]
    return next((kind for kind in kinds if pa.types.is_timestamp(kind)), kinds[0])
