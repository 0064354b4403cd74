"""What the operators of a pipeline do: a report a micro-batch from every shard, and their totals.

Reports travel to the driver in Spark's own progress reports: as a text with all of them, which
`pipeline_metrics` adds up, and beside it as flat numbers (`NUMBERS`), for anybody's listener.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count, zip_longest
from typing import Any, Final, TypeAlias

from recension.core import wall_clock
from recension.core.errors import RecensionError
from recension.gate.partition_state import PartitionProgress
from recension.operators.due import AHEAD
from recension.runners.local import Session
from recension.runners.metrics import Metrics, dropped_count, late_count

_NAME: Final = "recension"
_REMEDY: Final = "send ctis, or make them of its rows: a watermark= of rc.spark.stream, or .advance_time(...)"
_pipelines: Final = count()
_NOW: Final = (
    *("cti", "state_rows", "state_bytes", "inputs", "is_halted"),
    *("partitions", "held_back_by", "held_at", "held_since", "freed_by", "contradictions"),
)
_MEMORY: Final = ("resident_bytes", "spilled_bytes")
STAGES: Final = ("load_seconds", "kernel_seconds", "save_seconds", "bytes_written", "rows_written")
_SUMS: Final = tuple(f.name for f in fields(Metrics) if f.name not in ("name", "warnings", *_NOW))
# What a report has as flat numbers, and how shards and levels add up; those of the answer come from the last.
SUMMED: Final = {
    **dict.fromkeys(("elements", "events_out", "retractions_out", "late", "dropped"), "bigint"),
    **dict.fromkeys(("state_rows", "state_bytes", "resident_bytes", "spilled_bytes"), "bigint"),
    **{name: "double" if name.endswith("seconds") else "bigint" for name in STAGES},
}
CTI_NUMBER: Final = "cti"
CLOCK: Final = "clock"
LAG: Final = "lag_seconds"
NUMBERS: Final = (*SUMMED, CTI_NUMBER, LAG)
# Which pipeline of the query, a level, a fragment, and the number of an operator there.
OperatorKey: TypeAlias = tuple[int, int, int, int]


class Report:
    """What the operators of a session do, one micro-batch after the other.

    The session is asked for its metrics once a micro-batch, and the last answer is kept for the difference.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._metrics: list[dict[str, Any]] = []
        self._counts: dict[str, Counter[str]] = {}
        self._unreadable: dict[str, Counter[str]] = {}
        self._inputs: dict[str, str] = {}
        self.elements = self.rows = 0

    def restart(self) -> None:
        """Report what happens from here on: the session has been restored."""
        self._metrics = [asdict(metrics) for metrics in self._session.metrics()]
        self._counts = self._session.counts()

    def add_unreadable(self, infos: Iterable[str]) -> None:
        """Count what tasks that read a source could not read."""
        for info in filter(None, infos):
            for name, counts in json.loads(info).items():
                self._unreadable[name] = self._unreadable.get(name, Counter()) + Counter(counts)

    def add_inputs(self, states: Mapping[str, str], ignored: Mapping[str, Counter[str]]) -> None:
        """The streams of a merge, and what was ignored of them."""
        self._inputs |= states
        for name, counts in ignored.items():
            self._unreadable[name] = self._unreadable.get(name, Counter()) + counts

    def take(self, *, is_first: bool = True) -> dict[str, Any]:
        """What happened since the last taking, as plain values.

        All shards know the same of partitions, but for what they have dropped, and of starts far ahead: the
        first tells it of all.
        """
        before, counted, unreadable = self._metrics, self._counts, self._unreadable
        inputs, elements, rows = self._inputs, self.elements, self.rows
        self._unreadable, self._inputs, self.elements, self.rows = {}, {}, 0, 0
        self.restart()
        counts = {n: c - counted.get(n, Counter()) for n, c in self._counts.items()}
        for name, more in unreadable.items():
            counts[name] = counts.get(name, Counter()) + more
        if not is_first:
            counts = {name: Counter({r: n for r, n in c.items() if r != AHEAD}) for name, c in counts.items()}
        # Operators that came with a stream which joined are at the end.
        nothing: dict[str, Any] = {}
        pairs = zip_longest(before, self._metrics, fillvalue=nothing)
        operators = [_metrics_since(old, new) for old, new in pairs]
        for operator in operators:
            operator["partitions"] = [p for p in operator["partitions"] if is_first or p["dropped"]]
        reasons = sum((Counter(found) for found in counts.values()), Counter[str]())
        return {
            "elements": elements,
            "rows": rows,
            CLOCK: wall_clock.now(),
            "late": late_count(reasons),
            "dropped": dropped_count(reasons),
            "state_rows": sum(operator["state_rows"] for operator in operators),
            "state_bytes": sum(operator["state_bytes"] for operator in operators),
            "operators": operators,
            "counts": {name: dict(counted) for name, counted in counts.items() if counted},
            "inputs": inputs,
        }


