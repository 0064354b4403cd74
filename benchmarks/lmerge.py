"""The logical merge: elements consumed a second over three inputs, case by case, on one core.

`notes` reproduces the paper's figures 2 to 10 as tables, see `benchmarks.lmerge_figures`; with the plotting
extra they are drawn too.

Source      Physically Independent Stream Merging, §VI; the targets are ours.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement, Suite
from recension.core.batch import EventBatch, concat

INPUTS, BATCH = 3, 16_384
Turns = list[tuple[int, EventBatch, int | None]]


def turns(case: str, size: int, text: int, inputs: int = INPUTS, batch: int = BATCH, **knobs: Any) -> Turns:
    """Batches of the replicas of one stream in turn: the changes, and the CTI that ends them."""
    from recension.operators.pipeline import split_ctis
    from recension.testing.generator import StreamSettings, replicas

    settings = StreamSettings.of(case, size=size, string_size=text, **knobs)  # type: ignore[arg-type]
    streams = [concat(list(replica)) for replica in replicas(settings, inputs)]
    found: Turns = []
    for start in range(0, max(len(stream) for stream in streams), batch):
        for port, stream in enumerate(streams):
            if start < len(stream):
                found.append((port, *split_ctis(stream.slice(start, min(start + batch, len(stream))))))
    return found


def load(case: str, text: int, size: int, _: Path) -> Turns:
    """The three inputs have ``size`` elements together."""
    made = "R3" if case == "R3-" else case
    return turns(made, size // INPUTS, text)


def run(case: str, data: Turns) -> int:
    """Merge; how many events there are in the end."""
    from recension.operators.lmerge.choice import make_merge

    merge = make_merge(case, data[0][1].schema, INPUTS)
    events = 0
    for port, batch, t in data:
        given = [merge.on_batch(port, batch)]
        if t is not None:
            given.append(merge.on_cti(port, t).batch)
        for out in given:
            events += int((out.kind == 0).sum()) - int(((out.kind == 1) & (out.new_ve == out.vs)).sum())
    assert not merge.state_rows()
    return events


def run_session(data: Turns) -> int:
    """The same through a session, checks of what comes in included."""
    import recension as rc
    from recension.core.batch import cti

    schema = data[0][1].schema
    feeds = [rc.source(f"in{port}", schema, properties=rc.Properties(has_key=True)) for port in range(INPUTS)]
    live, events = rc.session(rc.merge(*feeds)), 0
    for port, batch, t in data:
        live.push(f"in{port}", batch if t is None else concat([batch, cti(t, schema)]))
        for out in live.read().batches:
            events += int((out.kind == 0).sum()) - int(((out.kind == 1) & (out.new_ve == out.vs)).sum())
    return events


def notes() -> list[str]:
    """The paper's figures on this machine."""
    from benchmarks.lmerge_figures import figures

    return figures(Path("bench-results"))


M, K = 1_000_000, 1_000
SHORT = {"R0": 10 * M, "R1": 8 * M, "R2": 3 * M, "R3": 1 * M, "R3-": None, "R4": 600 * K}
LONG = {"R0": 3 * M, "R2": 1 * M, "R3": 500 * K, "R4": 350 * K}

SUITE = Suite(
    "lmerge",
    "Logical merge of three inputs, batches of 16,384: elements consumed a second of one core",
    (
        *(
            Measurement(
                f"{case}, 16 bytes",
                partial(load, case, 16),
                partial(run, case),
                (600 * K,),
                target=target,
                repeats=3,
            )
            for case, target in SHORT.items()
        ),
        Measurement("R3 in a session, 16 bytes", partial(load, "R3", 16), run_session, (600 * K,), repeats=3),
        *(
            Measurement(
                f"{case}, 1,000 bytes",
                partial(load, case, 1000),
                partial(run, case),
                (180 * K,),
                target=target,
                repeats=3,
            )
            for case, target in LONG.items()
        ),
    ),
)
