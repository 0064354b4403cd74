"""This tree against another one: each measurement of both in turn, printed by `recension bench compare`.

    python -m benchmarks.against                         the last release, every suite
    python -m benchmarks.against HEAD~3                  a revision
    python -m benchmarks.against ../other windows        a checkout, one suite
    python -m benchmarks.against HEAD modules --only overlap --rounds 9
    python -m benchmarks.against HEAD lmerge --size 60_000 --rounds 30      many short rounds: a busy machine

Each tree has a process of its own on the same core, which loads the data once. A round runs the other tree
and then this one, once each, so that a machine that is busy for a while slows both. The best round counts:
the processor time of a run that nothing disturbed. Baselines that neither tree has changed (plain Python,
DuckDB) are measured too: they show the noise of the run. Freed memory is kept by the process, in both.
Answers that differ between the trees are an error: then they have not measured the same.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from benchmarks.__main__ import FOLDER, RUN_THEMSELVES, SUITES
from benchmarks.harness import ONE_THREAD, Result, Suite, run_child
from benchmarks.report import save
from recension.cli.bench import compare

_HERE = Path(__file__).parent.parent
_CHILD = Path(__file__).parent / "child.py"
RELEASE = "7b873a7"  # 0.1.0
_MOST, _ROUNDS = 1_000_000, 9
# Where a heap ends, and so what the C library gives back to the system and takes again with every batch, is
# luck: it can take a third of the time of a measurement in one tree and nothing in the other.
_KEEP_MEMORY = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(1 << 30))
_NAMES = "from benchmarks.{} import SUITE; print([m.name for m in SUITE.measurements])"


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout, and the folder for the files that its measurements need."""

    root: Path
    files: Path

    @property
    def environment(self) -> dict[str, str]:
        """For processes that run its code."""
        return _KEEP_MEMORY | {"PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}"}

    def names(self, suite: str) -> list[str]:
        """The measurements of a suite in this tree; none of a suite that came later."""
        place = self.root / "benchmarks" / suite
        if not (place.is_dir() or place.with_suffix(".py").exists()):
            print(f"{suite}: not in {self.root}", file=sys.stderr)
            return []
        script = [sys.executable, "-c", _NAMES.format(suite)]
        done = subprocess.run(script, cwd=self.root, env=self.environment, capture_output=True, check=True)
        return list(ast.literal_eval(done.stdout.decode()))

    def prepare(self, suite: Suite, name: str, size: int) -> None:
        """Make the files of a measurement."""
        run_child(suite, name, size, self.files, "setup", self.root, self.environment)

    @contextmanager
    def measuring(self, suite: Suite, name: str, size: int) -> Iterator[Callable[[], Result]]:
        """A process that has loaded the data; each call is a round, and gives all that was found so far."""
        # Our own script, so that an older tree need not know how to serve; its measurements are its own.
        arguments = [str(_CHILD), suite.name, name, str(size), str(self.files), "serve"]
        with subprocess.Popen(
            [sys.executable, "-P", *arguments],
            env=os.environ | ONE_THREAD | self.environment,
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ask, answers = process.stdin, process.stdout

            def run_once() -> Result:
                ask.write(b"\n")
                ask.flush()
                if not (line := answers.readline()):
                    raise SystemExit(f"{suite.name}: {name} failed in {self.root}")
                return Result(**json.loads(line))

            yield run_once
            ask.close()


def main() -> None:
    """Measure both trees, save both runs, and print them side by side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("other", metavar="REVISION|PATH", nargs="?", default=RELEASE)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of: {', '.join(_suites())}")
    parser.add_argument("--most", type=int, default=_MOST, help="leave out sizes above so many elements")
    parser.add_argument("--size", type=int, help="every measurement at this size, whatever its own")
    parser.add_argument("--only", default="", metavar="TEXT", help="measurements with this in their name")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    asked = parser.parse_args()
    runs: tuple[list[Result], list[Result]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        trees = Tree(_checkout(asked.other, Path(folder)), Path(folder)), Tree(_HERE, Path(folder, "here"))
        trees[1].files.mkdir()
        for suite in (
            importlib.import_module(f"benchmarks.{name}").SUITE for name in asked.suites or _suites()
        ):
            for name, size in _measurements(suite, trees, asked.most, asked.size, asked.only):
                found = _measure_in_turn(suite, name, size, trees, asked.rounds)
                rates = [result.rate for result in found]
                ratio = f"{rates[1] / rates[0]:.2f}"
                print(f"{ratio}  {suite.name}: {name}, {size:,} elements", file=sys.stderr, flush=True)
                for run, result in zip(runs, found, strict=True):
                    run.append(result)
    compare(*(save(run, FOLDER, tree) for run, tree in zip(runs, ("-other", "-this"), strict=True)))


def _measure_in_turn(
    suite: Suite, name: str, size: int, trees: tuple[Tree, Tree], rounds: int
) -> tuple[Result, Result]:
    """Both trees, a run of each in every round; of each its best."""
    with trees[0].measuring(suite, name, size) as other, trees[1].measuring(suite, name, size) as this:
        for _ in range(rounds):
            found = other(), this()
    if found[0].answer != found[1].answer:
        raise SystemExit(
            f"{suite.name}: {name} found {found[1].answer}, but the other tree {found[0].answer}"
        )
    return _best(found[0]), _best(found[1])


def _suites() -> list[str]:
    """Those that need one core; the others go by the wall clock."""
    return [name for name in SUITES if name not in RUN_THEMSELVES]


def _checkout(other: str, folder: Path) -> Path:
    """The tree at a path, or that of a revision, unpacked."""
    if Path(other).is_dir():
        return Path(other).resolve()
    command = ["git", "archive", other, "src", "benchmarks"]
    archive = subprocess.run(command, cwd=_HERE, capture_output=True, check=False)
    if archive.returncode:
        why = archive.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{other}: neither a folder nor a revision of this repository ({why})")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder / "tree", filter="data")
    return folder / "tree"


def _measurements(
    suite: Suite, trees: tuple[Tree, Tree], most: int, one_size: int | None, text: str
) -> Iterator[tuple[str, int]]:
    """What both trees can measure, with the files for it made."""
    names = set(trees[0].names(suite.name))
    prepared = set[tuple[str, int]]()
    for m in suite.measurements:
        sizes = [size for size in m.sizes if size <= most or size == min(m.sizes)]
        for size in sizes if one_size is None else [one_size]:
            if m.name not in names or text not in m.name:
                continue
            if m.setup is not None and (m.setup.__name__, size) not in prepared:
                prepared.add((m.setup.__name__, size))
                for tree in trees:
                    tree.prepare(suite, m.name, size)
            yield m.name, size


def _best(found: Result) -> Result:
    """A result of its best round alone."""
    return replace(found, seconds=[min(found.seconds)], cpu_seconds=[min(found.cpu_seconds)])


if __name__ == "__main__":
    main()
