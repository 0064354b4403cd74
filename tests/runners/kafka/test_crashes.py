"""Killed between any two steps, on the disk or on the way to the broker, a service goes on just the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from tests.runners.kafka.fake import Crash, FakeCluster, _cluster, open_service
from tests.runners.kafka.topics import history_of, without_repeats

import recension as rc
from recension.testing import assert_equivalent

__all__ = ["_cluster"]

OUTPUT = {"k": "string", "n": "int64"}


def feed(cluster: FakeCluster, seed: int, size: int = 40) -> list[Any]:
    """A stream with retractions and CTIs, written to a topic; its elements."""
    luck, t = random.Random(seed), 0
    live, made = list[tuple[str, int, int]](), list[Any]()
    for _ in range(size):
        t += luck.choice([0, 1, 2])
        if live and luck.random() < 0.3:
            k, vs, ve = live.pop(luck.randrange(len(live)))
            new = max(t, vs) if ve > t else ve
            if new < ve:
                made.append(rc.Retract({"k": k}, vs, ve, new))
        else:
            k, ve = luck.choice("abc"), t + luck.randrange(1, 9)
            made.append(rc.Insert({"k": k}, t, ve))
            live.append((k, t, ve))
        live = [one for one in live if one[2] > t]
        if luck.random() < 0.2:
            made.append(rc.Cti(t))
    for element in made:
        cluster.write("in", encode(element))
    return made


def encode(element: Any) -> bytes:
    if isinstance(element, rc.Cti):
        return json.dumps({"_kind": "cti", "_vs": element.t}).encode()
    body = {"_kind": "insert", "_vs": element.vs, "_ve": element.ve, **element.payload}
    if isinstance(element, rc.Retract):
        body |= {"_kind": "retract", "_new_ve": element.new_ve}
    return json.dumps(body).encode()


def query() -> rc.Stream:
    return rc.source("s", {"k": "string"}).group_by("k").agg(n=rc.count(), speculate="eager")


@pytest.mark.parametrize("snapshot_every", ["1h", 1])
@pytest.mark.parametrize("seed", range(2))
def test_killed_after_every_number_of_steps(
    cluster: FakeCluster, tmp_path: Path, seed: int, snapshot_every: Any
) -> None:
    cluster.logs = {("in", 0): [], ("out", 0): [], ("out", 1): []}
    made = feed(cluster, seed)
    expected = rc.run(query(), {"s": made}).history()
    repeats = 0
    for steps in [*range(0, 20, 2), 30, 50]:
        cluster.luck = random.Random(seed + steps)
        for place in (("out", 0), ("out", 1)):
            cluster.logs[place].clear()
        folder, live = tmp_path / str(steps), cast(Any, None)
        for left in (steps, steps + 2, 5 * steps + 1, None):
            cluster.left = left
            try:
                live = open_service(
                    query(), folder, inputs={"s": "in"}, outputs="out", snapshot_every=snapshot_every
                )
                live.run("end")
                live.close()
            except Crash:
                if live is not None:
                    live._abandon()
        messages = cluster.read("out")
        kept = without_repeats(messages)
        repeats += len(messages) - len(kept)
        assert_equivalent(history_of(kept, OUTPUT), expected)
        assert_equivalent(live.session.history(), expected)
    assert repeats
