"""What the operators of a running pipeline do, out of Spark's own progress reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Final, TypeAlias

from recension.runners.metrics import Metrics

_NAME: Final = "recension "
_pipelines: Final = count()
_NOW: Final = ("cti", "state_rows", "state_bytes", "inputs", "is_halted")
_STAGES: Final = ("load_seconds", "kernel_seconds", "save_seconds", "bytes_written")
# Which pipeline of the query, a level, and the number of an operator there.
Place: TypeAlias = tuple[int, int, int]


@dataclass
class PipelineMetrics:
    """Totals over shards and micro-batches; state and promises as of the last one."""

    operators: list[Metrics] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_STAGES, 0.0))
    turns: int = 0
    live_turns: int = 0
    """Micro-batches of a shard that found their engine in the worker."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Of a merge over a root: whether each stream is joining, joined, leaving or has left."""


def pipeline_metrics(progress: Iterable[Mapping[str, Any]]) -> PipelineMetrics:
    """The metrics of the micro-batches of these progress reports."""
    total = PipelineMetrics()
    operators: dict[Place, Metrics] = {}
    for report in progress:
        latest: dict[Place, Metrics] = {}
        for pipeline, told in reports(report):
            _add(total, told)
            for number, values in enumerate(told["operators"]):
                key = (pipeline, told["level"], number)
                _count(operators.setdefault(key, Metrics(values["name"])), values)
                _hold(latest, key, values)
        for key, now in latest.items():
            for name in _NOW:
                setattr(operators[key], name, getattr(now, name))
    total.operators = [operators[key] for key in sorted(operators)]
    return total


def metrics_name() -> str:
    """A name for a pipeline's reports. A query may be made of several, one reading what another puts out."""
    return f"{_NAME}{next(_pipelines)}"


def reports(progress: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """What every shard of every pipeline told of one micro-batch, with the pipeline's place in the query."""
    observed = progress["observedMetrics"]
    names = [name for name in observed if name.startswith(_NAME)]
    # Numbered as they were built; a query that is started again has other numbers, in the same order.
    names.sort(key=lambda name: int(name.removeprefix(_NAME)))
    return [(place, json.loads(text)) for place, n in enumerate(names) for text in observed[n]["reports"]]


def events_of(progress: Mapping[str, Any]) -> int:
    """How many elements came in with one micro-batch."""
    return sum(told["elements"] for _, told in reports(progress))


def _add(total: PipelineMetrics, told: Mapping[str, Any]) -> None:
    total.turns += 1
    total.live_turns += bool(told["was_live"])
    total.inputs |= told["inputs"]
    for stage in _STAGES:
        total.stages[stage] += told[stage]
    for name, counts in told["counts"].items():
        total.counts[name] = total.counts.get(name, Counter()) + Counter(counts)


def _count(operator: Metrics, values: Mapping[str, Any]) -> None:
    for name in (f.name for f in fields(Metrics) if f.name not in ("name", *_NOW)):
        setattr(operator, name, getattr(operator, name) + values[name])


def _hold(latest: dict[Place, Metrics], key: Place, values: Mapping[str, Any]) -> None:
    """State adds up over shards; a promise is made when all have made it; all shards have the same inputs."""
    if key not in latest:
        latest[key] = Metrics(values["name"], **{name: values[name] for name in _NOW})
        return
    now = latest[key]
    now.cti = min(now.cti, values["cti"])
    now.state_rows += values["state_rows"]
    now.state_bytes += values["state_bytes"]
    now.is_halted |= values["is_halted"]
