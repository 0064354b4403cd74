"""The figures of the report: every stream's outputs, CTIs, lag and revisions, and one site in detail."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.demo.drawing import LEFT, RIGHT, WIDTH, Drawing, Scale, seconds_axis, staircase, style_of
from recension.demo.leases import CLOSES, HOUR, HOURS, MINUTE, OPENS, clock
from recension.demo.script import now
from recension.demo.trace import MERGED, StreamOutput, Trace, last_cti
from recension.demo.verdict import history_of

_LANE: Final = 52
_LANES_TOP: Final = 30
_LABEL: Final = 34
_TOP: Final = 16
_HEIGHT: Final = 300
_PANEL: Final = 74
SITE: Final = "library"
_ROW: Final = 34
_MINUTES: Final = 22
_FINAL_MINUTES: Final = 3
# Just before the cut-over: one replica is dead, one silent, one late.
_HOUR: Final = 6
_TRUTH: Final = "in the end"

# Start, end and number of devices.
Answers: TypeAlias = list[tuple[int, int, int]]


def lives(trace: Trace) -> str:
    """A lane for each stream: from its first output to its last, and what happened to it."""
    streams = [*trace.streams, MERGED]
    bottom = _LANES_TOP + _LANE * len(streams)
    drawing = Drawing(bottom + 24, "When each stream put something out")
    x = seconds_axis(drawing, trace.end(), _LANES_TOP - 6, bottom)
    _hours(drawing, trace, x)
    for lane, stream in enumerate(streams):
        _life(drawing, trace, stream, x, _LANES_TOP + _LANE * lane + _LANE / 2)
    return drawing.svg()


def _hours(drawing: Drawing, trace: Trace, x: Scale) -> None:
    free = 0.0
    for hour, at in enumerate(trace.hours):
        drawing.line(x(at), _LANES_TOP - 10, x(at), _LANES_TOP - 4, "mark")
        if x(at) >= free:
            drawing.text(x(at), _LANES_TOP - 14, now(hour), "axis", "middle")
            free = x(at) + _LABEL


def _life(drawing: Drawing, trace: Trace, stream: str, x: Scale, y: float) -> None:
    style = style_of(stream, trace.streams)
    begins, ends = trace.lifetime_of(stream)
    drawing.text(LEFT - 10, y + 4, stream, "lane", "end")
    drawing.rect(x(begins), y - 3, x(ends) - x(begins), 6, f"fill {style} pale", r=3)
    for one in trace.outputs_of(stream):
        changes = one.inserts + one.revisions
        hint = f"{stream} at {one.at:.1f} s: {one.inserts:,} new answers, {one.revisions:,} revisions"
        drawing.dot(x(one.at), y, 2 + changes**0.5 / 8, f"fill {style}", hint)
    marks = [mark for mark in trace.milestones if mark.stream == stream]
    for number, mark in enumerate(marks):
        if mark.is_end:
            drawing.text(x(mark.at), y + 5, "✕", "cross", "middle")
        # By turns below and above the lane, and never over the right edge.
        anchor = "end" if x(mark.at) > WIDTH * 0.6 else "start"
        drawing.text(x(mark.at), y + (-12 if number % 2 else 20), mark.text, "note", anchor)


def final_times(trace: Trace) -> str:
    """The day against the run: where a stream is, and where the merged one is."""
    drawing = Drawing(_HEIGHT + 24, "Up to when answers are final")
    x = seconds_axis(drawing, trace.end(), _TOP, _HEIGHT)
    y = Scale(OPENS, CLOSES, _HEIGHT, _TOP)
    for hour in range(0, HOURS + 1, 2):
        t = OPENS + hour * HOUR
        drawing.line(LEFT, y(t), WIDTH - RIGHT, y(t), "grid")
        drawing.text(LEFT - 10, y(t) + 4, clock(t), "axis", "end")
    fed = [(x(at), y(OPENS + (hour + 1) * HOUR)) for hour, at in enumerate(trace.hours)]
    drawing.path(staircase(fed, x(trace.end())), "stroke fed", "how far the feeds are")
    for stream in [MERGED, *trace.streams]:
        points = [
            (x(at), y(min(t, CLOSES))) for at, t in ctis_over_time(trace.outputs_of(stream)) if t >= OPENS
        ]
        until = x(trace.outputs_of(stream)[-1].at) if trace.outputs_of(stream) else 0.0
        drawing.path(staircase(points, until), f"stroke {style_of(stream, trace.streams)}", stream)
    return drawing.svg()


def ctis_over_time(outputs: Sequence[StreamOutput]) -> list[tuple[float, int]]:
    """How far a stream's answers are final, after each of its outputs."""
    found, reached = [], BEGINNING
    for one in outputs:
        reached = max(reached, one.cti)
        found.append((one.at, reached))
    return found


