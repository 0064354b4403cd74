"""Three replicas in three processes, killed one after the other: the merged answer goes on while one lives.

``make soak`` runs both forms. The long one kills ten times, the merge too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import replica
from tests.runners.spark.stream.processes import Program
from tests.runners.spark.stream.replica import NAMES

import recension as rc
from recension.core.batch import concat
from recension.core.history import History

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
_PATIENCE = 400.0


class Troupe:
    """Replicas that live and die, and what must come of them."""

    def __init__(self, folder: Path, parts: int, size: int, seed: int = 0) -> None:
        self._folder, self._feeds, self._told = folder, replica.feeds(parts, size, seed), 0
        self.live: dict[str, Program] = {}
        for name in NAMES:
            (folder / "feeds" / name).mkdir(parents=True)

    def tell(self) -> None:
        """The next part of every feed is there."""
        for name in NAMES:
            replica.put(self._folder, name, self._told, self._feeds[name][self._told])
        self._told += 1

    def start(self, name: str) -> None:
        module, log = "tests.runners.spark.stream.replica", self._folder / f"words-{name}.txt"
        arguments = (name,) if name in NAMES else ()
        self.live[name] = Program(module, str(self._folder), *arguments, log=log)

    def kill(self, name: str) -> None:
        self.live.pop(name).kill()

    def wait_for_first_words(self, name: str) -> None:
        """Until it has written something: it is then well on its way."""
        self._wait(lambda: any((self._folder / "root" / name).glob("part-*")), f"{name} wrote nothing")

    def wait_for_progress(self, *names: str) -> None:
        """Until the merged answer is as final as any of these replicas, by what it was told, can make it."""
        wanted = min(self._final(name) for name in names)
        merged = self._folder / "merged"
        self._wait(lambda: replica.promised(merged) >= wanted, f"the answer did not get to {wanted}")

    def _wait(self, condition: Any, failure: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            for name, program in self.live.items():
                assert program.is_running(), f"{name} ended: {program.said()[-4000:]}"
            assert time.monotonic() < deadline, failure
            time.sleep(0.1)

    def _final(self, name: str) -> int:
        """How far a replica alone would be, uninterrupted."""
        out = rc.run(replica.query(), {"s": concat(self._feeds[name][: self._told])})
        return max(element.t for element in out.elements() if isinstance(element, rc.Cti))

    def expected(self) -> History:
        return rc.run(replica.query(), {"s": concat(self._feeds["a"])}).history()

    def check(self) -> None:
        """Nothing twice, nothing missing, in either sink."""
        feeding.assert_same(feeding.read(self._folder / "merged"), self.expected())
        feeding.assert_same(feeding.read(self._folder / "table"), self.expected())


@contextmanager
def troupe(folder: Path, parts: int, size: int, seed: int = 0) -> Iterator[Troupe]:
    one = Troupe(folder, parts, size, seed)
    try:
        yield one
    finally:
        for name in list(one.live):
            one.kill(name)


@pytest.mark.soak
def test_two_of_three_replicas_killed(spark: Any, tmp_path: Path) -> None:
    """The demonstration, which every run of the tests plays, kills and replaces a replica too."""
    with troupe(tmp_path, parts=4, size=2000) as replicas:
        replicas.tell()
        for name in NAMES:
            replicas.start(name)
        merging = replica.run_merge(spark, tmp_path)
        try:
            replicas.wait_for_first_words("a")
            replicas.wait_for_progress(*NAMES)
            replicas.kill("a")
            replicas.tell()
            replicas.wait_for_progress("b", "c")
            replicas.start("a")
            replicas.wait_for_first_words("b")
            replicas.kill("b")
            replicas.tell()
            replicas.wait_for_progress("c")
            replicas.start("b")
            replicas.tell()
            replicas.wait_for_progress("c")
            states = rc.spark.metrics(merging).inputs
        finally:
            merging.stop()
        assert states == dict.fromkeys(NAMES, "joined")
        replicas.check()


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_each_killed_in_turn_and_the_merge_too(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with troupe(tmp_path, parts=12, size=40_000, seed=seed) as replicas:
        replicas.tell()
        for name in (*NAMES, "merge"):
            replicas.start(name)
        replicas.wait_for_progress(*NAMES)
        for round_ in range(10):
            time.sleep(rng.uniform(0, 2))
            doomed = list(NAMES)
            survivor = doomed.pop(round_ % 3)
            for name in doomed:
                replicas.kill(name)
            if round_ % 4 == 3:
                replicas.kill("merge")
                replicas.start("merge")
            replicas.tell()
            # Only one lives, and it was itself killed and started again before.
            replicas.wait_for_progress(survivor)
            for name in doomed:
                replicas.start(name)
        replicas.tell()
        replicas.wait_for_progress(*NAMES)
        replicas.check()
