"""Damage to a directory of files: one accident at a time, drawn from a seed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

Accident = Callable[[random.Random, list[Path]], str]


def _delete(draw: random.Random, files: list[Path]) -> str:
    file = draw.choice(files)
    file.unlink()
    return f"deleted {file.name}"


def _truncate(draw: random.Random, files: list[Path]) -> str:
    file = draw.choice(files)
    size = draw.randrange(file.stat().st_size + 1)
    with file.open("r+b") as opened:
        opened.truncate(size)
    return f"cut {file.name} to {size} bytes"


def _flip(draw: random.Random, files: list[Path]) -> str:
    file = draw.choice(files)
    content = bytearray(file.read_bytes())
    if not content:
        return "nothing to flip"
    at = draw.randrange(len(content))
    content[at] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    return f"flipped a bit of byte {at} of {file.name}"


def _overwrite(draw: random.Random, files: list[Path]) -> str:
    file = draw.choice(files)
    content = bytearray(file.read_bytes())
    at = draw.randrange(len(content) + 1)
    content[at : at + draw.randrange(1, 64)] = draw.randbytes(draw.randrange(64))
    file.write_bytes(content)
    return f"wrote over {file.name} from byte {at} on"


def _exchange(draw: random.Random, files: list[Path]) -> str:
    a, b = draw.choice(files), draw.choice(files)
    contents = a.read_bytes(), b.read_bytes()
    a.write_bytes(contents[1])
    b.write_bytes(contents[0])
    return f"exchanged {a.name} and {b.name}"


def _copy(draw: random.Random, files: list[Path]) -> str:
    a, b = draw.choice(files), draw.choice(files)
    b.write_bytes(a.read_bytes())
    return f"copied {a.name} over {b.name}"


def _rename(draw: random.Random, files: list[Path]) -> str:
    file = draw.choice(files)
    digits = [i for i, letter in enumerate(file.name) if letter.isdigit()]
    at = draw.choice(digits) if digits else 0
    name = file.name[:at] + draw.choice("0123456789") + file.name[at + 1 :]
    shutil.move(file, file.with_name(name))
    return f"renamed {file.name} to {name}"


ACCIDENTS: list[Accident] = [_delete, _truncate, _flip, _flip, _overwrite, _exchange, _copy, _rename]


def damage(seed: int, folder: Path) -> str:
    """One accident among the files of a folder; what happened."""
    draw = random.Random(seed)
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")
    return draw.choice(ACCIDENTS)(draw, files)


def put_back(draw: random.Random, folder: Path, earlier: Path) -> str:
    """A file as an earlier version of the folder had it."""
    files = sorted(f.relative_to(earlier) for f in earlier.rglob("*") if f.is_file() and f.name != ".lock")
    name = draw.choice(files)
    shutil.copy(earlier / name, folder / name)
    return f"put back {name}"
