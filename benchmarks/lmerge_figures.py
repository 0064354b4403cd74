"""The evaluation of the LMerge paper, figure by figure, at a size that one core does in a minute or two.

Each figure is a table with the paper's relation beside ours. Throughput is per second of processor time,
inside the merge only; memory is what the merge itself holds, at its most.

Source      Physically Independent Stream Merging, §VI-C to §VI-E, figures 2 to 10; LMerge rulings, §11.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.lmerge import Turns, turns
from recension.operators.lmerge.choice import merge_of, policy_of
from recension.operators.lmerge.merge import LogicalMerge

SECOND = 1_000_000


@dataclass(frozen=True)
class Figure:
    """A table: how ``ys`` depend on ``xs``, and what the paper found."""

    name: str
    xlabel: str
    ylabel: str
    xs: Sequence[Any]
    ys: dict[str, list[float]]
    paper: str

    def lines(self) -> list[str]:
        """The table as text."""
        width = max(len(name) for name in [self.xlabel, *self.ys]) + 2
        head = f"{self.xlabel:{width}}" + "".join(f"{x!s:>12}" for x in self.xs)
        rows = [f"{n:{width}}" + "".join(f"{y:>12,.4g}" for y in ys) for n, ys in self.ys.items()]
        return ["", f"{self.name}: {self.ylabel}", head, *rows, f"paper: {self.paper}"]

    def draw(self, folder: Path) -> None:
        """The table as a picture, if there is something to draw with."""
        try:
            import matplotlib

            matplotlib.use("Agg")
            from matplotlib import pyplot
        except ImportError:
            return
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for name, ys in self.ys.items():
            axes.plot([str(x) for x in self.xs], ys, marker="o", label=name)
        axes.set(xlabel=self.xlabel, ylabel=self.ylabel, title=self.name)
        axes.legend()
        folder.mkdir(exist_ok=True)
        figure.savefig(folder / f"{self.name.split(',')[0].replace(' ', '-')}.png", dpi=120)
        pyplot.close(figure)


@dataclass
class Run:
    """What one merge did with its inputs."""

    rate: float
    peak: float
    adjusts: int


def merged(merge: LogicalMerge, data: Turns) -> Run:
    """Feed a merge; only its own work is timed."""
    peak, adjusts, elements, spent = 0, 0, 0, 0.0
    for port, batch, t in data:
        started = time.process_time()
        given = [merge.on_batch(port, batch)]
        if t is not None:
            given.append(merge.on_cti(port, t).batch)
        spent += time.process_time() - started
        elements += len(batch) + (t is not None)
        adjusts += sum(int((out.kind == 1).sum()) for out in given)
        peak = max(peak, merge.state_bytes())
    return Run(elements / spent, peak / 2**20, adjusts)


def figures(folder: Path) -> list[str]:
    """All of them, as text; drawn into ``folder`` where matplotlib is installed."""
    lines: list[str] = []
    for make in FIGURES:
        for figure in make():
            lines += figure.lines()
            figure.draw(folder)
    return lines


def inputs_figures() -> list[Figure]:
    """Figures 2 and 3: ordered streams without adjusts, so that every case can run."""
    counts, size, text = (2, 4, 6, 8, 10), 10_000, 1_000
    memory: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for count in counts:
        data = turns("R0", size, text, count, 1_000, event_duration=2_500 * 10 * SECOND)
        for case in ("R0", "R1", "R2", "R3", "R3-", "R4"):
            runs = [merged(merge_of(case, data[0][1].schema, count), data) for _ in range(2)]
            memory.setdefault(case, []).append(runs[0].peak)
            rates.setdefault(case, []).append(max(run.rate for run in runs))
    return [
        Figure(
            "Figure 2, memory against inputs",
            "inputs",
            "MB",
            counts,
            memory,
            "R0 ≈ R1 ≈ R2 far below R3, which hardly depends on the inputs; R3- linear in them",
        ),
        Figure(
            "Figure 3, throughput against inputs",
            "inputs",
            "elements/s",
            counts,
            rates,
            "R0, R1, R2 above R3, R3 far above R3-; R4 below R3",
        ),
    ]


def _counted(
    disorder: float, replicas: int, size: int, stable_freq: float, at_once: int, pad: int = 0
) -> tuple[list[Any], int]:
    """What a sub-query, a moving count per value, puts out for each replica; and how many adjusts that is."""
    import recension as rc
    from recension.testing.generator import StreamSettings
    from recension.testing.generator import replicas as made

    settings = StreamSettings.of(
        "R3", size=size, disorder=disorder, stable_freq=stable_freq, event_duration=500 * 10 * SECOND
    )
    outputs = []
    for replica in made(settings, replicas):
        source = rc.source("s", {"value": "int64", "text": "string"})
        query = source.group_by("value").agg(n=rc.count(), speculate="eager").extend(10 * SECOND)
        query = query.with_columns(pad=rc.lit("x" * pad)) if pad else query
        live = rc.session(query)
        for batch in replica:
            for start in range(0, len(batch), at_once):
                live.push("s", batch.slice(start, min(start + at_once, len(batch))))
        outputs.append(live.read().batch())
    return outputs, max(int((out.kind == 1).sum()) for out in outputs)


def _in_turn(streams: list[Any], batch: int) -> Turns:
    from recension.runners.engine import split

    found: Turns = []
    for start in range(0, max(map(len, streams)), batch):
        for port, stream in enumerate(streams):
            if start < len(stream):
                found.append((port, *split(stream.slice(start, min(start + batch, len(stream))))))
    return found


def disorder_figure() -> list[Figure]:
    """Figure 4: adjusts put out, with a merge and without."""
    shares = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    plain: list[float] = []
    kept: dict[str, list[float]] = {"first": [], "hf": []}
    for share in shares:
        outputs, adjusts = _counted(share, 3, 1_000, 0.01, at_once=5)
        plain.append(float(adjusts))
        for name, adjusted in kept.items():
            policy = policy_of("hf" if name == "hf" else "first")
            merge = merge_of("R3", outputs[0].schema, 3, policy)
            adjusted.append(float(merged(merge, _in_turn(outputs, 20)).adjusts))
    paper = "adjusts grow with disorder; the merge emits fewer than the query alone"
    ys = {"query alone": plain, **{f"merge of 3, {name}": adjusted for name, adjusted in kept.items()}}
    return [Figure("Figure 4, output size against disorder", "disorder", "adjusts", shares, ys, paper)]


def lag_figure() -> list[Figure]:
    """Figure 5: one or two of three inputs lag by some seconds of application time."""
    lags, per_second, batch = (0, 1, 2, 3, 4, 5), 2_000, 1_000
    data = turns(
        "R3",
        40_000,
        16,
        3,
        batch,
        max_gap=2 * SECOND // per_second,
        event_duration=4 * SECOND,
        stable_freq=0.001,
    )
    ports: list[list[Any]] = [[turn for turn in data if turn[0] == port] for port in range(3)]
    ys: dict[str, list[float]] = {}
    for late in (1, 2):
        for lag in lags:
            behind = lag * per_second // batch
            waiting: list[Any] = [None] * behind
            delayed = [*ports[:-late], *(waiting + port for port in ports[-late:])]
            steps = range(max(map(len, delayed)))
            order = [port[i] for i in steps for port in delayed if i < len(port) and port[i] is not None]
            best = max(merged(merge_of("R3", order[0][1].schema, 3), order).rate for _ in range(2))
            ys.setdefault(f"{late} lagging", []).append(best)
    paper = "throughput rises with lag, more so with more lagging inputs: late ones cost a lookup"
    return [Figure("Figure 5, throughput against lag", "lag (s)", "elements/s", lags, ys, paper)]


def stable_figure() -> list[Figure]:
    """Figure 6: how often stables come."""
    shares = (0.00001, 0.0001, 0.001, 0.01)
    memory: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for share in shares:
        made = {"R3": "R3", "R4": "R4", "R0": "R0"}
        for case, kind in made.items():
            data = turns(kind, 30_000, 16, 3, 200, stable_freq=share, event_duration=1_000 * 10 * SECOND)
            run = merged(merge_of(case, data[0][1].schema, 3), data)
            memory.setdefault(case, []).append(run.peak)
            rates.setdefault(case, []).append(run.rate)
    labels = [f"{share:.3%}" for share in shares]
    paper = "more stables: memory falls, throughput of R3 and R4 falls, that of R0 does not change"
    return [
        Figure("Figure 6a, memory against StableFreq", "StableFreq", "MB", labels, memory, paper),
        Figure("Figure 6b, throughput against StableFreq", "StableFreq", "elements/s", labels, rates, paper),
    ]


def cleanse_figure() -> list[Figure]:
    """Figure 7: order enforced first, and the simple merge, against the general merge."""
    counts = (2, 4, 6, 8, 10)
    outputs, _ = _counted(0.5, 10, 3_000, 0.001, at_once=50, pad=1_000)
    rates: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    delays: dict[str, list[float]] = {}
    for count in counts:
        data = _in_turn(outputs[:count], 200)
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
    merge = merge_of("R1" if name == "Cleanse+R1" else name, schema, count)
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
    from recension.runners.engine import split
    from recension.testing.generator import StreamSettings, replicas, timed

    settings = StreamSettings.of(
        "R3", size=size, stable_freq=0.01, max_gap=2 * SECOND // 5_000, event_duration=SECOND, close=False
    )
    tick = SECOND // 100
    pieces: list[tuple[int, int, Any]] = []
    counts, bins = [], np.arange(0, size // 500 + 1) * 10 * tick
    for port, replica in enumerate(replicas(settings, len(profiles))):
        arrivals = []
        for batch, arrival in timed(replica, profiles[port], port):
            arrivals.append(arrival[batch.kind == 0])
            edges = np.searchsorted(arrival, np.arange(arrival[0] // tick, arrival[-1] // tick + 2) * tick)
            for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                if stop > start:
                    pieces.append((int(arrival[start] // tick), port, batch.slice(start, stop)))
        counts.append(np.histogram(np.concatenate(arrivals), bins)[0])
    pieces.sort(key=lambda piece: piece[:2])
    merge = merge_of("R3", pieces[0][2].schema, len(profiles))
    shown: list[int] = []
    for at, port, batch in pieces:
        changes, t = split(batch)
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


FIGURES: tuple[Callable[[], list[Figure]], ...] = (
    inputs_figures,
    disorder_figure,
    lag_figure,
    stable_figure,
    cleanse_figure,
    arrival_figures,
    switching_figure,
)