def _metrics_since(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator did in one micro-batch, and what it holds now."""
    done = {name: new[name] - old.get(name, 0) for name in _SUMS}
    remedy = None if new["held_back_by"] is None else _REMEDY
    warnings = new["warnings"][len(old.get("warnings", ())) :]
    return {**new, **done, "warnings": warnings, "freed_by": remedy}


@dataclass
class LevelMetrics:
    """What came to the shards of one level of a pipeline: events of sources, or what fragments below gave."""

    level: int
    rows: Counter[int] = field(default_factory=Counter)
    """How many rows came to each shard; CTIs of sources come to all of them."""

    @property
    def largest_share(self) -> float:
        """The part of all rows that came to one shard; one shard of n has 1 / n if they are spread evenly."""
        return max(self.rows.values(), default=0) / max(self.rows.total(), 1)

    def __str__(self) -> str:
        where = "one shard" if len(self.rows) == 1 else f"{len(self.rows)} shards"
        share = f"{self.largest_share:.0%} in the largest"
        return f"fragment {self.level}: {self.rows.total():,} rows in {where}, {share}"


@dataclass
class PipelineMetrics:
    """Totals over shards and micro-batches; state and CTIs as of the last one."""

    operators: list[Metrics] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    turns: int = 0
    live_turns: int = 0
    """Micro-batches of a shard that found their engine in the worker."""
    resident_bytes: int = 0
    """With a bound on memory: state in the memory of the workers after the last micro-batch."""
    spilled_bytes: int = 0
    """With a bound on memory: state in files of the workers then."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Of a merge over a root: whether each stream is joining, joined, leaving or has left."""
    levels: list[LevelMetrics] = field(default_factory=list)
    """How the rows of each level were spread over shards: much in one shard keeps the others waiting."""


def pipeline_metrics(progress: Iterable[Mapping[str, Any]]) -> PipelineMetrics:
    """The metrics of the micro-batches of these progress reports."""
    total = PipelineMetrics()
    operators: dict[OperatorKey, Metrics] = {}
    levels: dict[tuple[int, int], LevelMetrics] = {}
    for report in progress:
        latest: dict[OperatorKey, Metrics] = {}
        if reports := shard_reports(report):
            total.resident_bytes = total.spilled_bytes = 0
        for pipeline, shard in reports:
            _add_report(total, shard)
            level = levels.setdefault((pipeline, shard["level"]), LevelMetrics(shard["level"]))
            level.rows[shard["shard"]] += shard["rows"]
            for number, values in enumerate(shard["operators"]):
                key = (pipeline, shard["level"], shard["fragment"], number)
                _add_sums(operators.setdefault(key, Metrics(values["name"])), values)
                _merge_state(latest, key, values)
        for key, now in latest.items():
            for name in _NOW:
                setattr(operators[key], name, getattr(now, name))
    total.operators = [operators[key] for key in sorted(operators)]
    total.levels = [levels[key] for key in sorted(levels)]
    return total


def metrics_names(
    asked: str | None, inputs: Iterable[Mapping[str, int]], avoided: Mapping[str, int] | None = None
) -> tuple[str, dict[str, int]]:
    """What the metrics of a pipeline are called, and so all names that it and its inputs take in its query.

    A query may be made of several pipelines, one reading what another puts out: they are numbered from its
    beginning, so that one that is started again has the same names. ``avoided`` are names of its neighbours.
    """
    taken: dict[str, int] = {}
    for names in inputs:
        if (name := first_conflict(names, taken)) is not None:
            raise RecensionError(
                f"two pipelines that go into one query call their metrics {name!r}: give one of them another "
                "name, as in rc.spark.stream(..., name='sites')"
            )
        taken.update(names)
    if asked is not None and not asked.strip():
        raise RecensionError("the name of a pipeline's metrics is empty")
    free = (_NAME if number == 1 else f"{_NAME} {number}" for number in count(1))
    held = taken.keys() | (avoided or {}).keys()
    name = next(name for name in free if name not in held) if asked is None else f"{_NAME} {asked}"
    if name in taken:
        raise RecensionError(f"a pipeline that this one reads has its metrics' name, {name!r}: take another")
    return name, taken | {name: next(_pipelines)}


def first_conflict(names: Mapping[str, int], taken: Mapping[str, int]) -> str | None:
    """A name that another pipeline has."""
    return next((name for name, built in names.items() if taken.get(name, built) != built), None)


def shard_reports(progress: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The reports of all shards for one micro-batch, each with the number of its pipeline in the query."""
    rows = observed_rows(progress).values()
    return [(number, report) for number, row in enumerate(rows) for report in json.loads(_first(row))]


def observed_rows(progress: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """What was observed of each pipeline, by the name of its metrics, those that others read first."""
    observed = progress["observedMetrics"]
    names = [name for name in observed if name == _NAME or name.startswith(f"{_NAME} ")]
    return {name: observed[name] for name in sorted(names, key=_position)}


def _position(name: str) -> tuple[bool, int, str]:
    number = name.removeprefix(_NAME).strip()
    return (False, int(number or 1), "") if number.isdecimal() or not number else (True, 0, name)


def observed_numbers(row: Any) -> dict[str, Any]:
    """The flat numbers of an observed row. Connect gives rows of a list of values, and one of names."""
    named = dict(zip(row[1], row[0], strict=True)) if isinstance(row[0], list) else row.asDict()
    return {name: named.get(name) for name in NUMBERS}


def _first(observed: Sequence[Any]) -> str:
    """The first value of an observed row, the text of all reports."""
    value = observed[0]
    return str(value[0] if isinstance(value, list) else value)


def elements_in(progress: Mapping[str, Any]) -> int:
    """How many elements came in with one micro-batch."""
    return sum(report["elements"] for _, report in shard_reports(progress))


def _add_report(total: PipelineMetrics, report: Mapping[str, Any]) -> None:
    total.turns += 1
    total.live_turns += bool(report["was_live"])
    total.inputs |= report["inputs"]
    for stage in STAGES:
        total.stages[stage] += report[stage]
    for name in _MEMORY:
        setattr(total, name, getattr(total, name) + report.get(name, 0))
    for name, counts in report["counts"].items():
        total.counts[name] = total.counts.get(name, Counter()) + Counter(counts)


def _add_sums(operator: Metrics, values: Mapping[str, Any]) -> None:
    for name in (*_SUMS, "warnings"):
        setattr(operator, name, getattr(operator, name) + values[name])


def _merge_state(latest: dict[OperatorKey, Metrics], key: OperatorKey, values: Mapping[str, Any]) -> None:
    """State adds up over shards; the CTI is the least of all; inputs are the same everywhere."""
    partitions = {p["name"]: PartitionProgress(**p) for p in values["partitions"]}
    if key not in latest:
        latest[key] = Metrics(values["name"], **{name: values[name] for name in _NOW})
        latest[key].partitions = list(partitions.values())
        return
    now = latest[key]
    for known in now.partitions:
        more = partitions[known.name].dropped if known.name in partitions else {}
        partitions[known.name] = replace(known, dropped=Counter(known.dropped) + Counter(more))
    now.partitions = sorted(partitions.values(), key=lambda p: (len(p.name), p.name))
    if values["cti"] < now.cti and values["held_back_by"] is not None:
        for name in ("held_back_by", "held_at", "held_since", "freed_by"):
            setattr(now, name, values[name])
    now.cti = min(now.cti, values["cti"])
    now.state_rows += values["state_rows"]
    now.state_bytes += values["state_bytes"]
    now.is_halted |= values["is_halted"]
    now.contradictions = dict(Counter(now.contradictions) + Counter(values["contradictions"]))
