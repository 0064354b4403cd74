"""Who spoke when: a lane for each stream, from its first word to its last."""

from __future__ import annotations

from typing import Final

from recension.demo.report.drawing import LEFT, WIDTH, Drawing, Scale, seconds_axis, style_of
from recension.demo.script import now
from recension.demo.trace import MERGED, Trace

_LANE: Final = 52
_TOP: Final = 30
_LABEL: Final = 34


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
    begins, ends = trace.life(stream)
    drawing.text(LEFT - 10, y + 4, stream, "lane", "end")
    drawing.rect(x(begins), y - 3, x(ends) - x(begins), 6, f"fill {style} pale", r=3)
    for said in trace.of(stream):
        changes = said.inserts + said.revisions
        hint = f"{stream} at {said.at:.1f} s: {said.inserts:,} new answers, {said.revisions:,} revisions"
        drawing.dot(x(said.at), y, 2 + changes**0.5 / 8, f"fill {style}", hint)
    marks = [mark for mark in trace.marks if mark.stream == stream]
    for number, mark in enumerate(marks):
        if mark.is_end:
            drawing.text(x(mark.at), y + 5, "✕", "cross", "middle")
        # By turns below and above the lane, and never over the right edge.
        anchor = "end" if x(mark.at) > WIDTH * 0.6 else "start"
        drawing.text(x(mark.at), y + (-12 if number % 2 else 20), mark.words, "note", anchor)
