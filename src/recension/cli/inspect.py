"""``recension inspect``: a recording, a query over files or a stream, as a page."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from math import ceil
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from recension.cli.inputs import open_inputs, parse_inputs, refuse_versions, report_dropped
from recension.cli.progress import show_progress
from recension.cli.query_file import load_query, split_query
from recension.cli.root import app
from recension.core.batch import concat
from recension.core.errors import RecensionError
from recension.core.formats import open_stream
from recension.core.formats.files import format_errors
from recension.core.formats.reader import MicroBatches, read_micro_batches
from recension.core.time_kind import KnownKind
from recension.inspector.export import page_in_one_file
from recension.inspector.page_data import LIMIT, Shown
from recension.inspector.questions import Questions
from recension.inspector.server import InspectorServer
from recension.plan.node import Node, walk
from recension.plan.source import Source
from recension.runners.finite import push_inputs
from recension.runners.local import Session
from recension.runners.recorder import MANIFEST
from recension.runners.recording import read_recording

# So many steps are enough to step through.
_STEPS: Final = 2_000


@app.command()
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="DIR|QUERY.py[:name]|PATH",
            help="A recording, a query to run and record, a stream, or a changelog of Spark.",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=PATH", help="A source of the query and its stream."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="QUERY.py[:name]", help="The query of a recording: answers can be explained."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR|PATH", help="Another recording or stream, to lay over the first."),
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Elements taken in a step; by default one, or so many that it is 2,000 steps."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write the page to one file, and serve nothing.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many elements are shown, the last ones.")] = LIMIT,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the server; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Look at streams: what came when, what was revised, what is final, and why.

    The page shows the plan, every recorded edge as a timeline, and any moment of arrival. It is served on the
    loopback only, until Ctrl-C, or written to one file with --export. A query is run over its inputs and
    recorded first; its file is Python and is executed.
    """
    with ExitStack() as stack:
        folder, plan = stack.enter_context(_record(target, inputs or [], batch_size, close=close))
        if query is not None:
            plan = load_query(query).plan
        others = [
            (Path(other).stem, stack.enter_context(_record(other, [], batch_size, close=close))[0])
            for other in beside or []
        ]
        shown = Shown(
            f"Recension: {Path(target).name}",
            [(_name_of(target), read_recording(folder))]
            + [(name, read_recording(path)) for name, path in others],
            limit,
        )
        questions = Questions(shown, [folder, *(path for _, path in others)], plan)
        if export is not None:
            with format_errors(str(export)):
                export.write_text(page_in_one_file(questions.export({})), encoding="utf-8")
        else:
            _serve(questions, port, opens=browser)


def _name_of(target: str) -> str:
    return Path(target).name.removesuffix(".py") or target


@contextmanager
def _record(
    target: str, inputs: Sequence[str], batch_size: int | None, *, close: bool
) -> Iterator[tuple[Path, Node | None]]:
    """The directory of a recording, made for the while if the target is none; and the query, if known."""
    is_query = split_query(target)[0].suffix == ".py"
    if inputs and not is_query:
        raise RecensionError(f"--input is for a query, and {target} is not one: queries are .py files")
    if (Path(target) / MANIFEST).is_file():
        yield Path(target), None
        return
    with TemporaryDirectory(prefix="recension-") as folder:
        made = Path(folder) / "recording"
        if not is_query and (log := read_micro_batches(target)) is not None:
            yield _record_changelog(made, Path(target).name, log), None
            return
        if is_query:
            plan, paths = load_query(target).plan, parse_inputs(inputs)
            refuse_versions(paths, plan)
        else:
            name = Path(target).stem
            plan, paths = Source(name, open_stream(Path(target)).schema), {name: Path(target)}
        yield _record_run(made, plan, paths, batch_size or _choose_size(plan, paths), close=close), plan


def _record_run(made: Path, plan: Node, paths: dict[str, Path], size: int, *, close: bool) -> Path:
    """Run a query over files and record all of it."""
    session = Session({"query": plan}, size, history_limit=0)
    readers = open_inputs(paths, plan, session.unchecked_sources, size)
    with session.record(made, "all"), show_progress("running") as meter:
        for taken, _ in enumerate(push_inputs(session, readers, batch_size=size, close=close), start=1):
            session.read()
            meter.say(f"running: {taken:,} batches read")
    report_dropped(session.counts())
    return made


def _record_changelog(made: Path, name: str, log: MicroBatches) -> Path:
    """What a query on Spark has written, a micro-batch a step, each at its time."""
    now = [0]
    times = KnownKind(log.time_type)
    session = Session({name: Source(name, log.schema)}, history_limit=0, clock=lambda: now[0], times=times)
    with session.record(made, "all"):
        for now[0], pieces in groupby(log.batches, key=itemgetter(0)):
            session.feed(name, concat([batch for _, batch in pieces]))
            session.read()
    return made


def _choose_size(plan: Node, paths: dict[str, Path]) -> int:
    """One element a step, or more where that would be too many steps."""
    unchecked = {node.name for node in walk(plan) if isinstance(node, Source)}
    readers = open_inputs(paths, plan, unchecked, 1 << 16)
    return ceil(max(1, sum(len(batch) for reader in readers.values() for batch in reader)) / _STEPS)


def _serve(questions: Questions, port: int, *, opens: bool) -> None:
    with InspectorServer(questions.answers, port) as server:
        print(f"recension: the inspector is at {server.address} until Ctrl-C", file=sys.stderr, flush=True)
        if opens:
            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):  # the way to end it
            server.serve_forever()