def lag(trace: Trace) -> str:
    """How many minutes of what the feeds have sent are not final, stream by stream."""
    drawing = Drawing(_HEIGHT * 0.7 + 24, "Lag")
    bottom = _HEIGHT * 0.7
    x = seconds_axis(drawing, trace.end(), _TOP, bottom)
    lags = {stream: _lags(trace, stream) for stream in [MERGED, *trace.streams]}
    worst = max((minutes for points in lags.values() for _, minutes in points), default=1.0)
    y = Scale(0.0, max(worst, 1.0), bottom, _TOP)
    for tick in y.ticks(6):
        drawing.line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid")
        drawing.text(LEFT - 10, y(tick) + 4, f"{tick:g} min", "axis", "end")
    for stream, points in lags.items():
        points_on_page = [(x(at), y(minutes)) for at, minutes in points]
        drawing.path(points_on_page, f"stroke {style_of(stream, trace.streams)}", stream)
    return drawing.svg()


def _lags(trace: Trace, stream: str) -> list[tuple[float, float]]:
    """It grows at once when an hour is fed, and falls with each CTI; a stream that is gone has none."""
    ctis = ctis_over_time(trace.outputs_of(stream))
    if not ctis:
        return []
    _, ends = trace.lifetime_of(stream)
    hours = [at for at in trace.hours if ctis[0][0] < at <= ends]
    points: list[tuple[float, float]] = []
    for at in sorted({*hours, *(at for at, _ in ctis), ends}):
        if at > ends:
            break
        if points:
            points.append((at, points[-1][1]))
        points.append((at, _lag_minutes(trace, ctis, at)))
    return points


def _lag_minutes(trace: Trace, ctis: Sequence[tuple[float, int]], at: float) -> float:
    fed = OPENS + bisect_right(trace.hours, at) * HOUR
    reached = max((t for when, t in ctis if when <= at), default=OPENS)
    return max(fed - max(reached, OPENS), 0) / MINUTE


def revisions(trace: Trace) -> str:
    """A panel for each stream: new answers upwards, revisions downwards."""
    streams = [*trace.streams, MERGED]
    bottom = _TOP + _PANEL * len(streams)
    drawing = Drawing(bottom + 24, "New answers and revisions")
    x = seconds_axis(drawing, trace.end(), _TOP, bottom)
    for panel, stream in enumerate(streams):
        middle = _TOP + _PANEL * panel + _PANEL * 0.55
        drawing.line(LEFT, middle, WIDTH - RIGHT, middle, "base")
        most = max((max(one.inserts, one.revisions, 1) for one in trace.outputs_of(stream)), default=1)
        drawing.text(LEFT - 10, middle + 4, stream, "lane", "end")
        drawing.text(LEFT - 10, middle + 18, f"up to {most:,}", "axis", "end")
        _bars(drawing, trace.outputs_of(stream), x, middle, most, style_of(stream, trace.streams))
    return drawing.svg()


def _bars(
    drawing: Drawing, outputs: Sequence[StreamOutput], x: Scale, y: float, most: int, style: str
) -> None:
    for one in outputs:
        up, down = (_PANEL * 0.5 * n / most for n in (one.inserts, one.revisions))
        hint = f"{one.inserts:,} new answers, {one.revisions:,} revisions"
        drawing.rect(x(one.at) - 3, y - up, 6, up, f"fill {style}", hint)
        drawing.rect(x(one.at) - 3, y, 6, down, f"fill {style} pale", hint)


