"""``recension inspect``: a recording, a query over files, a stream or a changelog, as a page."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Container
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recension.cli.query_file import load_query
from recension.cli.root import app
from recension.core.errors import RecensionError
from recension.core.formats.files import format_errors

if TYPE_CHECKING:
    from recension.inspector.questions import Questions


@app.command()
def inspect(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|QUERY.py[:name]|PATH",
            help="A recording, a query to run and record, a stream, or a changelog of Spark.",
        ),
    ] = None,
    spark_checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The checkpoint of a query on Spark: its micro-batches, and what it recorded or wrote.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=PATH", help="A source of the query and its stream."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="QUERY.py[:name]", help="The query of a recording, to explain answers."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR|PATH", help="Another recording or stream, shown over the first."),
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Elements per step; by default one, or more so that there are at most 2,000 steps."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write the page to one file, and serve nothing.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="How many elements to show at most; the last ones are shown.")
    ] = 200_000,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the server; 0 chooses a free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Look at streams: what came when, what was revised, what is final, and why.

    The page shows the plan, every recorded edge as a timeline, and any moment of arrival. It is served on
    this machine only, until Ctrl-C, or written to one file with --export. A query is first run over its
    inputs and recorded; its file is Python and is executed.
    """
    # The engine is loaded when it is used.
    from recension.cli.inspected import open_checkpoint, open_recording
    from recension.inspector.export import page_in_one_file
    from recension.inspector.page_data import Shown
    from recension.inspector.questions import Questions

    with ExitStack() as stack:
        if spark_checkpoint is not None:
            opened = open_checkpoint(spark_checkpoint, target)
        elif target is not None:
            opened = open_recording(target, inputs or [], batch_size, close=close)
        else:
            raise RecensionError("name what to look at: a recording, a query, a stream or --spark-checkpoint")
        name = target or str(spark_checkpoint)
        found = {_name_of(name): stack.enter_context(opened)}
        plan = next(iter(found.values())).query if query is None else load_query(query).plan
        for other in beside or []:
            opened = open_recording(other, [], batch_size, close=close)
            found[_free_name(Path(other).stem, found)] = stack.enter_context(opened)
        shown = Shown(
            f"Recension: {Path(name).name}", [(called, one.read()) for called, one in found.items()], limit
        )
        questions = Questions(shown, [one.read for one in found.values()], plan)
        if export is not None:
            with format_errors(str(export)):
                export.write_text(page_in_one_file(questions.export({})), encoding="utf-8")
        else:
            _serve(questions, port, opens=browser)


def _name_of(target: str) -> str:
    return Path(target).name.removesuffix(".py") or target


def _free_name(name: str, taken: Container[str]) -> str:
    return next(free for n in count(1) if (free := name if n == 1 else f"{name} ({n})") not in taken)


def _serve(questions: Questions, port: int, *, opens: bool) -> None:
    from recension.inspector.server import InspectorServer

    with InspectorServer(questions.answers, port) as server:
        print(f"recension: the inspector is at {server.address} until Ctrl-C", file=sys.stderr, flush=True)
        if opens:
            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):  # the way to end it
            server.serve_forever()
