"""Who spoke when; and one site for some minutes, as each stream tells it at one moment of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.demo.leases import CLOSES, MINUTE, OPENS, clock
from recension.demo.report.drawing import LEFT, RIGHT, WIDTH, Drawing, Scale, seconds_axis, style_of
from recension.demo.script import now
from recension.demo.trace import MERGED, Trace, final_up_to
from recension.demo.verdict import history_of

_LANE: Final = 52
_TOP: Final = 30
_ROW: Final = 34
_LABEL: Final = 34
SHOWN_SITE: Final = "library"
_SHOWN_MINUTES: Final = 22
_SETTLED_MINUTES: Final = 3
# Just before the cut-over: one replica is dead, one silent, one late.
_SHOWN_AFTER_HOUR: Final = 5


def lives(trace: Trace) -> str:
    """A lane for each stream: while it lives, what it said, what happened to it."""
    streams = [*trace.streams, MERGED]
    bottom = _TOP + _LANE * len(streams)
    drawing = Drawing(bottom + 24, "Who spoke when")
    x = seconds_axis(drawing, trace.end(), _TOP - 6, bottom)
    _hours(drawing, trace, x)
    for lane, stream in enumerate(streams):
        _life(drawing, trace, stream, x, _TOP + _LANE * lane + _LANE / 2)
    return drawing.svg()


def _hours(drawing: Drawing, trace: Trace, x: Scale) -> None:
    free = 0.0
    for hour, at in enumerate(trace.hours):
        drawing.line(x(at), _TOP - 10, x(at), _TOP - 4, "mark")
        if x(at) >= free:
            drawing.text(x(at), _TOP - 14, now(hour), "axis", "middle")
            free = x(at) + _LABEL


def _life(drawing: Drawing, trace: Trace, stream: str, x: Scale, y: float) -> None:
    style = style_of(stream, trace.streams)
    marks = [mark for mark in trace.marks if mark.stream == stream]
    begins = marks[0].at if marks else 0.0
    ends = next((m.at for m in marks if m.words.startswith(("killed", "leaves"))), trace.end())
    drawing.text(LEFT - 10, y + 4, stream, "lane", "end")
    drawing.rect(x(begins), y - 3, x(ends) - x(begins), 6, f"fill {style} pale", r=3)
    for said in trace.of(stream):
        changes = said.inserts + said.revisions
        hint = f"{stream} at {said.at:.1f} s: {said.inserts:,} new answers, {said.revisions:,} revisions"
        drawing.dot(x(said.at), y, 2 + changes**0.5 / 8, f"fill {style}", hint)
    for number, mark in enumerate(marks):
        is_end = mark.at == ends and mark is marks[-1] and mark.words.startswith(("killed", "leaves"))
        if is_end:
            drawing.text(x(mark.at), y + 5, "✕", "cross", "middle")
        is_right = x(mark.at) > WIDTH * 0.6
        below = y + (20 if number % 2 == 0 else -12)
        drawing.text(x(mark.at), below, mark.words, "note", "end" if is_right else "start")


def one_site(trace: Trace, truth: History) -> str:
    """What each stream said by then of the same minutes; what turned out otherwise is outlined."""
    moment = trace.hours[_SHOWN_AFTER_HOUR + 1] if len(trace.hours) > _SHOWN_AFTER_HOUR + 1 else trace.end()
    streams = [s for s in trace.streams if any(said.at <= moment for said in trace.of(s))]
    merged_so_far = [said for said in trace.of(MERGED) if said.at <= moment]
    promise = min(max(final_up_to(merged_so_far), OPENS), CLOSES)
    start = min(promise - _SETTLED_MINUTES * MINUTE, CLOSES - _SHOWN_MINUTES * MINUTE)
    x = Scale(start, start + _SHOWN_MINUTES * MINUTE, LEFT, WIDTH - RIGHT)
    rows = [*streams, MERGED, "in the end"]
    drawing = Drawing(_TOP + _ROW * len(rows) + 24, f"The {SHOWN_SITE} as each stream tells it")
    _minutes(drawing, x, _TOP + _ROW * len(rows))
    final = _at_site(truth, x)
    drawing.rect(LEFT, _TOP - 6, x(promise) - LEFT, _ROW * len(rows) + 6, "settled")
    drawing.line(x(promise), _TOP - 14, x(promise), _TOP + _ROW * len(rows), "promise")
    drawing.text(x(promise) - 4, _TOP - 14, "final", "note", "end")
    words = f"speculative: the merged stream is final up to {clock(promise)}"
    drawing.text(x(promise) + 4, _TOP - 14, words, "note")
    for row, name in enumerate(rows):
        said = [one for one in trace.of(name) if one.at <= moment]
        told = final if name == "in the end" else _at_site(history_of(said, truth), x)
        _intervals(drawing, name, told, final, x, _TOP + _ROW * row, style_of(name, trace.streams))
    return drawing.svg()


def _minutes(drawing: Drawing, x: Scale, bottom: float) -> None:
    first = -(-int(x.low) // (2 * MINUTE)) * 2 * MINUTE
    for t in range(first, int(x.high) + 1, 2 * MINUTE):
        drawing.line(x(t), _TOP - 6, x(t), bottom, "grid")
        drawing.text(x(t), bottom + 16, clock(t), "axis", "middle")


def _at_site(history: History, x: Scale) -> list[tuple[int, int, int]]:
    """Start, end and number of devices of the answers for the site that are seen on this scale."""
    is_there = np.asarray(pc.equal(history.payload["site"], pa.scalar(SHOWN_SITE)))
    seen = history.filter(is_there & (history.vs < x.high) & (history.ve > x.low))
    devices = seen.payload["devices"].to_pylist()
    return sorted(zip(seen.vs.tolist(), seen.ve.tolist(), devices, strict=True))


def _intervals(
    drawing: Drawing,
    name: str,
    told: Sequence[tuple[int, int, int]],
    final: Sequence[tuple[int, int, int]],
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
