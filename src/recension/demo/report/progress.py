"""How far each stream is final, how far it is behind, and what it takes back: over the run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from recension.core.ticks import BEGINNING
from recension.demo.leases import CLOSES, HOUR, HOURS, MINUTE, OPENS, clock
from recension.demo.report.drawing import (
    LEFT,
    RIGHT,
    WIDTH,
    Drawing,
    Scale,
    seconds_axis,
    staircase,
    style_of,
)
from recension.demo.trace import MERGED, Said, Trace

_TOP: Final = 16
_HEIGHT: Final = 300
_PANEL: Final = 74


def promises(trace: Trace) -> str:
    """The day against the run: where a stream is, and where the merged one is."""
    drawing = Drawing(_HEIGHT + 24, "Up to when answers are final")
    x = seconds_axis(drawing, trace.end(), _TOP, _HEIGHT)
    y = Scale(OPENS, CLOSES, _HEIGHT, _TOP)
    for hour in range(0, HOURS + 1, 2):
        t = OPENS + hour * HOUR
        drawing.line(LEFT, y(t), WIDTH - RIGHT, y(t), "grid")
        drawing.text(LEFT - 10, y(t) + 4, clock(t), "axis", "end")
    heard = [(x(at), y(OPENS + (hour + 1) * HOUR)) for hour, at in enumerate(trace.hours)]
    drawing.path(staircase(heard, x(trace.end())), "stroke heard", "how far the feeds are")
    for stream in [MERGED, *trace.streams]:
        told = [(x(at), y(min(t, CLOSES))) for at, t in promised(trace.of(stream)) if t >= OPENS]
        until = x(trace.of(stream)[-1].at) if trace.of(stream) else 0.0
        drawing.path(staircase(told, until), f"stroke {style_of(stream, trace.streams)}", stream)
    return drawing.svg()


def promised(said: Sequence[Said]) -> list[tuple[float, int]]:
    """How far a stream's answers are final, after each of its words."""
    found, reached = [], BEGINNING
    for one in said:
        reached = max(reached, one.promise)
        found.append((one.at, reached))
    return found


def lag(trace: Trace) -> str:
    """How many minutes of what the feeds have told are not final, stream by stream."""
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
        placed = [(x(at), y(minutes)) for at, minutes in points]
        drawing.path(placed, f"stroke {style_of(stream, trace.streams)}", stream)
    return drawing.svg()


def _lags(trace: Trace, stream: str) -> list[tuple[float, float]]:
    """It grows at once when an hour is told, and falls when a stream promises more; the dead have none."""
    told = promised(trace.of(stream))
    if not told:
        return []
    _, ends = trace.life(stream)
    hours = [at for at in trace.hours if told[0][0] < at <= ends]
    points: list[tuple[float, float]] = []
    for at in sorted({*hours, *(at for at, _ in told), ends}):
        if at > ends:
            break
        if points:
            points.append((at, points[-1][1]))
        points.append((at, _behind(trace, told, at)))
    return points


def _behind(trace: Trace, told: Sequence[tuple[float, int]], at: float) -> float:
    heard = OPENS + bisect_right(trace.hours, at) * HOUR
    reached = max((t for when, t in told if when <= at), default=OPENS)
    return max(heard - max(reached, OPENS), 0) / MINUTE


def revisions(trace: Trace) -> str:
    """A panel for each stream: new answers upwards, revisions downwards."""
    streams = [*trace.streams, MERGED]
    bottom = _TOP + _PANEL * len(streams)
    drawing = Drawing(bottom + 24, "New answers and revisions")
    x = seconds_axis(drawing, trace.end(), _TOP, bottom)
    for panel, stream in enumerate(streams):
        middle = _TOP + _PANEL * panel + _PANEL * 0.55
        drawing.line(LEFT, middle, WIDTH - RIGHT, middle, "base")
        most = max((max(said.inserts, said.revisions, 1) for said in trace.of(stream)), default=1)
        drawing.text(LEFT - 10, middle + 4, stream, "lane", "end")
        drawing.text(LEFT - 10, middle + 18, f"up to {most:,}", "axis", "end")
        _bars(drawing, trace.of(stream), x, middle, most, style_of(stream, trace.streams))
    return drawing.svg()


def _bars(drawing: Drawing, said: Sequence[Said], x: Scale, y: float, most: int, style: str) -> None:
    for one in said:
        up, down = (_PANEL * 0.5 * n / most for n in (one.inserts, one.revisions))
        hint = f"{one.inserts:,} new answers, {one.revisions:,} revisions"
        drawing.rect(x(one.at) - 3, y - up, 6, up, f"fill {style}", hint)
        drawing.rect(x(one.at) - 3, y, 6, down, f"fill {style} pale", hint)
