"""A few transcripts for runners that take their time over each: `make soak` gives them all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recension.testing.transcripts import Transcript


def one_of_every_method(transcripts: Sequence[Transcript]) -> list[Transcript]:
    """As few as call every method that any calls: the next is always one with most of those still missing."""
    calls = {t.name: set(re.findall(r"\.(\w+)\(", str(t.query))) for t in transcripts}
    missing: set[str] = set().union(*calls.values())
    found: list[Transcript] = []
    while missing:
        found.append(max(transcripts, key=lambda t: len(calls[t.name] & missing)))
        missing -= calls[found[-1].name]
    return found
