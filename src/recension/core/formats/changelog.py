"""The files of a changelog: numbered parts, each of which names the one before, and a mark.

A part has the rows of a micro-batch. It is one file, or several pieces that tasks have written, each with the
rows of its bucket. A file is complete when it appears and never changes; the mark (``_changelog.json``) names
the query, its last micro-batch and the files of the last part, and is replaced after they have appeared. So a
directory read at any time is a prefix of the stream without a gap: whoever reads the mark first, and then the
names, finds every part up to the one that the mark names. There may be one more: a part of one file counts,
pieces count only when the mark names them.

Pieces appear one after the other; the last has all CTIs. Before the first one appears the mark lists them
(``publishing``), so that whoever comes after a kill can go on.

A file's link, in its Parquet metadata, holds its number, what its micro-batch was made of, and number, bucket
and seal of each file of the part before. Micro-batches without rows have no part.
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
    is_plain_name,
    is_seal,
    require_regular,
    require_size,
    to_sealed_json,
)
from recension.core.formats.versions import Version

FORMAT: Final = "recension changelog 3"
# All parts are of one file: the next micro-batch goes on with it.
_UNDIVIDED: Final = "recension changelog 2"
# Without links: read as any directory of files, but no longer written.
OLD_FORMAT: Final = "recension changelog 1"
MARK: Final = "_changelog.json"
LINK: Final = "recension.part"
_NAME: Final = re.compile(r"part-([0-9]{12,18})(?:-([0-9]{4,9}))?\.parquet")


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A file of a part as another file names it: its number, its seal, and its bucket if it is a piece.

    ``at`` is when its micro-batch was planned, in microseconds since 1970; 0 if its writer kept no times.
    """

    number: int
    seal: str
    bucket: int | None = None
    at: int = 0

    @property
    def name(self) -> str:
        """The name of the file."""
        return part_name(self.number, self.bucket)


@dataclass(frozen=True, slots=True)
class Link:
    """What the metadata of a file holds."""

    number: int
    content: str
    previous: tuple[SealedPart, ...]

    def to_json(self) -> str:
        """The link as it is stored."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Publishing:
    """The pieces of the next part, by the names under which the tasks have left them, in order."""

    number: int
    content: str
    pieces: tuple[SealedPart, ...]
    partial: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a changelog has come: its last micro-batch and part, and what recent batches were made of."""

    query: str
    last: int = -1
    part: tuple[SealedPart, ...] = ()
    recent: tuple[tuple[int, str], ...] = ()
    publishing: Publishing | None = None
    format: str = FORMAT

    def to_json(self) -> str:
        """The mark as it is stored."""
        return to_sealed_json({**asdict(self), "format": FORMAT})


def part_name(number: int, bucket: int | None = None) -> str:
    """The name of the file with the rows of a micro-batch, or of its piece of a bucket."""
    return f"part-{number:012}.parquet" if bucket is None else f"part-{number:012}-{bucket:04}.parquet"


def part_path(path: Path, number: int) -> Path:
    """Where a changelog keeps the rows of a micro-batch that is in one file."""
    return path / part_name(number)


def read_mark(path: Path) -> Mark | None:
    """The mark of a changelog; none if the directory is no changelog."""
    file = path / MARK
    with format_errors(str(file)):
        if not lexists(file):
            return None
        require_regular(file)
        text = file.read_text(encoding="utf-8")
    try:
        stored = from_sealed_json(text, FORMAT, _UNDIVIDED)
        if stored.get("format") == OLD_FORMAT:
            return Mark(stored["query"], format=OLD_FORMAT)
        if stored.get("format") in (FORMAT, _UNDIVIDED):
            recent = tuple((int(number), str(content)) for number, content in stored["recent"])
            publishing = _parse_publishing(stored.get("publishing"))
            made = {"part": _parse_parts(stored["part"]), "recent": recent, "publishing": publishing}
            return Mark(**{**stored, **made})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        pass
    raise FormatError(f"damaged, or not the mark of a changelog of the format {FORMAT!r}", file=str(file))


def _parse_parts(stored: Any) -> tuple[SealedPart, ...]:
    """The files that make up a part; undivided changelogs name one or none."""
    entries = [] if stored is None else [stored] if isinstance(stored, dict) else stored
    return tuple(_parse_sealed_part(entry) for entry in entries)


