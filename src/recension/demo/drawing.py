"""Shapes as SVG: a few of them, styled by the page, with the times of a run from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 920
LEFT: Final = 84
RIGHT: Final = 20
_STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200)


@dataclass(frozen=True)
class Scale:
    """From values to positions on the page."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + part * (self.stop - self.start)

    def ticks(self, at_most: int = 10) -> list[float]:
        """Round values, not too many."""
        length = self.high - self.low
        step = next((s for s in _STEPS if length / s <= at_most), length or 1)
        first = -(-self.low // step) * step
        return [first + i * step for i in range(int((self.high - first) // step) + 1)]


@dataclass
class Drawing:
    """A figure under way."""

    height: float
    title: str
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>')

    def path(self, points: Sequence[tuple[float, float]], style: str, title: str = "") -> None:
        """Through all the points."""
        if points:
            d = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self.parts.append(f'<path d="{d}" class="{style}">{_hint(title)}</path>')

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, title: str = "", r: float = 0
    ) -> None:
        """A box; ``title`` is shown under the pointer."""
        shape = (
            f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0):.1f}" rx="{r}"'
        )
        self.parts.append(f'<rect {shape} class="{style}">{_hint(title)}</rect>')

    def dot(self, x: float, y: float, radius: float, style: str, title: str = "") -> None:
        """A circle."""
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{style}">{_hint(title)}</circle>'
        )

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        """Words at a place."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def svg(self) -> str:
        """The whole figure."""
        box = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        return f'<svg {box} role="img" aria-label="{escape(self.title)}">{"".join(self.parts)}</svg>'


def _hint(title: str) -> str:
    return f"<title>{escape(title)}</title>" if title else ""


def seconds_axis(drawing: Drawing, end: float, top: float, bottom: float) -> Scale:
    """The seconds of the run, with a fine line at each round one."""
    x = Scale(0.0, max(end, 0.001), LEFT, WIDTH - RIGHT)
    for tick in x.ticks():
        drawing.line(x(tick), top, x(tick), bottom, "grid")
        drawing.text(x(tick), bottom + 16, f"{tick:g} s", "axis", "middle")
    return x


def staircase(points: Iterable[tuple[float, float]], until: float) -> list[tuple[float, float]]:
    """A value that holds until the next one."""
    steps: list[tuple[float, float]] = []
    for x, y in points:
        if steps:
            steps.append((x, steps[-1][1]))
        steps.append((x, y))
    return [*steps, (until, steps[-1][1])] if steps else []


def style_of(stream: str, streams: Sequence[str]) -> str:
    """The name of a stream's colour: the merged one has its own."""
    return f"s{streams.index(stream) + 1}" if stream in streams else "merged"
