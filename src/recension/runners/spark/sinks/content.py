"""What a micro-batch is made of: the query, and the input from the last offsets to these.

Spark writes the offsets of a micro-batch into its checkpoint before it runs, and takes them from there when
it runs again. For Kafka and most sources they say all. A file source only counts (``{"logOffset":3}``); which
files that were is in a log of its own, ``sources/I/3``, and older entries in a compacted one, ``9.compact``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final

from recension.core.errors import FormatError
from recension.core.formats.files import digest_of
from recension.runners.spark.sinks.checkpoint_files import CheckpointFiles

# The lines of a log of offsets: its version, the settings and the time of the micro-batch, then the sources.
_FIRST_SOURCE: Final = 2
# A file source counts once or twice a micro-batch.
_MOST: Final = 10_000


class InputLog:
    """What the micro-batches of one query were made of, as its checkpoint says.

    ``sources`` tells for each line of offsets the number of its source: one that a plan reads twice has
    two lines and one log.
    """

    def __init__(self, files: CheckpointFiles, query: str, sources: Sequence[int]) -> None:
        self._files, self._query, self._sources = files, query, sources
        self._last: tuple[int, str] | None = None

    def contents(self, number: int) -> tuple[str, str | None]:
        """What a micro-batch is made of, and the same of the one before it if the checkpoint still knows."""
        before = self._before(number)
        self._last = number, self._content(number)
        return self._last[1], before

    def _before(self, number: int) -> str | None:
        if self._last is not None and self._last[0] == number - 1:
            return self._last[1]
        # Two sets of offsets enclose it; of the first micro-batch, one.
        needed = [n for n in (number - 2, number - 1) if n >= 0]
        is_known = number > 0 and all(self._files.text(f"offsets/{n}") is not None for n in needed)
        return self._content(number - 1) if is_known else None

    def _content(self, number: int) -> str:
        until = self._offsets(number)
        since = self._offsets(number - 1) if number else []
        taken = [
            entry
            for line, offset in enumerate(until)
            for entry in self._entries(line, since[line] if line < len(since) else None, offset)
        ]
        return digest_of(self._query, str(number), *until, *taken)

    def _offsets(self, number: int) -> list[str]:
        text = self._files.text(f"offsets/{number}")
        if text is None:
            raise FormatError(f"the checkpoint lacks the offsets of micro-batch {number}")
        return text.splitlines()[_FIRST_SOURCE:]

    def _entries(self, line: int, since: str | None, until: str) -> list[str]:
        """The files that a file source took from one offset to another."""
        first, last = _log_offset(since), _log_offset(until)
        if last is None or line >= len(self._sources):
            return []
        numbers = range(-1 if first is None else first, last + 1)[1:]
        folder = f"sources/{self._sources[line]}"
        if len(numbers) > _MOST:
            raise FormatError(f"the checkpoint's offsets of {folder} go from {first} to {last}: damaged")
        return [entry for number in numbers for entry in self._logged(folder, number)]

    def _logged(self, folder: str, number: int) -> list[str]:
        text = self._files.text(f"{folder}/{number}")
        if text is None:
            compacted = [
                int(name.stem) for name in map(PurePath, self._files.names(folder)) if _is_compact(name)
            ]
            later = min((n for n in compacted if n >= number), default=None)
            text = None if later is None else self._files.text(f"{folder}/{later}.compact")
        if text is None:
            return []
        # Most lines of a compacted log are of other numbers: only those that may be wanted are parsed.
        lines = (line for line in text.splitlines()[1:] if f'"batchId":{number}' in line)
        return sorted(entry for line in lines for entry in _entry(line, number))


def _is_compact(name: PurePath) -> bool:
    return name.suffix == ".compact" and name.stem.isdigit()


def _log_offset(offset: str | None) -> int | None:
    """How far a file source has counted; none for other sources."""
    stored = _parsed(offset) if offset is not None else None
    counted = stored.get("logOffset") if isinstance(stored, dict) and len(stored) == 1 else None
    return counted if isinstance(counted, int) else None


def _entry(line: str, number: int) -> list[str]:
    stored = _parsed(line)
    if not isinstance(stored, dict) or stored.get("batchId") != number:
        return []
    return [f"{stored.get('path')} {stored.get('timestamp')}"]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def source_numbers(execution: Any) -> list[int]:
    """For each line of offsets the number of its source, as Spark's running query has them.

    Spark numbers its sources in the order of the plan, each once, and writes a line each time.
    """
    sources = execution.sources()
    identity = [_identity(sources.apply(i)) for i in range(sources.size())]
    found = {key: i for i, key in enumerate(dict.fromkeys(identity))}
    return [found[key] for key in identity]


def _identity(source: Any) -> str:
    # Two streams of Spark's are equal only if they are one: Java's own `equals` and `hashCode`.
    return f"{source.getClass().getName()}@{source.hashCode()}"