def _parse_sealed_part(stored: dict[str, Any]) -> SealedPart:
    if not is_seal(stored["seal"]):
        raise ValueError(stored["seal"])
    bucket = stored.get("bucket")
    bucket = None if bucket is None else int(bucket)
    return SealedPart(int(stored["number"]), stored["seal"], bucket, int(stored.get("at", 0)))


def _parse_publishing(stored: Any) -> Publishing | None:
    if stored is None:
        return None
    pieces, partial = _parse_parts(stored["pieces"]), tuple(stored["partial"])
    if len(pieces) != len(partial) or not all(map(is_plain_name, partial)):
        raise ValueError(stored)
    return Publishing(int(stored["number"]), str(stored["content"]), pieces, partial)


@dataclass(frozen=True, slots=True)
class PartFile:
    """A part as it is on the disk; its seal, and when it was published, if another file says so."""

    path: Path
    link: Link
    seal: str = ""
    at: int = 0


def parts_of_version(path: Path, parts: list[PartFile], mark: Mark, version: Version) -> list[PartFile]:
    """The parts of a version; one without any is refused."""
    if version.is_newest:
        return parts
    # A part that nobody names yet gets its time when the mark counts it.
    counted = [part for part in parts if part.seal]
    if version.number is not None:
        if version.number > mark.last + 1:
            reason = f"there is no version {version.number} yet: the last is {mark.last + 1}"
            raise FormatError(reason, file=str(path))
        chosen = [part for part in counted if part.link.number < version.number]
    else:
        require_times(counted)
        chosen = [part for part in counted if part.at <= (version.as_of or 0)]
    if not chosen:
        raise FormatError("nothing was written yet to that version", file=str(path))
    return chosen


def parts_with_times(path: Path, mark: Mark, version: Version) -> list[PartFile]:
    """The parts of a version whose times are known: all that the mark counts."""
    counted = [part for part in changelog_parts(path, mark) if part.seal]
    if not counted:
        raise FormatError("a changelog to which nothing was written yet", file=str(path))
    require_times(counted)
    return parts_of_version(path, counted, mark, version)


def require_times(parts: list[PartFile]) -> None:
    """Refuse a changelog of which nobody knows when it was written."""
    for part in parts:
        if not part.at:
            reason = "written by an earlier release, which kept no times: name a version"
            raise FormatError(reason, file=str(part.path))


def changelog_parts(path: Path, mark: Mark) -> list[PartFile]:
    """The files of all parts, in order; an error that names the first one missing, foreign or exchanged.

    The mark must have been read before.
    """
    with format_errors(str(path)):
        names = sorted(f.name for f in path.iterdir() if f.name[0] not in "_.")
    links = {name: _link_of(path, name) for name in _leave_out_publishing(names, mark)}
    _require_chain(path, links, mark.part)
    sealed = [part for link in links.values() for part in link.previous]
    named = {part.name: part for part in (*sealed, *mark.part)}
    parts = [
        PartFile(path / name, link, named[name].seal, named[name].at)
        if name in named
        else PartFile(path / name, link)
        for name, link in links.items()
    ]
    # From the end: a part can be trusted with the seal of the one before only if its own seal is right.
    for part in reversed(parts):
        require_size(part.path, part.seal)
    return parts


def _leave_out_publishing(names: list[str], mark: Mark) -> list[str]:
    """The names up to the first piece of a micro-batch that the mark does not count yet."""
    named = [(name, _NAME.fullmatch(name)) for name in names]
    later = [int(found[1]) for _, found in named if found and found[2] and int(found[1]) > mark.last]
    return [name for name, found in named if not later or not found or int(found[1]) < min(later)]


def _require_chain(path: Path, links: dict[str, Link], last: tuple[SealedPart, ...]) -> None:
    """The files of each part follow those of the one before it, and the mark's are among them."""
    there: dict[int, set[str]] = {}
    for name, link in links.items():
        there.setdefault(link.number, set()).add(name)
    before: set[str] = set()
    for number, names in there.items():
        for name in sorted(names):
            _require_files(path, {part.name for part in links[name].previous}, before, set(links))
        before = there[number]
    if last:
        _require_files(path, {part.name for part in last}, there.get(last[0].number, set()), set(links))


def _require_files(path: Path, expected: set[str], there: set[str], known: set[str]) -> None:
    if missing := expected - known:
        raise _broken_error(path, f"{min(missing)} is missing")
    if foreign := expected ^ there:
        raise _broken_error(path, f"{min(foreign)} does not belong to it")


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
        return Link(int(said["number"]), str(said["content"]), _parse_parts(said["previous"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
