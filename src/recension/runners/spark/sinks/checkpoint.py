"""A checkpoint's folder says which query it is of: another is refused before anything runs.

The state would refuse it later, and Spark perhaps before that, in words that do not help.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Final

from recension.core.errors import FormatError
from recension.runners.spark.sinks.checkpoint_files import CheckpointFiles, LocalFiles
from recension.runners.spark.sinks.durable import publish_text, writing
from recension.runners.spark.sinks.place import is_local, local_path
from recension.runners.spark.stream.identity import require_same

NAME: Final = "recension.json"


def require_owner(files: CheckpointFiles, owner: str) -> None:
    """Refuse a checkpoint with which another query has finished a micro-batch."""
    made_by = files.text(NAME) if is_begun(files) else None
    if made_by is not None:
        with _understood():
            require_same(made_by, owner)


def shards_of(files: CheckpointFiles) -> int | None:
    """The number of shards with which a query has finished a micro-batch; none if it is new."""
    made_by = files.text(NAME) if is_begun(files) else None
    if made_by is None:
        return None
    with _understood():
        return int(json.loads(made_by)["shards"])


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise FormatError(
            f"the checkpoint's {NAME} is damaged: restore checkpoint and tables from one backup, or remove "
            "that file, since the state says as well whose it is"
        ) from None


def claim(checkpoint: str | PathLike[str], owner: str) -> None:
    """Note whose the folder is; refuse one with which another query has finished a micro-batch."""
    if not is_local(checkpoint):
        return
    folder = local_path(checkpoint)
    require_owner(LocalFiles(folder), owner)
    if not is_begun(LocalFiles(folder)):
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            publish_text(folder / NAME, owner)


def is_begun(files: CheckpointFiles) -> bool:
    """Has a query finished a micro-batch with this checkpoint?"""
    return any(name.isdigit() for name in files.names("commits"))


def query_of(files: CheckpointFiles) -> str | None:
    """The query that Spark has named in a checkpoint; none if it is new."""
    text = files.text("metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        raise FormatError(
            "the file 'metadata' of the checkpoint is damaged: restore checkpoint and tables from one backup"
        ) from None
