"""``recension diff``: do two streams mean the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from recension.cli.root import FAILED, app
from recension.cli.sources import (
    EndOption,
    OnViolation,
    OnViolationOption,
    StartOption,
    elements_of,
    tell_counts,
)
from recension.core.difference import difference
from recension.core.errors import FormatError, SchemaError, TimeError
from recension.core.formats import StreamReader, open_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.time_kind import merge_kinds


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A stream or history: a file or a directory.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one, in any format.")],
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
) -> None:
    """Do two streams mean the same: are their histories equal, whatever way they came about?

    Exit code 0 if they are, 1 if not; then the first differences are shown, - for what only A has and +
    for what only B has. Numbers compare by value, so formats and widths may differ.
    """
    sides = [_opened(path, start, end, on_violation) for path in (a, b)]
    left, right = (_history(mine, other) for mine, other in (sides, sides[::-1]))
    try:
        merge_kinds(*(side.reader.kind for side in sides))  # times of two kinds cannot be compared
        found = difference(left, right)
    except (SchemaError, TimeError) as why:
        print(f"different: {why}")
        raise typer.Exit(FAILED) from None
    if not found:
        print(f"equivalent: {len(left):,} events")
        return
    print(f"different: {len(found.missing):,} events only in {a}, {len(found.unexpected):,} only in {b}")
    print("\n".join(str(found).splitlines()[1:]))
    raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two streams, and how to read it again in other types."""

    path: Path
    reader: StreamReader
    reopen: Callable[[pa.Schema], StreamReader]


def _opened(path: Path, start: str | None, end: str | None, on_violation: OnViolation) -> _Side:
    """A stream; the names of time columns are for whichever of the two needs them."""

    def read(schema: pa.Schema | None, times: tuple[str | None, str | None]) -> StreamReader:
        return open_stream(path, schema=schema, start=times[0], end=times[1], on_violation=on_violation.value)

    times = (start, end)
    if start or end:
        with suppress(FormatError):
            read(None, (None, None))
            times = (None, None)
    return _Side(path, read(None, times), lambda schema: read(schema, times))


def _history(mine: _Side, other: _Side) -> History:
    """The history of one side, in the types of the other where its own are only guesses."""
    schema = _told(mine.reader, other.reader)
    if schema is not None and schema != mine.reader.schema:
        # Values that do not fit those types differ; they are then shown in their own.
        with suppress(FormatError):
            return _reconstituted(mine.path, mine.reopen(schema))
    return _reconstituted(mine.path, mine.reader)


def _reconstituted(path: Path, reader: StreamReader) -> History:
    result = reconstitute(elements_of(reader, path), reader.schema)
    tell_counts({str(path): reader.counts})
    return replace(result, time_type=reader.time_type)


def _told(mine: StreamReader, other: StreamReader) -> pa.Schema | None:
    """The types that the other side knows better."""
    names, theirs = set(mine.schema.names), set(other.schema.names)
    if mine.is_typed or not (names == theirs or (mine.may_lack_columns and names < theirs)):
        return None
    own = dict(zip(mine.schema.names, mine.schema.types, strict=True))
    return pa.schema([pa.field(f.name, _told_type(mine, other, f, own.get(f.name))) for f in other.schema])


def _told_type(
    mine: StreamReader, other: StreamReader, theirs: pa.Field, own: pa.DataType | None
) -> pa.DataType:
    if other.is_typed or own is None:
        return theirs.type
    # Both are text, but JSON tells a text from a number or a date, which CSV cannot.
    knows_better = other.may_lack_columns and not mine.may_lack_columns and pa.types.is_string(theirs.type)
    return theirs.type if knows_better else own
