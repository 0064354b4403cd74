"""Which micro-batches a table has, and what each was made of: a number alone proves nothing.

Assumes     numbers without gaps, from 0 on.
Guarantees  a micro-batch is written once; another under a number that is there is refused, and so is one that
            follows another than the table's last.
State       what the last micro-batches were made of, as many as Spark's own checkpoint remembers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from recension.core.errors import RecensionError
from recension.runners.spark.sinks.micro_batch import MicroBatch

Recent: TypeAlias = tuple[tuple[int, str], ...]

_REMEMBERED: Final = 100
_REMEDY: Final = (
    "restore the table and the checkpoint from the same backup, or start with a new path and a new checkpoint"
)


def with_content(recent: Recent, batch: MicroBatch) -> Recent:
    """The same after one more micro-batch."""
    return (*recent, (batch.number, batch.content))[-_REMEMBERED:]


def is_next(table: Path, batch: MicroBatch, last: int, recent: Recent) -> bool:
    """Is it the next micro-batch? False if the table has it already; any other is refused."""
    if batch.number > last + 1:
        raise RecensionError(
            f"{table}: has {last + 1} micro-batches, and now comes number {batch.number}; "
            f"a table must see all that its query puts out: {_REMEDY}"
        )
    contents = dict(recent)
    if batch.number > last:
        if batch.before is not None and contents.get(last, batch.before) != batch.before:
            raise _other(table, last)
        return True
    if batch.number not in contents:
        raise RecensionError(
            f"{table}: has {last + 1} micro-batches, and now comes number {batch.number} again, longer ago "
            f"than it remembers: {_REMEDY}"
        )
    if contents[batch.number] != batch.content:
        raise _other(table, batch.number)
    return False


def require_same_part(table: Path, batch: MicroBatch, content: str) -> None:
    """The same for one of which only its own file knows, since the writer was killed then."""
    if content != batch.content:
        raise _other(table, batch.number)


def _other(table: Path, number: int) -> RecensionError:
    return RecensionError(
        f"{table}: its micro-batch {number} was made of other input than the checkpoint's, which was put "
        f"back to an earlier state, or is not this table's: {_REMEDY}"
    )
