"""Memory for state, of which only so much stays resident: what is beyond lies in files.

Stores get the memory of their long arrays here. Without a pool that is plain memory. A pool gives plain
memory up to half of its limit; what comes then is room in files that are mapped into memory. The system
reads a page of them when it is touched, and writes it back when it needs the room. After a step `trim` gives
pages back until the rest is below the limit.

What always holds:

    files       have no name: a process that is killed leaves nothing behind;
    room        is reserved on the disk before it is written to: a full disk is an error in `allocate`, not a
                crash when a page is written;
    pieces      are given back when the last array over them is gone, whoever holds it. Room is used again for
                pieces of the same size class; a file without pieces goes.

A session's pool is in use while the session works (`MemoryPool.use`); sessions share nothing.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import tempfile
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from recension.core.errors import RecensionError

Array: TypeAlias = npt.NDArray[Any]

LEAST_LIMIT: Final = 16 * 10**6
_LEAST_PIECE: Final = 4096
_WINDOW: Final = 16 << 20  # what is given back at once
_SHORTEST_FILE, _LONGEST_FILE = 16 << 20, 1 << 30
LONGEST_COPY: Final = 1 << 30  # text of more than 2 GiB does not fit into one Arrow array
_SHARE: Final = 16  # looking at pages and giving them back takes at most one part of so many of the time
ALIGNED: Final = 64
_UNITS: Final = {"": 1, "B": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGT", 1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}IB", 1024))
}

pool_in_use: ContextVar[MemoryPool | None] = ContextVar("recension_memory", default=None)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What a pool holds, in bytes."""

    limit: int
    resident_bytes: int
    """Plain memory, and pages of files that are in the memory of this process."""
    spilled_bytes: int
    """Room in files that state takes, with what is reserved for more."""


class _Piece(weakref.ref[Array]):
    """The memory of one array: where it is, and how long. ``file`` is -1 for plain memory."""

    __slots__ = ("file", "key", "size", "start")
    key: int
    file: int
    start: int
    size: int


