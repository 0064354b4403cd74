"""The evaluation of the LMerge paper, figure by figure; one core takes some minutes for all of it.

Each figure is a table with the paper's relation beside ours. Throughput is per second of processor time,
inside the merge only; memory is what the merge itself holds, at its most. Figures 2, 3, 5 and 6 have the
paper's workload: 200,000 elements an input, an int and a string of 1,000 bytes, 10,000 live events. Figures 4
and 7 merge what a sub-query puts out, which takes longer to make than to merge: they are smaller.

Source      Physically Independent Stream Merging, §VI-C to §VI-E, figures 2 to 10; LMerge rulings, §11.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lmerge import Turns, turns
from recension.operators.lmerge.choice import make_merge
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.lmerge.policies import make_policy

SECOND = 1_000_000
SIZE, TEXT, LIVE, GAP = 200_000, 1_000, 10_000, 10 * SECOND


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
    from benchmarks.lmerge_uses import USES

    lines: list[str] = []
    for make in (*FIGURES, *USES):
        for figure in make():
            lines += figure.lines()
            figure.draw(folder)
    return lines


def inputs_figures() -> list[Figure]:
    """Figures 2 and 3: ordered streams without adjusts, so that every case can run."""
    counts = (2, 4, 6, 8, 10)
    memory: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    everyone = turns("R0", SIZE, TEXT, max(counts), 1_000, event_duration=LIVE * GAP)
    for count in counts:
        data = [turn for turn in everyone if turn[0] < count]
        for case in ("R0", "R1", "R2", "R3", "R3-", "R4"):
            run = merged(make_merge(case, data[0][1].schema, count), data)
            memory.setdefault(case, []).append(run.peak)
            rates.setdefault(case, []).append(run.rate)
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


def counted(
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


def in_turn(streams: list[Any], batch: int) -> Turns:
    from recension.operators.pipeline import split_ctis

    found: Turns = []
    for start in range(0, max(map(len, streams)), batch):
        for port, stream in enumerate(streams):
            if start < len(stream):
                found.append((port, *split_ctis(stream.slice(start, min(start + batch, len(stream))))))
    return found


def disorder_figure() -> list[Figure]:
    """Figure 4: adjusts put out, with a merge and without; of copies of one stream, and of replicas."""
    shares = (0.0, 0.1, 0.3, 0.5)
    ys: dict[str, list[float]] = {}
    for share in shares:
        outputs, adjusts = counted(share, 3, 1_000, 0.01, at_once=5)
        ys.setdefault("query alone", []).append(float(adjusts))
        for name, streams, policy in (
            ("3 copies, first", outputs[:1] * 3, make_policy("first")),
            ("3 replicas, first", outputs, make_policy("first")),
            ("3 replicas, hf", outputs, make_policy("hf")),
        ):
            run = merged(make_merge("R3", outputs[0].schema, 3, policy), in_turn(streams, 20))
            ys.setdefault(name, []).append(float(run.adjusts))
    paper = "adjusts grow with disorder; the merge emits fewer than the query alone"
    return [Figure("Figure 4, output size against disorder", "disorder", "adjusts", shares, ys, paper)]


def lag_figure() -> list[Figure]:
    """Figure 5: one or two of three inputs lag by some seconds of application time."""
    lags, per_second, batch = (0, 1, 2, 3, 4, 5), 2_000, 1_000
    data = turns(
        "R3",
        SIZE,
        TEXT,
        3,
        batch,
        max_gap=2 * SECOND // per_second,
        event_duration=LIVE * SECOND // per_second,
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
            best = max(merged(make_merge("R3", order[0][1].schema, 3), order).rate for _ in range(2))
            ys.setdefault(f"{late} lagging", []).append(best)
    paper = "throughput rises with lag, more so with more lagging inputs: late ones cost a lookup"
    return [Figure("Figure 5, throughput against lag", "lag (s)", "elements/s", lags, ys, paper)]


def stable_figure() -> list[Figure]:
    """Figure 6: how often stables come."""
    shares = (0.00001, 0.0001, 0.001, 0.01)
    memory: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for share in shares:
        for case in ("R3", "R4", "R0"):
            data = turns(case, SIZE, TEXT, 3, 200, stable_freq=share, event_duration=LIVE * GAP)
            run = merged(make_merge(case, data[0][1].schema, 3), data)
            memory.setdefault(case, []).append(run.peak)
            rates.setdefault(case, []).append(run.rate)
    labels = [f"{share:.3%}" for share in shares]
    paper = "more stables: memory falls, throughput of R3 and R4 falls, that of R0 does not change"
    return [
        Figure("Figure 6a, memory against StableFreq", "StableFreq", "MB", labels, memory, paper),
        Figure("Figure 6b, throughput against StableFreq", "StableFreq", "elements/s", labels, rates, paper),
    ]


FIGURES: tuple[Callable[[], list[Figure]], ...] = (
    inputs_figures,
    disorder_figure,
    lag_figure,
    stable_figure,
)
