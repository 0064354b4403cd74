"""The files of a changelog: numbered parts, each of which names the one before, and a mark.

A part is complete when it appears and never changes; the mark (``_changelog.json``) names the query, its last
micro-batch and the last part, and is replaced after a part has appeared. So a directory read at any time is a
prefix of the stream without a gap: whoever reads the mark first, and then the names, finds every part up to
the one that the mark names, and perhaps one more.

A part's link, in the metadata of its Parquet file, holds its number, what its micro-batch was made of, and
the number and the seal of the part before. Micro-batches without rows have no part.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from os.path import lexists
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from recension.core.errors import FormatError
from recension.core.formats.files import (
    format_errors,
    from_sealed_json,
    is_seal,
    require_regular,
    require_size,
    to_sealed_json,
)

FORMAT: Final = "recension changelog 2"
# Without links: read as any directory of files, but no longer written.
OLD_FORMAT: Final = "recension changelog 1"
MARK: Final = "_changelog.json"
LINK: Final = "recension.part"
_NAME: Final = re.compile(r"part-([0-9]{12,18})\.parquet")


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A part as another file names it: its number and its seal."""

    number: int
    seal: str


@dataclass(frozen=True, slots=True)
class Link:
    """What a part's metadata holds."""

    number: int
    content: str
    previous: SealedPart | None

    def to_json(self) -> str:
        """The link as it is stored."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a changelog has come: its last micro-batch and part, and what recent batches were made of."""

    query: str
    last: int = -1
    part: SealedPart | None = None
    recent: tuple[tuple[int, str], ...] = ()
    format: str = FORMAT

    def to_json(self) -> str:
        """The mark as it is stored."""
        return to_sealed_json(asdict(self))


def part_path(path: Path, number: int) -> Path:
    """Where a changelog keeps the rows of a micro-batch."""
    return path / f"part-{number:012}.parquet"


def read_mark(path: Path) -> Mark | None:
    """The mark of a changelog; none if the directory is no changelog."""
    file = path / MARK
    with format_errors(str(file)):
        if not lexists(file):
            return None
        require_regular(file)
        text = file.read_text(encoding="utf-8")
    try:
        stored = from_sealed_json(text, FORMAT)
        if stored.get("format") == OLD_FORMAT:
            return Mark(stored["query"], format=OLD_FORMAT)
        if stored.get("format") == FORMAT:
            recent = tuple((int(number), str(content)) for number, content in stored["recent"])
            return Mark(**{**stored, "part": _parse_sealed_part(stored["part"]), "recent": recent})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        pass
    raise FormatError(f"damaged, or not the mark of a changelog of the format {FORMAT!r}", file=str(file))


def _parse_sealed_part(stored: Any) -> SealedPart | None:
    if stored is None:
        return None
    if not is_seal(stored["seal"]):
        raise ValueError(stored["seal"])
    return SealedPart(int(stored["number"]), stored["seal"])


@dataclass(frozen=True, slots=True)
class PartFile:
    """A part as it is on the disk, and its seal if another file names it."""

    path: Path
    link: Link
    seal: str = ""


def changelog_parts(path: Path, mark: Mark) -> list[PartFile]:
    """All parts, in order; an error that names the first one missing, foreign or exchanged.

    The mark must have been read before.
    """
    with format_errors(str(path)):
        names = sorted(f.name for f in path.iterdir() if f.name[0] not in "_.")
    links = [_link_of(path, name) for name in names]
    _require_chain(path, [link.number for link in links], [link.previous for link in links], mark.part)
    seals = {link.previous.number: link.previous.seal for link in links if link.previous}
    seals |= {mark.part.number: mark.part.seal} if mark.part else {}
    parts = [PartFile(part_path(path, link.number), link, seals.get(link.number, "")) for link in links]
    # From the end: a part can be trusted with the seal of the one before only if its own seal is right.
    for part in reversed(parts):
        require_size(part.path, part.seal)
    return parts


def _require_chain(
    path: Path, numbers: list[int], previous: list[SealedPart | None], last: SealedPart | None
) -> None:
    """Each part follows the one before it, and the mark's is among them."""
    for before, said in zip([None, *numbers], previous, strict=False):
        expected = said.number if said else None
        if before != expected:
            if expected is None or (before is not None and before > expected):
                raise _broken_error(path, f"{part_path(path, before or 0).name} does not belong to it")
            raise _missing_error(path, expected)
    if last is not None and last.number not in numbers:
        raise _missing_error(path, last.number)


def _missing_error(path: Path, number: int) -> FormatError:
    return _broken_error(path, f"{part_path(path, number).name} is missing")


def _broken_error(path: Path, how: str) -> FormatError:
    return FormatError(f"a changelog of which {how}; restore it from a backup", file=str(path))


def _link_of(path: Path, name: str) -> Link:
    named = _NAME.fullmatch(name)
    link = read_link(path / name) if named else None
    if named is None or link is None or link.number != int(named[1]):
        raise _broken_error(path, f"{name} is not a part")
    return link


def read_link(file: Path) -> Link | None:
    """The link of a part; none if the file is no part."""
    require_regular(file)
    with format_errors(str(file)):
        stored = (pq.read_metadata(file, memory_map=True).metadata or {}).get(LINK.encode())
    try:
        said = json.loads(stored or "")
        return Link(int(said["number"]), str(said["content"]), _parse_sealed_part(said["previous"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