class _File:
    """A file without a name, mapped into memory."""

    def __init__(self, directory: Path, size: int) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            self.mapping = mmap.mmap(file.fileno(), size)
        self.size, self.filled, self.pieces = size, 0, 0

    def count_resident(self) -> npt.NDArray[np.int64]:
        """How many bytes of each window are in the memory of this process; all, where nobody can tell."""
        pages = -(-self.size // mmap.PAGESIZE)
        first = np.frombuffer(self.mapping, np.uint8, 1).ctypes.data // mmap.PAGESIZE
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
                seen = np.frombuffer(os.pread(pagemap.fileno(), 8 * pages, 8 * first), np.int64) < 0
        except OSError:
            seen = np.ones(0, np.bool_)
        if len(seen) < pages:
            seen = np.ones(pages, np.bool_)
        starts = np.arange(0, pages, _WINDOW // mmap.PAGESIZE)
        return np.add.reduceat(seen, starts, dtype=np.int64) * mmap.PAGESIZE

    def release(self, window: int) -> None:
        """Let the pages of a window go; they come back when they are touched."""
        start = window * _WINDOW
        self.mapping.madvise(mmap.MADV_DONTNEED, start, min(_WINDOW, self.size - start))


class MemoryPool:
    """The memory of a session or a shard: about ``limit`` bytes of it are resident."""

    def __init__(self, limit: int, directory: Path, least_piece: int = _LEAST_PIECE) -> None:
        self._limit, self._directory, self.least_piece = limit, directory, least_piece
        self._pieces: dict[int, _Piece] = {}
        self._dead: deque[_Piece] = deque()
        self._files: dict[int, _File] = {}
        self._file_number = self._open_file = -1
        self._free: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._plain = self._spilled = self._resident = self._hand = 0
        self._next_look, self._is_warned = -math.inf, False

    @contextmanager
    def use(self) -> Iterator[None]:
        """Stores that work in here get their memory from this pool."""
        token = pool_in_use.set(self)
        try:
            yield
        finally:
            pool_in_use.reset(token)
            self.trim()

    @property
    def longest_copy(self) -> int:
        """How many bytes a store may copy at once."""
        return min(LONGEST_COPY, max(self._limit // 8, 1 << 20))

    def measure(self) -> MemoryUse:
        """What it holds, after pages were given back if too many were resident."""
        self._take_back()
        self._trim_now()
        return MemoryUse(self._limit, self._plain + self._resident, self._spilled)

    def take_warning(self) -> str | None:
        """What to say when state begins to lie in files; it is given once."""
        if self._is_warned or not self._files:
            return None
        self._is_warned = True
        return (
            f"state has outgrown half of its memory of {self._limit / 1e6:,.0f} MB: what comes is kept in "
            f"files in {self._directory}, and work on what is not in memory takes longer"
        )

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        """Room for so many bytes, not set to anything."""
        self._take_back()
        if size < self.least_piece:
            return np.empty(size, np.uint8)
        if 2 * (self._plain + size) <= self._limit:
            return self._register(np.empty(size, np.uint8), -1, 0, size)
        room = _round_up(size)
        number, start = self._find_room(room)
        mapped = np.frombuffer(self._files[number].mapping, np.uint8, size, start)
        return self._register(mapped, number, start, room)

    def _register(
        self, array: npt.NDArray[np.uint8], file: int, start: int, size: int
    ) -> npt.NDArray[np.uint8]:
        # Every view of it has it as its base, so that it lives as long as they do.
        piece = _Piece(array, self._dead.append)
        piece.key, piece.file, piece.start, piece.size = id(array), file, start, size
        self._pieces[piece.key] = piece
        self._count(piece, 1)
        return array

    def _count(self, piece: _Piece, sign: int) -> None:
        if piece.file < 0:
            self._plain += sign * piece.size
        else:
            self._spilled += sign * piece.size
            self._files[piece.file].pieces += sign

    def _take_back(self) -> None:
        """What nobody holds any more; another thread may just have let go of it."""
        while self._dead:
            piece = self._dead.popleft()
            if self._pieces.get(piece.key) is piece:  # else another array has its place in memory by now
                del self._pieces[piece.key]
            self._count(piece, -1)
            if piece.file >= 0:
                self._free[piece.size].append((piece.file, piece.start))
                if not self._files[piece.file].pieces and piece.file != self._open_file:
                    del self._files[piece.file]

    def _find_room(self, size: int) -> tuple[int, int]:
        free = self._free[size]
        while free:
            number, start = free.pop()
            if number in self._files:
                return number, start
        usual = min(max(self._mapped_bytes() // 8, _SHORTEST_FILE), _LONGEST_FILE)
        if 2 * size > usual:
            return self._add_file(size), 0
        file = self._files.get(self._open_file)
        if file is None or file.filled + size > file.size:
            self._open_file = self._add_file(usual)
            file = self._files[self._open_file]
        start, file.filled = file.filled, file.filled + size
        return self._open_file, start

    def _add_file(self, size: int) -> int:
        try:
            file = _File(self._directory, size)
        except OSError as why:
            raise RecensionError(
                f"state cannot be written to the spill directory {self._directory} ({size / 1e6:,.0f} MB "
                "more): "
                f"{why.strerror or why}; make room there, name another with spill=DIR, or give more memory"
            ) from None
        self._file_number += 1
        self._files[self._file_number] = file
        return self._file_number

    def _mapped_bytes(self) -> int:
        return sum(file.size for file in self._files.values())

    def is_kept(self, array: Array) -> bool:
        """Whether an array is in the pool's memory already, or too short for it."""
        self._take_back()
        return array.nbytes < self.least_piece or id(array.base) in self._pieces

    def trim(self) -> None:
        """Give pages back if too many are resident, as far as there is time to look."""
        self._take_back()
        began = time.monotonic()
        if began >= self._next_look and self._plain + self._mapped_bytes() > self._limit:
            self._trim_now()
            now = time.monotonic()
            self._next_look = now + _SHARE * (now - began)

    def _trim_now(self) -> None:
        """The pages that were not given back for longest go first."""
        windows = [
            (file, window, count)
            for file in self._files.values()
            for window, count in enumerate(file.count_resident().tolist())
        ]
        self._resident = sum(count for _, _, count in windows)
        if self._plain + self._resident > self._limit:
            self._release(windows)

    def _release(self, windows: list[tuple[_File, int, int]]) -> None:
        """A quarter more than needed, so that this is seldom."""
        enough = max(0, 3 * self._limit // 4 - self._plain)
        for step in range(len(windows)):
            file, window, count = windows[(self._hand + step) % len(windows)]
            if count:
                file.release(window)
                self._resident -= count
            if self._resident <= enough:
                self._hand = (self._hand + step + 1) % len(windows)
                return


def _round_up(size: int) -> int:
    """To a size class: at most an eighth more, and a multiple of what arrays are aligned to."""
    grain = max(ALIGNED, 1 << max(0, size.bit_length() - 4))
    return -(-size // grain) * grain


def open_pool(memory: str | int | None, spill: str | os.PathLike[str] | None = None) -> MemoryPool | None:
    """The pool that a user asked for: a limit, and the directory for what is beyond."""
    if memory is None:
        if spill is not None:
            raise RecensionError('spill= needs memory= as well, such as memory="512MB"')
        return None
    limit = require_limit(memory)
    directory = Path(tempfile.gettempdir() if spill is None else spill)
    _require_directory(directory)
    return MemoryPool(limit, directory)


def require_limit(memory: str | int) -> int:
    """A bound on memory in bytes; one that is too low, or that cannot be kept here, is refused."""
    if not hasattr(os, "posix_fallocate"):
        raise RecensionError("memory: a bound on memory needs Linux")
    if (limit := parse_size(memory)) < LEAST_LIMIT:
        raise RecensionError(f"memory is at least {LEAST_LIMIT // 10**6}MB, not {memory!r}")
    return limit


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise RecensionError(f"spill: there is no directory {directory}")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RecensionError(f"spill: {directory} is not writable")
    if _is_in_memory(directory):
        raise RecensionError(f"spill: {directory} is itself in memory (tmpfs): name a directory on a disk")


def _is_in_memory(directory: Path) -> bool:
    device = directory.stat().st_dev
    own = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == own]
    return kinds[:1] in (["tmpfs"], ["ramfs"])


def parse_size(given: str | int) -> int:
    """A number of bytes, from text such as ``512MB`` (millions) or ``2GiB`` (powers of 1024).

    >>> parse_size("512MB"), parse_size("1.5 GiB"), parse_size(4096)
    (512000000, 1610612736, 4096)
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", given) if isinstance(given, str) else None
    if found is None or found[2].upper() not in _UNITS:
        raise RecensionError(f'a size of memory is written as "512MB" or "2GiB", not {given!r}')
    return int(float(found[1]) * _UNITS[found[2].upper()])
