"""One trustworthy answer out of replicas that are disordered, revised and interrupted in different ways.

Four uses of the logical merge, each over replicas of one generated stream; every answer must be the one that
an uninterrupted run would give.

    python examples/replicas.py             20,000 elements a replica
    python examples/replicas.py 2000        fewer
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.difference import equivalent
from recension.runners.local import Session
from recension.testing.generator import StreamSettings, replicas

BATCH = 1_000
SCHEMA = {"value": "int64", "text": "string"}
KEYED = rc.Properties(has_key=True)


def streams(size: int, count: int = 3) -> list[list[EventBatch]]:
    """Replicas of one stream, in batches."""
    settings = StreamSettings.of("R3", size=size, revisions=0.2, event_duration="100s", max_gap="1s")
    found = []
    for replica in replicas(settings, count):
        whole = concat(list(replica))
        found.append([whole.slice(at, min(at + BATCH, len(whole))) for at in range(0, len(whole), BATCH)])
    return found


def feed(name: str) -> rc.Stream:
    return rc.source(name, SCHEMA, properties=KEYED)


def small(stream: rc.Stream) -> rc.Stream:
    """The query that everyone runs."""
    return stream.where(rc.col("value") < 200)


def expected(size: int) -> rc.History:
    """What one replica alone, uninterrupted, gives."""
    return rc.run(small(feed("s")), {"s": concat(streams(size, 1)[0])}).history()


def high_availability(size: int) -> rc.History:
    """Three replicas; the first dies after a third of its elements, the second after two thirds."""
    feeds = streams(size)
    live = rc.session(rc.scenarios.high_availability(small, [feed(f"s{i}") for i in range(3)]))
    for step, parts in enumerate(zip(*feeds, strict=False)):
        for i, part in enumerate(parts):
            if i == 2 or step < (i + 1) * len(feeds[0]) // 3:
                live.push(f"s{i}", part)
    _rest(live, "s2", feeds[2], min(map(len, feeds)))
    return live.read().history()


def plan_fast_forward(size: int) -> rc.History:
    """Two plans of the query; one is fed at half the speed, and skips what the other has settled."""
    feeds = streams(size, 2)
    plans = [small(feed("s0")), feed("s1").where(rc.col("value") <= 199)]
    live = rc.session(rc.scenarios.fast_forward(*plans))
    for step, part in enumerate(feeds[0]):
        live.push("s0", part)
        if step % 2:
            live.push("s1", feeds[1][step // 2])
    return live.read().history()


def jump_start(size: int) -> rc.History:
    """The past comes as a table; the live feed begins a little before the table ends."""
    history = rc.run(feed("s"), {"s": concat(streams(size, 1)[0])}).history()
    now = int(np.median(history.vs))
    session = rc.session(rc.scenarios.jump_start(small, feed("table"), feed("live"), from_time=now))
    session.push("table", _inserts(history.filter(history.vs < now)))
    session.advance("table", now)
    session.push("live", _inserts(history.filter(history.vs >= now - 10_000_000)))
    session.advance("live", rc.FOREVER)
    return session.read().history()


def _inserts(history: rc.History) -> list[rc.Insert]:
    return [rc.Insert(e.payload, e.vs, e.ve) for e in history.to_events()]


def cut_over(size: int) -> rc.History:
    """Half-way another plan takes over; it is complete from a time a little ahead."""
    (parts,) = streams(size, 1)
    old, new = small(feed("s")), feed("s").where(rc.col("value") <= 199).where(rc.col("value") < 200)
    live = rc.session(rc.merge(old, case="R3"))
    change: rc.scenarios.CutOver | None = None
    done = False
    for step, part in enumerate(parts):
        live.push("s", part)
        if step == len(parts) // 2:
            # Whatever ends later than every event seen so far will be told to the new plan in full.
            seen = max(
                int(p.ve[(p.kind < 2) & (p.ve < rc.FOREVER)].max(initial=0)) for p in parts[: step + 1]
            )
            change = rc.scenarios.CutOver(live, old, new, from_time=seen + 1)
        elif change is not None and not done:
            done = change.finish()
    return live.read().history()


def _rest(live: Session, name: str, parts: list[EventBatch], start: int) -> None:
    for part in parts[start:]:
        live.push(name, part)


SCENARIOS = (high_availability, plan_fast_forward, jump_start, cut_over)


def check(size: int) -> Iterator[tuple[str, bool]]:
    """For every scenario: is its answer the uninterrupted one?"""
    right = expected(size)
    for scenario in SCENARIOS:
        yield scenario.__name__, equivalent(scenario(size), right)


if __name__ == "__main__":
    for name, is_right in check(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000):
        print(f"{name:20} {'the uninterrupted answer' if is_right else 'WRONG'}")