def one_site(trace: Trace, truth: History) -> str:
    """A row of answers for each stream; what turned out otherwise is outlined."""
    moment = trace.hours[_HOUR]
    streams = [s for s in trace.streams if any(one.at <= moment for one in trace.outputs_of(s))]
    rows = [*streams, MERGED, _TRUTH]
    bottom = _LANES_TOP + _ROW * len(rows)
    drawing = Drawing(bottom + 24, f"The {SITE} as each stream has it")
    cti = last_cti(one for one in trace.outputs_of(MERGED) if one.at <= moment)
    x = _scale(min(max(cti, OPENS), CLOSES))
    _minutes(drawing, x, bottom)
    _final_part(drawing, x, cti, bottom)
    final = _at_site(truth, x)
    for row, name in enumerate(rows):
        outputs = [one for one in trace.outputs_of(name) if one.at <= moment]
        answers = final if name == _TRUTH else _at_site(history_of(outputs, truth), x)
        _intervals(drawing, name, answers, final, x, _LANES_TOP + _ROW * row, style_of(name, trace.streams))
    return drawing.svg()


def _scale(cti: int) -> Scale:
    """A little of what is final, and more of what is not."""
    start = min(cti - _FINAL_MINUTES * MINUTE, CLOSES - _MINUTES * MINUTE)
    return Scale(start, start + _MINUTES * MINUTE, LEFT, WIDTH - RIGHT)


def _final_part(drawing: Drawing, x: Scale, cti: int, bottom: float) -> None:
    drawing.rect(LEFT, _LANES_TOP - 6, x(cti) - LEFT, bottom - _LANES_TOP + 6, "final")
    drawing.line(x(cti), _LANES_TOP - 14, x(cti), bottom, "cti")
    drawing.text(x(cti) - 4, _LANES_TOP - 14, "final", "note", "end")
    words = f"speculative: the merged stream is final up to {clock(cti)}"
    drawing.text(x(cti) + 4, _LANES_TOP - 14, words, "note")


def _minutes(drawing: Drawing, x: Scale, bottom: float) -> None:
    first = -(-int(x.low) // (2 * MINUTE)) * 2 * MINUTE
    for t in range(first, int(x.high) + 1, 2 * MINUTE):
        drawing.line(x(t), _LANES_TOP - 6, x(t), bottom, "grid")
        drawing.text(x(t), bottom + 16, clock(t), "axis", "middle")


def _at_site(history: History, x: Scale) -> Answers:
    """Start, end and number of devices of the answers for the site that are seen on this scale."""
    is_there = np.asarray(pc.equal(history.payload["site"], pa.scalar(SITE)))
    seen = history.filter(is_there & (history.vs < x.high) & (history.ve > x.low))
    devices = seen.payload["devices"].to_pylist()
    return sorted(zip(seen.vs.tolist(), seen.ve.tolist(), devices, strict=True))


def _intervals(
    drawing: Drawing,
    name: str,
    answers: Answers,
    final: Answers,
    x: Scale,
    y: float,
    style: str,
) -> None:
    drawing.text(LEFT - 10, y + _ROW / 2 + 4, name, "lane", "end")
    for vs, ve, devices in answers:
        left, right = max(x(vs), LEFT), min(x(ve), WIDTH - RIGHT)
        state = "" if (vs, ve, devices) in final else " wrong"
        until = "further notice" if ve == FOREVER else clock(ve)
        hint = f"{devices} devices from {clock(vs)} to {until}"
        drawing.rect(left + 0.5, y + 5, right - left - 1, _ROW - 10, f"fill {style} pale{state}", hint, r=2)
        if right - left > 14:
            drawing.text((left + right) / 2, y + _ROW / 2 + 4, str(devices), "number", "middle")
