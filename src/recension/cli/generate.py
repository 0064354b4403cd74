"""`recension generate`: test streams with the LMerge paper's knobs, and replicas of one stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from recension.cli.outputs import STANDARD, OutputTarget, TextFormat, check_folder
from recension.cli.progress import show_progress
from recension.cli.root import app
from recension.core.batch import EventBatch
from recension.core.formats.files import format_errors
from recension.core.formats.writer import replacement_of
from recension.core.ticks import DurationLike, duration
from recension.testing.generator import (
    Burst,
    Case,
    Congestion,
    Failure,
    Profile,
    SettingsError,
    StreamSettings,
    TimedBatch,
    add_arrivals,
    replica,
)
from recension.testing.generator import generate as one_stream
from recension.testing.generator.settings import SCHEMA

_T = TypeVar("_T")
_ARRIVAL = pa.schema([("arrival", pa.int64())])
_REPLICA_REVISIONS = 0.2
_STREAM, _ORDER, _COPIES, _WAY = "The stream", "Order and revisions", "Replicas", "On the way"


def _option(text: str, panel: str, *names: str, **more: Any) -> Any:
    """An option of its parameter's name, unless others are given."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


@app.command()
def generate(
    output: Annotated[
        Path,
        _option(
            "File to write (its name says the format), - for standard output; with --replicas, a folder.",
            _STREAM,
            "--output",
            "-o",
        ),
    ],
    case: Annotated[Case, _option("The class of the stream.", _STREAM)] = "R3",
    size: Annotated[int, _option("Number of elements, without revisions.", _STREAM)] = 200_000,
    seed: Annotated[int, _option("The same seed gives the same streams.", _STREAM)] = 0,
    string_size: Annotated[int, _option("Length of the payload's text (the paper has 1000).", _STREAM)] = 16,
    stable_freq: Annotated[float, _option("Probability that an element is a CTI.", _STREAM)] = 0.01,
    max_gap: Annotated[
        str, _option("Largest gap between elements: ticks, or for example 20s.", _STREAM)
    ] = "20s",
    event_duration: Annotated[
        str | None, _option("Lifetime of an event; by default about 10,000 events live at a time.", _STREAM)
    ] = None,
    duration_spread: Annotated[
        float, _option("Lifetimes vary by plus or minus this fraction.", _STREAM)
    ] = 0.0,
    timestamps: Annotated[
        bool, _option("Write times as timestamps instead of ticks.", _STREAM, "--timestamps")
    ] = False,
    close: Annotated[bool, _option("End with a CTI at the end of time.", _STREAM)] = True,
    disorder: Annotated[
        float | None, _option("Fraction of inserts out of order; 0.2 in R3 and R4.", _ORDER)
    ] = None,
    reach: Annotated[
        str | None, _option("How far back disorder goes; by default 50 times the largest gap.", _ORDER)
    ] = None,
    ties: Annotated[float | None, _option("Probability of no gap at all; 0.2 in R1 and R2.", _ORDER)] = None,
    duplicates: Annotated[
        float | None, _option("Fraction of inserts that repeat another; 0.05 in R4.", _ORDER)
    ] = None,
    revisions: Annotated[
        float | None, _option("Fraction of events first sent wrong; 0.2 for replicas in R3 and R4.", _ORDER)
    ] = None,
    replicas: Annotated[
        int | None,
        _option("Write this many different streams of one history: replica-1, ...", _COPIES, min=1),
    ] = None,
    format_: Annotated[
        Literal["parquet", "jsonl", "csv", "arrow"] | None,
        _option("Format of replicas (default Parquet), or of - (default JSON Lines).", _COPIES, "--format"),
    ] = None,
    arrival: Annotated[
        Path | None,
        _option("Folder for the arrival times: one file per stream, with one row per element.", _WAY),
    ] = None,
    rate: Annotated[float, _option("Elements a second.", _WAY)] = 5_000.0,
    lag: Annotated[
        list[str] | None, _option("Delay of a stream. Once for all, or once for each replica.", _WAY)
    ] = None,
    burst: Annotated[
        float, _option("Probability that an element is delayed; the paper has 0.003 to 0.005.", _WAY)
    ] = 0.0,
    congestion: Annotated[
        list[str] | None,
        _option(
            "A slow period, START+LENGTH such as 10s+5s. Once or per replica, like --lag; 0 for none.", _WAY
        ),
    ] = None,
    fail_after: Annotated[
        list[int] | None,
        _option("Stop after this many elements. Once or per replica, like --lag; 0 for never.", _WAY),
    ] = None,
    restart_after: Annotated[str | None, _option("Continue this long after the failure.", _WAY)] = None,
    repeat: Annotated[int, _option("Elements sent again after a restart.", _WAY)] = 0,
) -> None:
    """Write test streams: inserts with a number and a text, some out of order, some revised, and CTIs.

    The knobs are those of the LMerge paper. With --replicas, logically equal streams that differ in order,
    revisions and CTIs. Files have no arrival times: lag, bursts and congestion only affect the --arrival
    files.
    """
    if replicas and revisions is None and case in ("R3", "R4"):
        revisions = _REPLICA_REVISIONS
    settings = StreamSettings.of(
        case,
        size=size,
        seed=seed,
        string_size=string_size,
        stable_freq=stable_freq,
        max_gap=_parse_length(max_gap),
        event_duration=_parse_length(event_duration) if event_duration else None,
        duration_spread=duration_spread,
        close=close,
        disorder=disorder,
        reach=_parse_length(reach) if reach else None,
        ties=ties,
        duplicates=duplicates,
        revisions=revisions,
    )
    if arrival is None and (lag or burst or congestion):
        raise SettingsError("stream files have no arrival times: give --arrival FOLDER to get them")
    if arrival and arrival.resolve() == (output if replicas else output.parent).resolve():
        raise SettingsError("--arrival must be another folder than that of the streams")
    count = replicas or 1
    profiles = [
        Profile(
            rate,
            duration(_parse_length(delay)),
            Burst(burst) if burst else None,
            _parse_congestion(period),
            failure,
        )
        for delay, period, failure in zip(
            _one_each(lag, count, "0", "--lag"),
            _one_each(congestion, count, "0", "--congestion"),
            _failures(_one_each(fail_after, count, 0, "--fail-after"), restart_after, repeat),
            strict=True,
        )
    ]
    job = _CommonSettings(settings, pa.timestamp("us", "UTC") if timestamps else pa.int64(), arrival)
    outputs = _outputs(output, replicas, format_, arrival)
    _write(job, outputs, profiles, is_replica=bool(replicas))


