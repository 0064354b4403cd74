"""The one line that matters in what Spark says of a failure."""

from __future__ import annotations

import re

from recension.core.errors import RecensionError

# How Python writes one of our errors at the end of a worker's traceback.
_OURS = re.compile(r"^(?:recension\.[\w.]*\.)?\w*Error: (.+)$", re.MULTILINE)
_PLACE = "recension.core.errors."


def told(why: Exception) -> RecensionError:
    """A failure of a running query as one line: ours if a task raised one, else the first of Spark's."""
    text = str(why)
    ours = [line for line in text.splitlines() if line.strip().startswith(_PLACE)]
    if ours:
        return RecensionError(ours[-1].strip().partition(": ")[2])
    causes = _OURS.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return RecensionError(causes[-1] if causes else (lines or [type(why).__name__])[0])
