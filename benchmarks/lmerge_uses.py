"""What merging is good for, measured: figures 7 to 10 of the LMerge paper.

Source      Physically Independent Stream Merging, §VI-D and §VI-E.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.lmerge import Turns
from benchmarks.lmerge_figures import SECOND, Figure, counted, in_turn
from recension.operators.lmerge.choice import make_merge


def cleanse_figure() -> list[Figure]:
    """Figure 7: order enforced first, and the simple merge, against the general merge."""
    counts = (2, 4, 6, 8, 10)
    outputs, _ = counted(0.5, 10, 3_000, 0.001, at_once=50, pad=1_000)
    rates: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    delays: dict[str, list[float]] = {}
    for count in counts:
        data = in_turn(outputs[:count], 200)
        for name in ("R3", "R3-", "Cleanse+R1"):
            rate, peak, delay = _cleansed(name, data, count)
            rates.setdefault(name, []).append(rate)
            memory.setdefault(name, []).append(peak)
            delays.setdefault(name, []).append(delay)
    paper = "Cleanse+R1 linear in the inputs, 7 times R3 at 10; R3- linear, R3 hardly changes"
    slower = "120 ms for R3; of Cleanse+R1, orders of magnitude more: lifetime and disorder"
    return [
        Figure("Figure 7a, memory of Cleanse+R1", "inputs", "MB", counts, memory, paper),
        Figure(
            "Figure 7b, throughput of Cleanse+R1",
            "inputs",
            "elements/s",
            counts,
            rates,
            "R3 above Cleanse+R1, with a growing gap",
        ),
        Figure("Figure 7c, latency of Cleanse+R1", "inputs", "s of application time", counts, delays, slower),
    ]


def _cleansed(name: str, data: Turns, count: int) -> tuple[float, float, float]:
    """Rate, peak memory in MB, and how far the clock had gone, on average, from an event's arrival."""
    from recension.operators.cleanse import Cleanse

    schema = data[0][1].schema
    merge = make_merge("R1" if name == "Cleanse+R1" else name, schema, count)
    cleansers = [Cleanse(schema) for _ in range(count)] if name == "Cleanse+R1" else []
    peak, elements, spent, clock = 0, 0, 0.0, 0
    came: dict[int, int] = {}
    delays: list[int] = []
    for port, batch, t in data:
        clock = max(clock, int(batch.vs.max(initial=0)))
        elements += len(batch)
        for key in _keys(batch):
            came.setdefault(key, clock)
        started = time.process_time()
        if cleansers:
            batch = cleansers[port].on_batch(0, batch)
            if t is not None:
                answer = cleansers[port].on_cti(0, t)
                batch, t = answer.batch, answer.cti
        given = [merge.on_batch(port, batch)]
        if t is not None:
            given.append(merge.on_cti(port, t).batch)
        spent += time.process_time() - started
        for out in given:
            delays += [clock - came[key] for key in _keys(out)]
        peak = max(peak, merge.state_bytes() + sum(cleanser.state_bytes() for cleanser in cleansers))
    return elements / spent, peak / 2**20, float(np.mean(delays)) / SECOND


def _keys(batch: Any) -> list[int]:
    """What an insert is known by."""
    from recension.core.rowhash import combine, row_hash

    new = batch.filter(batch.kind == 0)
    return combine(row_hash(new.payload, len(new)), new.vs).tolist() if len(new) else []


def arrival_figures() -> list[Figure]:
    """Figures 8 and 9: bursts are smoothed and congestion is masked."""
    from recension.testing.generator import Burst, Congestion, Profile

    rate = 5_000
    bursty = [Profile(rate=rate, burst=Burst(0.003 + 0.0005 * n)) for n in range(4)]
    ins, out = _arrivals(bursty, 6 * rate)
    spread = [float(np.std(one) / np.mean(one)) for one in [*ins, out]]
    # A second's elements, each held up for longer than they are apart, take four seconds to come through.
    jammed = [Profile(rate=rate, congestion=Congestion(s * SECOND, SECOND, 800, 200)) for s in (1, 7, 9)]
    ins9, out9 = _arrivals(jammed, 15 * rate)
    worst = [float(one[5:-5].min() / rate * 10) for one in [*ins9, out9]]
    names = [f"input {n}" for n in range(4)]
    return [
        Figure(
            "Figure 8, burst smoothing",
            "stream",
            "deviation of the rate, as a part of its mean",
            [*names, "output"],
            {"per 100 ms": spread},
            "inputs are bursty, the output is nearly steady",
        ),
        Figure(
            "Figure 9, congestion masking",
            "stream",
            "lowest rate, as a part of the usual",
            [*names[:3], "output"],
            {"per 100 ms": worst},
            "inputs nearly stop in turn, two at once for a while; the output is not affected",
        ),
    ]