def _outputs(
    output: Path, replicas: int | None, form: str | None, arrival: Path | None
) -> list[OutputTarget]:
    """Where the streams go: all that can be refused is refused before the first is made."""
    if arrival is not None:
        check_folder(arrival)
    if replicas is None:
        one = OutputTarget(output, form=_text_format(form) if str(output) == STANDARD else TextFormat.JSONL)
        one.check()
        return [one]
    if str(output) == STANDARD:
        raise SettingsError("--output -: replicas are several streams, and need a folder")
    check_folder(output)
    return [OutputTarget(output / f"replica-{n}.{form or 'parquet'}") for n in range(1, replicas + 1)]


def _text_format(form: str | None) -> TextFormat:
    if form == "parquet":
        raise SettingsError("--output -: Parquet is not for standard output; use jsonl, csv or arrow")
    return TextFormat(form or "jsonl")


@dataclass(frozen=True, slots=True)
class _CommonSettings:
    """What all streams of one call have in common."""

    settings: StreamSettings
    time_type: pa.DataType
    arrival: Path | None


def _write(
    job: _CommonSettings, outputs: Sequence[OutputTarget], profiles: Sequence[Profile], *, is_replica: bool
) -> None:
    """Write every stream, with a progress bar on a terminal."""
    for number, (output, profile) in enumerate(zip(outputs, profiles, strict=True), start=1):
        if is_replica:
            output.path.parent.mkdir(parents=True, exist_ok=True)
        batches = replica(job.settings, number) if is_replica else one_stream(job.settings)
        stream = add_arrivals(batches, profile, seed=job.settings.seed + number)
        elements = _write_one(job, output, stream)
        if not output.is_standard:
            print(f"{output.path}: {elements:,} elements")


def _write_one(job: _CommonSettings, output: OutputTarget, stream: Iterable[TimedBatch]) -> int:
    # A revision adds an element and a half to the event it corrects.
    expected = job.settings.size * (1 + 1.6 * job.settings.revisions)
    name = "stream" if output.is_standard else output.path.stem
    arrival = job.arrival / f"{name}.parquet" if job.arrival else None
    with show_progress(name, expected) as meter:

        def count_elements() -> Iterator[EventBatch]:
            for batch in _write_arrivals(stream, arrival):
                meter.advance(len(batch))
                yield batch

        output.write_stream(count_elements(), SCHEMA, job.time_type)
    return meter.elements


def _write_arrivals(stream: Iterable[TimedBatch], path: Path | None) -> Iterator[EventBatch]:
    """The batches unchanged; their arrival times go to a file, one row per element."""
    if path is None:
        yield from (batch for batch, _ in stream)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        format_errors(str(path)),
        replacement_of(path) as partial,
        pq.ParquetWriter(partial, _ARRIVAL) as writer,
    ):
        for batch, arrival in stream:
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array(arrival)], schema=_ARRIVAL))
            yield batch


def _parse_length(text: str) -> DurationLike:
    """A length of time as typed: digits are ticks."""
    return int(text) if re.fullmatch(r"-?\d+", text.strip()) else text


def _one_each(given: Sequence[_T] | None, count: int, absent: _T, name: str) -> Sequence[_T]:
    """One value for each stream: given once for all of them, once for each, or not at all."""
    if not given or len(given) == 1:
        return [given[0] if given else absent] * count
    if len(given) != count:
        raise SettingsError(f"{name} is given {len(given)} times for {count} streams: once, or once for each")
    return given


def _parse_congestion(text: str) -> Congestion | None:
    if text == "0":
        return None
    start, plus, length = text.partition("+")
    if not plus:
        raise SettingsError(f"--congestion {text}: write START+LENGTH, for example 10s+5s")
    return Congestion(duration(_parse_length(start)), duration(_parse_length(length)))


def _failures(after: Sequence[int], restart: str | None, repeat: int) -> list[Failure | None]:
    down = duration(_parse_length(restart)) if restart else None
    return [Failure(elements, down, repeat) if elements else None for elements in after]
