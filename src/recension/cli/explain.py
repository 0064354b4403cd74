"""``recension explain``: what a query will do, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from recension.cli.query_file import load_query
from recension.cli.root import app


@app.command()
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY.py[:name]", help="A file that defines a stream.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """The plan of a query as it will run: columns, known properties, chosen variants, fragments on Spark."""
    stream = load_query(query)
    if as_json:
        print(stream.explain("json"), end="")
        return
    print(stream.explain(), "On Spark, as a stream:", stream.fragments(), sep="\n", end="")
