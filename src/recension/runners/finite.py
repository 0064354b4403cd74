"""Queries over finite inputs: taken in turn, a batch from each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike

import pyarrow as pa

from recension.core import wall_clock
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.formats.reader import StreamFiles
from recension.core.formats.stream_files import row_order
from recension.core.ticks import FOREVER
from recension.core.wall_clock import Clock
from recension.gate.decode import Data, to_readable
from recension.gate.readings import Reading
from recension.plan.node import Node, rebuild
from recension.plan.source import Source, describe_unknown_source
from recension.runners.local import BATCH_SIZE, Session
from recension.runners.result import Result


def run(
    query: Node,
    inputs: Mapping[str, Data],
    *,
    batch_size: int = BATCH_SIZE,
    close: bool = False,
    clock: Clock = wall_clock.now,
    workers: int = 1,
) -> Result:
    """Run a query over finite inputs, taken in turn, a batch from each."""
    queries = {"query": without_idleness(query)}
    with Session(queries, batch_size, clock, history_limit=0, workers=workers).warn_of_meaning() as session:
        for _ in push_inputs(session, inputs, batch_size=batch_size, close=close):
            pass
        result = replace(session.read(), reading=Reading())
        # Asked for now: a result that still has to ask would keep the session, with all its state.
        _ = result.metrics
    return result


def without_idleness(query: Node) -> Node:
    """The same query, for inputs that are all there: how long one took to read says nothing of its feed."""

    def step(node: Node) -> Node:
        return replace(node, idle=None) if isinstance(node, Source) and node.idle is not None else node

    (new,) = rebuild([query], step)
    return new


def push_inputs(
    session: Session, inputs: Mapping[str, Data], *, batch_size: int = BATCH_SIZE, close: bool = False
) -> Iterator[str]:
    """Push finite inputs in turn, a batch from each; gives the name of the source after each push.

    An input that just ends is not closed (it may have died) unless ``close`` says so; a plain table is.
    """
    require_inputs(inputs, session.sources)
    files = {
        name: session.open_files(name, data, batch_size)
        for name, data in inputs.items()
        if is_files(data) and name not in session.tables
    }
    for name, data in inputs.items():
        if isinstance(data, Result) and not data.is_whole and name not in session.unchecked_sources:
            raise RecensionError(
                f"{name}: {data.reading} of a session is not its whole answer: give session.history(), or "
                "the results added up, first + second"
            )
    session.closes_inputs = close
    tables = {name: data for name, data in inputs.items() if name in session.tables}
    # First: what is joined with them need not wait.
    for name, data in tables.items():
        session.push(name, data)
        if not session.is_closed(name):
            session.advance(name, FOREVER)
        yield name
    pieces = {
        name: _push_pieces(session, name, files.get(name) or _pieces(session, name, data, batch_size))
        for name, data in inputs.items()
        if name not in tables
    }
    while pieces:
        for name in list(pieces):
            if not next(pieces[name], False):
                del pieces[name]
                if close or session.is_table(name):
                    session.advance(name, FOREVER)
            yield name


def _pieces(session: Session, name: str, data: Data, size: int) -> Iterable[Data]:
    """Data in batches; of a source with partitions in one: all are known before a CTI counts."""
    return [data] if name in session.partitioned_sources else slices(data, size, name)


def _push_pieces(session: Session, name: str, pieces: Iterable[Data]) -> Iterator[bool]:
    """Push one batch of an input each time it is asked."""
    for piece in pieces:
        session.push(name, piece)
        yield True


def is_files(data: Data) -> bool:
    """Are they files, opened or at a path?"""
    return isinstance(data, StreamFiles | str | PathLike)


def require_inputs(given: Collection[str], sources: Collection[str]) -> None:
    """Every source has an input, and every input a source."""
    for name in given:
        if name not in sources:
            raise RecensionError(describe_unknown_source(name, sources))
    for name in sources:
        if name not in given:
            raise RecensionError(f"no input for source {name!r}; the query reads {', '.join(sources)}")


def slices(data: Data, size: int, name: str | None = None) -> Iterator[Data]:
    """Data in parts of so many rows; one empty part of data that has none."""
    data = to_readable(data, name)
    if isinstance(data, pa.Table) and row_order(data, name) is not None:
        yield data  # as a whole, so that errors name the rows as they were given
        return
    for start in range(0, max(len(data), 1), size):
        end = min(start + size, len(data))
        yield (
            data.slice(start, size)
            if isinstance(data, pa.Table)
            else (data.slice(start, end) if isinstance(data, EventBatch) else data[start:end])
        )
