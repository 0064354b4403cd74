"""Are small wrong changes to the operators caught by the tests? ``make mutants`` tries a hundred and more.

``tests/mutants/*.yaml`` list them: a file, what it says, what it says instead, and which tests should notice.
Each change is made in a copy of the code, never in the working tree. It is caught if one of these quick tests
fails (or hangs) that passes without it. Then come the transcripts, and last, where ``queries`` choose some,
those of ``tests/properties/test_any_feeding.py``.

What was found is kept in ``.mutants``, and is not tried again until the file, the change or the tests differ.
``--only TEXT`` tries those whose file or name has the text, ``--again`` forgets what was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
LISTS: Final = ROOT / "tests" / "mutants"
FOUND: Final = ROOT / ".mutants"
TRANSCRIPTS: Final = "tests/transcripts/test_transcripts.py"
PROPERTY: Final = "tests/properties/test_any_feeding.py"
_COPIED: Final = ("src", "tests", "scripts", "examples", "pyproject.toml")
_MOST_SECONDS: Final = 240.0
"""For the tests of one change; what takes longer hangs."""


@dataclass(frozen=True)
class Mutant:
    """A wrong change: in ``file``, ``new`` stands for ``old``."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    queries: str | None = None

    @property
    def path(self) -> str:
        """The file, from the root of the project."""
        return f"src/recension/{self.file}"

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.file}: {self.old!r} is there {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)

    def commands(self) -> Iterator[list[str]]:
        """The arguments of pytest, for one run after the other."""
        yield list(self.tests)
        if TRANSCRIPTS not in self.tests:
            yield [TRANSCRIPTS]
        if self.queries is not None:
            yield [PROPERTY, "-k", self.queries]

    def digest(self) -> str:
        """Changes with what decides what is found; other code may matter too: ``--again`` is for that."""
        read = [(ROOT / path).read_text(encoding="utf-8") for path in (self.path, *self.tests)]
        return hashlib.sha256(json.dumps([str(self), *read]).encode()).hexdigest()[:16]


def mutants() -> list[Mutant]:
    """All of them, as they are listed."""
    found = []
    for path in sorted(LISTS.glob("*.yaml")):
        for part in yaml.safe_load(path.read_text(encoding="utf-8")):
            of: dict[str, Any] = {"file": part["file"], "tests": tuple(part["tests"])}
            of["queries"] = part.get("queries")
            found.append([Mutant(**{**of, **one}) for one in part["mutants"]])
    # One of each file in turn: what there is no time for is not all of one kind.
    return [one for turn in zip_longest(*found) for one in turn if one is not None]


class Copy:
    """A copy of the code, in which tests run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            of = ROOT / name
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            (shutil.copytree(of, folder / name, ignore=ignore) if of.is_dir() else shutil.copy(of, folder))
        self._clean: dict[str, bool] = {}

    def try_mutant(self, mutant: Mutant) -> dict[str, str]:
        """``caught``, ``hangs``, ``survived``, or ``no judge``: a test fails without the change too."""
        file = self._folder / mutant.path
        text = file.read_text(encoding="utf-8")
        for command in mutant.commands():
            file.write_text(mutant.apply(text), encoding="utf-8")
            try:
                failed = self._run(command)
            except subprocess.TimeoutExpired:
                return {"result": "hangs", "by": " ".join(command)}
            finally:
                file.write_text(text, encoding="utf-8")
            if failed is not None:
                return {"result": "caught" if self._passes(failed) else "no judge", "by": failed}
        return {"result": "survived", "by": ""}

    def _passes(self, test: str) -> bool:
        if test not in self._clean:
            self._clean[test] = self._run([test]) is None
        return self._clean[test]

    def _run(self, arguments: Sequence[str]) -> str | None:
        """The first test that fails; None if all pass."""
        chosen = ["-x", "-rfE", "-p", "no:cacheprovider", "-m", "not soak and not spark and not kafka"]
        # A compiled file of the same second and size would be taken for that of the change before.
        env = {"PYTHONPATH": str(self._folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *chosen, *arguments],
            cwd=self._folder,
            env={**os.environ, **env, "HYPOTHESIS_PROFILE": "mutants"},
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
        )
        if done.returncode in (0, 5):
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::.*?|\S+)(?: - .*)?$", done.stdout, re.MULTILINE)
        return failed[1] if failed else f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def run(wanted: Sequence[Mutant], workers: int, minutes: float) -> dict[Mutant, dict[str, str]]:
    """What was found of each, now or before; those for which no time was left are not there."""
    FOUND.mkdir(exist_ok=True)
    files = {mutant: FOUND / f"{mutant.digest()}.json" for mutant in wanted}
    found = {m: json.loads(file.read_text()) for m, file in files.items() if file.exists()}
    ends, copies = time.monotonic() + 60 * minutes, SimpleQueue[Copy]()
    left = [mutant for mutant in wanted if mutant not in found]

    def judge(numbered: tuple[int, Mutant]) -> None:
        number, mutant = numbered
        if time.monotonic() > ends:
            return
        copy, started = copies.get(), time.monotonic()
        try:
            answer = copy.try_mutant(mutant)
        finally:
            copies.put(copy)
        files[mutant].write_text(json.dumps(answer))
        found[mutant] = answer
        took = time.monotonic() - started
        print(
            f"{number:3}/{len(left)} {answer['result']:9} {took:4.0f} s  {mutant.file}: {mutant.name}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for number in range(workers):
            copies.put(Copy(Path(folder) / str(number)))
        list(pool.map(judge, enumerate(left, 1)))
    return found


def main() -> None:
    """Try them, and count."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose file or name has this text")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=40.0, help="begin no other after so long")
    parser.add_argument("--again", action="store_true", help="also what was tried before")
    given = parser.parse_args()
    wanted = [m for m in mutants() if given.only in f"{m.file}: {m.name}"]
    if given.again:
        shutil.rmtree(FOUND, ignore_errors=True)
    found = run(wanted, given.workers, given.minutes)
    for result in ("survived", "no judge"):
        for mutant, answer in found.items():
            if answer["result"] == result:
                print(f"{result}: {mutant.file}: {mutant.name} {answer['by']}".rstrip())
    counts = Counter(answer["result"] for answer in found.values())
    counts["not tried"] = len(wanted) - len(found)
    print(", ".join(f"{count} {result}" for result, count in counts.items() if count), f"of {len(wanted)}")
    sys.exit(1 if counts["survived"] or counts["no judge"] or counts["not tried"] else 0)


if __name__ == "__main__":
    main()
