"""Some minutes of one site, as each stream tells them at one moment of the run, and as they were."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.demo.leases import CLOSES, MINUTE, OPENS, clock
from recension.demo.report.drawing import LEFT, RIGHT, WIDTH, Drawing, Scale, style_of
from recension.demo.trace import MERGED, Trace, final_up_to
from recension.demo.verdict import history_of

SITE: Final = "library"
_TOP: Final = 30
_ROW: Final = 34
_MINUTES: Final = 22
_SETTLED_MINUTES: Final = 3
# Just before the cut-over: one replica is dead, one silent, one late.
_HOUR: Final = 6
_TRUTH: Final = "in the end"

# Start, end and number of devices.
Answers: TypeAlias = list[tuple[int, int, int]]


def one_site(trace: Trace, truth: History) -> str:
    """A row of answers for each stream; what turned out otherwise is outlined."""
    moment = trace.hours[_HOUR]
    streams = [s for s in trace.streams if any(said.at <= moment for said in trace.of(s))]
    rows = [*streams, MERGED, _TRUTH]
    bottom = _TOP + _ROW * len(rows)
    drawing = Drawing(bottom + 24, f"The {SITE} as each stream tells it")
    promise = final_up_to(said for said in trace.of(MERGED) if said.at <= moment)
    x = _scale(min(max(promise, OPENS), CLOSES))
    _minutes(drawing, x, bottom)
    _settled(drawing, x, promise, bottom)
    final = _at_site(truth, x)
    for row, name in enumerate(rows):
        said = [one for one in trace.of(name) if one.at <= moment]
        told = final if name == _TRUTH else _at_site(history_of(said, truth), x)
        _intervals(drawing, name, told, final, x, _TOP + _ROW * row, style_of(name, trace.streams))
    return drawing.svg()


def _scale(promise: int) -> Scale:
    """A little of what is settled, and more of what is not."""
    start = min(promise - _SETTLED_MINUTES * MINUTE, CLOSES - _MINUTES * MINUTE)
    return Scale(start, start + _MINUTES * MINUTE, LEFT, WIDTH - RIGHT)


def _settled(drawing: Drawing, x: Scale, promise: int, bottom: float) -> None:
    drawing.rect(LEFT, _TOP - 6, x(promise) - LEFT, bottom - _TOP + 6, "settled")
    drawing.line(x(promise), _TOP - 14, x(promise), bottom, "promise")
    drawing.text(x(promise) - 4, _TOP - 14, "final", "note", "end")
    words = f"speculative: the merged stream is final up to {clock(promise)}"
    drawing.text(x(promise) + 4, _TOP - 14, words, "note")


def _minutes(drawing: Drawing, x: Scale, bottom: float) -> None:
    first = -(-int(x.low) // (2 * MINUTE)) * 2 * MINUTE
    for t in range(first, int(x.high) + 1, 2 * MINUTE):
        drawing.line(x(t), _TOP - 6, x(t), bottom, "grid")
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
    told: Answers,
    final: Answers,
    x: Scale,
    y: float,
    style: str,
) -> None:
    drawing.text(LEFT - 10, y + _ROW / 2 + 4, name, "lane", "end")
    for vs, ve, devices in told:
        left, right = max(x(vs), LEFT), min(x(ve), WIDTH - RIGHT)
        state = "" if (vs, ve, devices) in final else " wrong"
        until = "further notice" if ve == FOREVER else clock(ve)
        hint = f"{devices} devices from {clock(vs)} to {until}"
        drawing.rect(left + 0.5, y + 5, right - left - 1, _ROW - 10, f"fill {style} pale{state}", hint, r=2)
        if right - left > 14:
            drawing.text((left + right) / 2, y + _ROW / 2 + 4, str(devices), "number", "middle")