def _arrivals(profiles: list[Any], size: int) -> tuple[list[Any], Any]:
    """Elements per 100 ms of each input and of the merge's output, by the receiver's clock."""
    from recension.operators.pipeline import split_ctis
    from recension.testing.generator import StreamSettings, add_arrivals, replicas

    settings = StreamSettings.of(
        "R3", size=size, stable_freq=0.01, max_gap=2 * SECOND // 5_000, event_duration=SECOND, close=False
    )
    tick = SECOND // 100
    pieces: list[tuple[int, int, Any]] = []
    counts, bins = [], np.arange(0, size // 500 + 1) * 10 * tick
    for port, replica in enumerate(replicas(settings, len(profiles))):
        arrivals = []
        for batch, arrival in add_arrivals(replica, profiles[port], port):
            arrivals.append(arrival[batch.kind == 0])
            edges = np.searchsorted(arrival, np.arange(arrival[0] // tick, arrival[-1] // tick + 2) * tick)
            for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                if stop > start:
                    pieces.append((int(arrival[start] // tick), port, batch.slice(start, stop)))
        counts.append(np.histogram(np.concatenate(arrivals), bins)[0])
    pieces.sort(key=lambda piece: piece[:2])
    merge = make_merge("R3", pieces[0][2].schema, len(profiles))
    shown: list[int] = []
    for at, port, batch in pieces:
        changes, t = split_ctis(batch)
        out = [merge.on_batch(port, changes)] + ([merge.on_cti(port, t).batch] if t is not None else [])
        shown += [at * tick] * sum(int((part.kind == 0).sum()) for part in out)
    return counts, np.histogram(shown, bins)[0]


def switching_figure() -> list[Figure]:
    """Figure 10: two plans, each slow where the other is fast, alone, merged, and merged with feedback."""
    size = 10_000
    alone = [_switched((plan,), size, feedback=False) for plan in (0, 1)]
    both = [_switched((0, 1), size, feedback=feedback) for feedback in (False, True)]
    ys = {"seconds of a core, each plan its own": [*alone, *both]}
    names = ["UDF0", "UDF1", "merge", "feedback"]
    paper = "176 and 163 s alone, 163 s merged, 34 s with feedback: 5 times faster"
    return [Figure("Figure 10, plan switching", "plan", "time until all is done", names, ys, paper)]


def _switched(plans: tuple[int, ...], size: int, *, feedback: bool) -> float:
    """How long the plans take if each has a core: the one that has worked less goes next."""
    import recension as rc
    from recension.core.batch import inserts
    from recension.core.events import Cti

    rng = np.random.default_rng(5)
    runs = rng.integers(size // 20, 3 * size // 20, 40)
    is_high = np.repeat(np.arange(len(runs)) % 2 == 1, runs)[:size]
    x = np.where(is_high, 900, 100) + rng.integers(0, 100, size)
    vs = np.arange(size, dtype=np.int64)
    known = rc.Properties(is_insert_only=True, has_key=True)
    feeds = [rc.source(f"s{plan}", {"id": "int64", "x": "int64"}, properties=known) for plan in plans]
    schema = feeds[0].schema
    udfs = [feed.map(_udf(plan), schema) for plan, feed in zip(plans, feeds, strict=True)]
    live = rc.session(rc.merge(*udfs, case="R3", feedback=feedback))
    payload = pa.RecordBatch.from_arrays([pa.array(vs), pa.array(x)], schema=schema)
    events = inserts(vs, vs + 1, payload)
    spent, at, shown = dict.fromkeys(plans, 0.0), dict.fromkeys(plans, 0), 0
    step = size // 200
    while shown < size:
        plan = min((p for p in plans if at[p] < size), key=lambda p: spent[p])
        part = events.slice(at[plan], at[plan] + step)
        at[plan] += step
        started = time.process_time()
        live.push(f"s{plan}", part)
        live.push(f"s{plan}", [Cti(at[plan])])
        spent[plan] += time.process_time() - started
        shown += sum(int((out.kind == 0).sum()) for out in live.read().batches)
    return max(spent.values())


def _udf(plan: int) -> Callable[[Any], Any]:
    """Costly for small x in one plan, for large x in the other."""

    def udf(payload: Any) -> Any:
        x = payload.column("x").to_numpy()
        costly = int(((x < 500) if plan == 0 else (x >= 500)).sum())
        for _ in range(costly):
            sum(range(30_000))
        return payload

    return udf


USES: tuple[Callable[[], list[Figure]], ...] = (cleanse_figure, arrival_figures, switching_figure)
