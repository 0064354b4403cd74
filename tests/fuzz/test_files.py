"""Mutated files are read or refused: no traceback, no crash, no hang, no memory without bound.

A failure names the number from which its file follows, and keeps the file. ``FUZZ_FIRST=number`` starts the
long form there again.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import pytest
from tests.fuzz.mutations import mutated
from tests.fuzz.sandbox import Sandbox, sandbox
from tests.fuzz.seeds import seed_of

SUFFIXES: Final = ("jsonl", "csv", "parquet", "arrow")
_ROWS_IN_SOAK: Final = 250_000


def hunt(box: Sandbox, suffix: str, rows: int, first: int, folder: Path) -> int:
    """Give the sandbox files of so many rows in all; the number of files."""
    number = first
    while rows > 0:
        chance = random.Random(f"{suffix} {number}")
        seed = seed_of(suffix, chance)
        data, ending = mutated(seed.data, suffix, chance)
        path = folder / f"{number}.{ending}"
        path.write_bytes(data)
        if fault := box.fault_of(path):
            kept = Path(mkdtemp(prefix="recension-fuzz-")) / path.name
            kept.write_bytes(data)
            pytest.fail(f"number {number} of {suffix}, kept as {kept}: {fault}")
        for done in folder.glob(f"*{path.name}"):
            done.unlink()
        rows, number = rows - seed.rows, number + 1
    return number - first


@pytest.mark.slow
def test_a_few_mutated_files(tmp_path: Path) -> None:
    with sandbox() as box:
        for suffix in SUFFIXES:
            hunt(box, suffix, 1_500, 0, tmp_path)
    # Neither is everything refused nor everything accepted: the files are near the edge.
    assert min(box.counts["accepted"], box.counts["refused"]) > 10, box.counts


@pytest.mark.soak
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_quarter_of_a_million_mutated_rows(suffix: str, tmp_path: Path) -> None:
    first = int(os.environ.get("FUZZ_FIRST") or random.SystemRandom().randrange(1 << 40))
    print(f"\n{suffix}: numbers from {first}")
    with sandbox() as box:
        files = hunt(box, suffix, _ROWS_IN_SOAK, first, tmp_path)
    print(f"{suffix}: {files:,} files, {dict(box.counts)}, at most {box.peak >> 20} MiB")


@pytest.mark.slow
def test_the_sandbox_sees_what_is_wrong(tmp_path: Path) -> None:
    """A harness that cannot fail proves nothing."""
    seen: Counter[str] = Counter()
    with sandbox("tests.fuzz.faulty_child", seconds=2.0, memory=100 << 20) as box:
        for word in ("crash", "hang", "memory", "raise", "fine"):
            fault = box.fault_of(tmp_path / word)
            seen[(fault or "fine").split("\n")[0].split(" ")[0]] += 1
    assert seen == Counter({"ended": 1, "hung": 1, "took": 1, "Traceback": 1, "fine": 1})
