"""Histories as pictures: lifetimes as bars, keys as lanes; as SVG for notebooks, or with matplotlib.

What a stream took back is drawn thin, below its bar. Of a long history the first events are drawn, and the
picture says so. Payload is text: it is escaped wherever it becomes markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, RETRACT, EventBatch, Index
from recension.core.errors import RecensionError, suggest_name
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind, describe_time
from recension.core.values import values_of

MOST: Final = 2_000
_MOST_IN_NOTEBOOK: Final = 200
_ROWS: Final = 20
_FEW: Final = 30
_ROW, _BAR, _LEFT, _WIDTH, _AXIS = 14, 9, 110, 760, 18
_DAY: Final = 86_400e6
_STYLES: Final = {"final": "#2f6db3", "speculative": "#9dbfe6", "gone": "#a3485a", "cti": "#c8641b"}


@dataclass(frozen=True)
class RetractedParts:
    """What the retractions of a stream removed, and how far it is final."""

    parts: History
    cti: int

    @staticmethod
    def of(batch: EventBatch, time_type: TimeKind) -> RetractedParts:
        """What the retractions of a stream removed: from the new end to the old one."""
        shorter = batch.filter((batch.kind == RETRACT) & (batch.new_ve < batch.ve))
        ctis = batch.vs[batch.kind == CTI]
        payload = pa.Table.from_batches([shorter.payload])
        parts = History(shorter.new_ve, shorter.ve, payload, pa.int64() if time_type is None else time_type)
        return RetractedParts(parts, int(ctis.max()) if len(ctis) else BEGINNING)


@dataclass(frozen=True)
class Picture:
    """Where everything is drawn: bars by lane and row, from the first time to the last finite one."""

    history: History
    retracted: RetractedParts | None
    lane_names: list[str]
    lane_tops: list[int]
    rows: Index
    ghost_rows: Index
    low: int
    high: int
    left_out: int

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.lane_tops[-1]

    @property
    def cti(self) -> int:
        """How far all is final; a history by itself is all final."""
        return FOREVER if self.retracted is None else self.retracted.cti

    def clip(self, times: Ticks) -> Ticks:
        """Times within the picture."""
        return np.clip(times, self.low, self.high)

    def notes(self) -> str:
        """What is not in it."""
        return (
            f"the first {len(self.history):,} events; {self.left_out:,} more are not drawn"
            if self.left_out
            else ""
        )


def draw(
    history: History, retracted: RetractedParts | None = None, *, lanes: str | None = None, most: int = MOST
) -> Picture:
    """Find a place for every event."""
    column = _lane_column(history, lanes)
    first, left_out = _first_events(history, most), max(0, len(history) - most)
    ghosts = None if retracted is None else _first_events(retracted.parts, most)
    sides = [first] if ghosts is None else [first, ghosts]
    low, high = _extent([side.vs for side in sides], [side.ve for side in sides])
    keys = [_keys(side, column) for side in sides]
    names = sorted({key for side in keys for key in side}, key=_natural)
    tops, rows = [0], np.zeros(len(first), np.int64)
    for name in names:
        mine = np.flatnonzero(np.array([key == name for key in keys[0]], np.bool_))
        own = _pack(first.vs[mine], first.ve[mine])
        rows[mine] = tops[-1] + own
        tops.append(tops[-1] + (int(own.max()) if len(own) else 0) + 1)
    by_name = dict(zip(names, tops, strict=False))
    ghost_rows = np.array([by_name[key] for key in keys[1]], np.int64) if ghosts is not None else rows[:0]
    shown_parts = None if retracted is None or ghosts is None else RetractedParts(ghosts, retracted.cti)
    return Picture(first, shown_parts, names, tops, rows, ghost_rows, low, high, left_out)


def _lane_column(history: History, lanes: str | None) -> str | None:
    """The column whose values are lanes: as asked, or the first text that has few of them."""
    names = history.schema.names
    if lanes is not None:
        if lanes not in names:
            raise RecensionError(
                f"plot: no column {lanes!r}{suggest_name(lanes, names)}; there are {', '.join(names)}"
            )
        return lanes
    texts = [f.name for f in history.schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]
    few = [name for name in texts if pc.count_distinct(history.payload[name]).as_py() <= _FEW]
    return next(iter(few), None)


def _first_events(history: History, most: int) -> History:
    """The first events by start."""
    if len(history) <= most:
        return history
    keep = np.zeros(len(history), np.bool_)
    keep[np.argsort(history.vs, kind="stable")[:most]] = True
    return history.filter(keep)


def _extent(starts: Sequence[Ticks], ends: Sequence[Ticks]) -> tuple[int, int]:
    times = np.concatenate([np.zeros(0, np.int64), *starts, *ends])
    finite = times[(times != FOREVER) & (times != BEGINNING)]
    if not len(finite):
        return 0, 1
    low, high = int(finite.min()), int(finite.max())
    return low, max(high, low + 1)


def _keys(history: History, column: str | None) -> list[str]:
    if column is None:
        return [""] * len(history)
    return ["null" if value is None else str(value) for value in values_of(history.payload[column])]


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers in their order, before texts."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _pack(vs: Ticks, ve: Ticks) -> Index:
    """Rows for events, so that none overlap in one."""
    rows, ends = np.zeros(len(vs), np.int64), list[int]()
    for at in np.lexsort((ve, vs)).tolist():
        row = next((i for i, end in enumerate(ends) if end <= vs[at]), len(ends))
        ends[row : row + 1] = [int(ve[at])]
        rows[at] = row
    return rows


def history_html(history: History, retracted: RetractedParts | None = None) -> str:
    """A table of the first events and a small timeline."""
    picture = draw(history, retracted, most=_MOST_IN_NOTEBOOK)
    order = np.lexsort((history.ve, history.vs))[:_ROWS]
    payload = history.payload.take(pa.array(order)) if history.payload.num_columns else history.payload
    cells = {
        "_vs": [describe_time(t, history.time_type) for t in history.vs[order].tolist()],
        "_ve": [describe_time(t, history.time_type) for t in history.ve[order].tolist()],
    } | {name: _texts(payload[name]) for name in payload.column_names}
    left = len(history) - len(order)
    return f"<div>{timeline_svg(picture) if len(history) else ''}{html_table(cells, left)}</div>"


def _texts(column: pa.ChunkedArray) -> list[str]:
    return ["" if value is None else str(value) for value in values_of(column)]


def html_table(cells: dict[str, list[str]], left: int) -> str:
    """Columns of texts as a table; ``left`` rows are not among them."""
    head = "".join(f"<th>{escape(name)}</th>" for name in cells)
    rows = zip(*cells.values(), strict=True)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def timeline_svg(picture: Picture) -> str:
    """The picture as SVG, which shows by itself."""
    history, kind = picture.history, picture.history.time_type
    scale = (_WIDTH - _LEFT - 4) / (picture.high - picture.low)

    def x(times: Ticks) -> list[float]:
        places: list[float] = (
            (picture.clip(times).astype(np.float64) - picture.low) * scale + _LEFT
        ).tolist()
        return places

    parts = list[str]()
    until = _LEFT + (min(max(picture.cti, picture.low), picture.high) - picture.low) * scale
    labels = _labels(history)
    for x0, x1, row, vs, ve, words in zip(
        x(history.vs),
        x(history.ve),
        picture.rows.tolist(),
        history.vs.tolist(),
        history.ve.tolist(),
        labels,
        strict=True,
    ):
        title = f"{words} [{describe_time(vs, kind)}, {describe_time(ve, kind)})"
        pieces = [(x0, min(x1, until), "final"), (max(x0, until), x1, "speculative")]
        parts += [
            _rect(a, row * _ROW, b - a, _BAR, style, title) for a, b, style in pieces if b > a or x0 == x1
        ]
    if picture.retracted is not None:
        gone = picture.retracted.parts
        for x0, x1, row in zip(x(gone.vs), x(gone.ve), picture.ghost_rows.tolist(), strict=True):
            parts.append(_rect(x0, row * _ROW + _BAR + 1, x1 - x0, 2, "gone", "taken back"))
        if picture.low < picture.cti < picture.high:
            parts.append(
                _rect(until, 0, 1.5, picture.height * _ROW, "cti", f"cti {describe_time(picture.cti, kind)}")
            )
    for name, top in zip(picture.lane_names, picture.lane_tops, strict=False):
        parts.append(_text(_LEFT - 6, top * _ROW + _BAR, name if len(name) <= 16 else name[:15] + "…", "end"))
    bottom = picture.height * _ROW + _AXIS - 4
    parts.append(_text(_LEFT, bottom, describe_time(picture.low, kind), "start"))
    parts.append(_text(_WIDTH - 4, bottom, describe_time(picture.high, kind), "end"))
    height = picture.height * _ROW + _AXIS
    note = f"<p>{picture.notes()}</p>" if picture.left_out else ""
    what = f"timeline of {len(history):,} events"
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{what}">'
    return f"{opening}{''.join(parts)}</svg>{note}"


def _rect(x: float, y: float, width: float, height: float, style: str, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.6, 0.8):.1f}" height="{height}"'
    return f'<rect {place} fill="{_STYLES[style]}"><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    style = f'font-size="10" fill="currentColor" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'


def _labels(history: History) -> list[str]:
    columns = [_texts(history.payload[name]) for name in history.schema.names]
    names = history.schema.names
    rows = zip(*columns, strict=True) if columns else [()] * len(history)
    return [", ".join(f"{name} {cell}" for name, cell in zip(names, row, strict=True)) for row in rows]


def plot(picture: Picture, ax: Any = None) -> Any:
    """The picture on matplotlib axes, which are given back; new ones if none are given."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib import dates
    except ImportError:
        raise RecensionError("plot needs matplotlib: pip install 'recension[plot]'") from None
    if ax is None:
        _, ax = plt.subplots(figsize=(10, min(20, 1.2 + 0.28 * max(picture.height, 1))), layout="constrained")
    kind = picture.history.time_type
    is_dated = bool(pa.types.is_timestamp(kind))

    def x(times: Any) -> Any:
        clipped = picture.clip(np.asarray(times, np.int64)).astype(np.float64)
        return clipped / _DAY if is_dated else clipped

    history = picture.history
    until = np.full(len(history), picture.cti)
    for start, end, style in (
        (history.vs, np.minimum(history.ve, until), "final"),
        (np.maximum(history.vs, until), history.ve, "speculative"),
    ):
        is_there = end > start
        left = x(start[is_there])
        width = x(end[is_there]) - left
        ax.barh(
            picture.rows[is_there],
            width,
            left=left,
            height=0.6,
            color=_STYLES[style],
            edgecolor="white",
            linewidth=0.4,
        )
    if picture.retracted is not None:
        gone = picture.retracted.parts
        left = x(gone.vs)
        ax.barh(picture.ghost_rows + 0.4, x(gone.ve) - left, left=left, height=0.1, color=_STYLES["gone"])
        if picture.low < picture.cti < picture.high:
            ax.axvline(float(x(picture.cti)), color=_STYLES["cti"])
    middles = [
        (top + below - 1) / 2 for top, below in zip(picture.lane_tops, picture.lane_tops[1:], strict=False)
    ]
    # matplotlib would take what stands between two dollars for a formula.
    ax.set_yticks(middles, [name.replace("$", r"\$") for name in picture.lane_names])
    ax.set_ylim(max(picture.height, 1) - 0.5, -0.5)
    if is_dated:
        ax.xaxis_date(kind.tz or "UTC")
        locator = ax.xaxis.get_major_locator()
        ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=kind.tz or "UTC"))  # type: ignore[no-untyped-call]
    if picture.notes():
        ax.set_title(picture.notes(), fontsize="small")
    return ax
