"""A checkpoint's folder says which query it is of: another is refused before anything runs.

The state would refuse it later, and Spark perhaps before that, in words that do not help.
"""

from __future__ import annotations

from os import PathLike
from typing import Final

from recension.runners.spark.sinks.durable import publish_text
from recension.runners.spark.sinks.place import is_local, local_path
from recension.runners.spark.stream.identity import require_same

NAME: Final = "recension.json"


def claim(checkpoint: str | PathLike[str], owner: str) -> None:
    """Note whose the folder is; refuse one in which another query has finished a micro-batch."""
    if not is_local(checkpoint):
        return
    folder = local_path(checkpoint)
    file = folder / NAME
    is_used = any((folder / "commits").glob("[0-9]*"))
    if is_used and file.exists():
        require_same(file.read_text(encoding="utf-8"), owner)
    elif not is_used:
        folder.mkdir(parents=True, exist_ok=True)
        publish_text(file, owner)
