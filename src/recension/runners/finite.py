"""Queries over finite inputs: taken in turn, a batch from each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from recension.core import wall_clock
from recension.core.errors import RecensionError
from recension.core.formats.reader import StreamReader
from recension.core.ticks import FOREVER
from recension.core.wall_clock import Clock
from recension.plan.node import Node, rebuild
from recension.plan.source import Source
from recension.runners.intake import Data, require_inputs, slices
from recension.runners.local import BATCH_SIZE, Session
from recension.runners.result import Reading, Result


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
    inputs = {
        name: data.in_columns(session.columns_of(name)) if isinstance(data, StreamReader) else data
        for name, data in inputs.items()
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
        _push_table(session, name, data)
        yield name
    pieces = {
        name: _push_slices(session, name, data, batch_size)
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


def _push_table(session: Session, name: str, data: Data) -> None:
    """Push a table, which is read once, and close it."""
    if isinstance(data, StreamReader):
        for _ in _push_slices(session, name, data, 0):
            pass
    else:
        session.push(name, data)
    if not session.is_closed(name):
        session.advance(name, FOREVER)


def _push_slices(session: Session, name: str, data: Data, size: int) -> Iterator[bool]:
    """Push one batch of an input each time it is asked."""
    if isinstance(data, StreamReader) and data.has_partitions:
        yield _push_placed(session, name, data)
        return
    if isinstance(data, StreamReader):
        session.adopt(name, data)  # a table without rows is a table all the same
        with session.add_advice_to_errors(name):
            for batch in data:
                session.push_checked(name, batch, data)
                yield True
        return
    if name in session.partitioned_sources:
        session.push(name, data)  # all partitions are known before a CTI counts
        yield True
        return
    for part in slices(data, size, name):
        session.push(name, part)
        yield True


def _push_placed(session: Session, name: str, reader: StreamReader) -> bool:
    """Push the files of a source with partitions at once: all are known before a CTI counts."""
    chunk = reader.read_placed()
    session.adopt(name, reader)
    with session.add_advice_to_errors(name), chunk.locate_errors(session.rows_seen(name)):
        session.push(name, chunk.batch, chunk.placement)
    session.adopt(name, reader)
    return True
