"""Ways to damage a file, or to fill it with values that nobody expects. All follow from a seed number."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from typing import Final

from tests.fuzz.hostile import CSV_CELLS, JSON_NAMES, JSON_VALUES, LINE_ENDS, NUMBERS

Random = random.Random
Mutation = Callable[[bytes, Random], bytes]


def flipped(data: bytes, random_: Random) -> bytes:
    """A few bits the other way round."""
    copy = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 5, 20))):
        copy[random_.randrange(len(copy))] ^= 1 << random_.randrange(8)
    return bytes(copy)


def overwritten(data: bytes, random_: Random) -> bytes:
    """A few bytes replaced by others."""
    copy = bytearray(data)
    for _ in range(random_.choice((1, 1, 3))):
        copy[_end_heavy(len(copy), random_)] = random_.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256))
        )
    return bytes(copy)


def renumbered(data: bytes, random_: Random) -> bytes:
    """An aligned machine word replaced by a number that is at some edge: a length, an offset, a count."""
    form = random_.choice(("<i", "<q", "<h"))
    width = struct.calcsize(form)
    if len(data) < width:
        return data
    copy = bytearray(data)
    at = _end_heavy(len(data) - width + 1, random_) // 2 * 2
    at = min(at, len(data) - width)
    old: int = struct.unpack_from(form, copy, at)[0]
    new = random_.choice((*NUMBERS, old + 1, old - 1, old * 2, -old, old + 8))
    limit = 1 << (8 * width)
    struct.pack_into(form, copy, at, (new + limit // 2) % limit - limit // 2)
    return bytes(copy)


def words_swapped(data: bytes, random_: Random) -> bytes:
    """Two words next to each other change places: offsets that go backwards."""
    width = random_.choice((4, 8, 16))
    if len(data) < 2 * width:
        return data
    at = random_.randrange(0, len(data) - 2 * width + 1) // 4 * 4
    return data[:at] + data[at + width : at + 2 * width] + data[at : at + width] + data[at + 2 * width :]


def truncated(data: bytes, random_: Random) -> bytes:
    """Cut off at the end, or at the beginning."""
    at = random_.randrange(len(data) + 1)
    return data[:at] if random_.random() < 0.8 else data[at:]


def doubled(data: bytes, random_: Random) -> bytes:
    """Something after the end: the whole once more, or a part of it."""
    return data + data[: random_.choice((1, 8, len(data)))]


def blocks_moved(data: bytes, random_: Random) -> bytes:
    """A block taken out, repeated, or put elsewhere."""
    a, b = sorted(random_.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + random_.choice((1, 8, 64, 500)))
    block, to = data[a:b], random_.randrange(len(data) + 1)
    way = random_.randrange(4)
    if way == 0:
        return data[:a] + data[b:]
    if way == 1:
        return data[:a] + block * random_.choice((2, 2, 50)) + data[b:]
    if way == 2:
        return data[:to] + block + data[to:]
    return data[:to] + block + data[to + len(block) :]


def zeroed(data: bytes, random_: Random) -> bytes:
    """A stretch of one byte."""
    a = random_.randrange(len(data))
    size = random_.choice((2, 8, 64))
    return data[:a] + random_.choice((b"\0", b"\xff", b"{", b'"')) * size + data[a + size :]


def json_token(data: bytes, random_: Random) -> bytes:
    """A name or a value of one object replaced; a name given twice; a line that is something else."""
    lines = data.split(b"\n")
    at = random_.randrange(len(lines))
    parts = lines[at].split(b", ")
    i = random_.randrange(len(parts))
    name, colon, value = parts[i].partition(b": ")
    way = random_.randrange(6)
    if way == 0:
        lines[at] = random_.choice(JSON_VALUES)
    elif way == 1:
        parts[i] = random_.choice(JSON_NAMES) + colon + value
    elif way == 2:
        parts.insert(i, random_.choice(JSON_NAMES) + b": " + random_.choice(JSON_VALUES))
    else:
        tail = b"}" if i == len(parts) - 1 else b""
        parts[i] = name + colon + random_.choice(JSON_VALUES) + tail
    if way:
        lines[at] = b", ".join(parts)
    return b"\n".join(lines)


def json_everywhere(data: bytes, random_: Random) -> bytes:
    """One name gets another value, or another name, in every row."""
    names = [part.split(b'"')[1] for part in data.split(b"\n")[0].split(b", ") if part.count(b'"') > 1]
    if not names:
        return data
    name = b'"' + random_.choice(names) + b'"'
    if random_.random() < 0.3:
        return data.replace(name, random_.choice(JSON_NAMES))
    return data.replace(
        name + b": ", name + b": " + random_.choice((b"-", b"1", b'"', b"[", b"1e", b'{"x":'))
    )


def csv_cell(data: bytes, random_: Random) -> bytes:
    """One cell replaced, added or taken away, the header's among them."""
    lines = data.split(b"\n")
    at = random_.choice((0, random_.randrange(len(lines))))
    cells = lines[at].split(b",")
    i = random_.randrange(len(cells))
    way = random_.randrange(5)
    if way == 0:
        del cells[i]
    elif way == 1:
        cells.insert(i, random_.choice(CSV_CELLS))
    else:
        cells[i] = random_.choice(CSV_CELLS)
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


def line_ends(data: bytes, random_: Random) -> bytes:
    """Other line ends, in one place or all over; a mark of byte order in front."""
    if random_.random() < 0.2:
        return random_.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\n\n", b" ")) + data
    return data.replace(b"\n", random_.choice(LINE_ENDS), random_.choice((1, -1)))


def _end_heavy(size: int, random_: Random) -> int:
    """A place in the file, more often near its ends: that is where formats keep what describes the rest."""
    way = random_.random()
    if way < 0.3:
        return max(0, size - 1 - random_.randrange(min(size, 700)))
    return random_.randrange(min(size, 700)) if way < 0.5 else random_.randrange(size)


_BYTES: Final = (flipped, overwritten, truncated, doubled, blocks_moved, zeroed)
_BINARY: Final = (*_BYTES, renumbered, renumbered, renumbered, words_swapped)
_MUTATIONS: Final[dict[str, tuple[Mutation, ...]]] = {
    "jsonl": (*_BYTES, json_token, json_token, json_token, json_everywhere, line_ends),
    "csv": (*_BYTES, csv_cell, csv_cell, csv_cell, csv_cell, line_ends),
    "parquet": _BINARY,
    "arrow": _BINARY,
}


def mutated(data: bytes, suffix: str, random_: Random) -> tuple[bytes, str]:
    """A file with one to three things done to it, and how its name ends."""
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        data = random_.choice(_MUTATIONS[suffix])(data, random_) or b"\n"
    if suffix in ("jsonl", "csv") and random_.random() < 0.1:
        packed = gzip.compress(data, 1, mtime=0)
        if random_.random() < 0.5:
            packed = random_.choice(_BYTES)(packed, random_) or b"\x1f"
        return packed, f"{suffix}.gz"
    return data, suffix
