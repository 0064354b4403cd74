"""Windows of ``n`` consecutive moments, their content summed up from sums of 1, 2, 4, … moments.

    n = 6      |--- 2 ---|------- 4 -------|

Every window is put together in the same way from its own first moment on, so that the same events always
give the same floating-point sum, and a window shown earlier is retracted exactly as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index, Mask
from recension.core.ticks import Ticks
from recension.operators import double_double as dd
from recension.operators.snapshot.working_set import Side
from recension.operators.windows.moments import Axis, Sums

_Values: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Consecutive:
    """Windows in order of (group, start); ``row`` is where on the axis each begins."""

    row: Index
    group: Index
    start: Ticks
    side: Side

    @property
    def end(self) -> Ticks:
        """One tick beyond the last moment."""
        return self.side.following

    def __len__(self) -> int:
        return len(self.row)


def windows_on(axis: Axis, sums: Sums, n: int, limit: int, *, due: bool) -> Consecutive:
    """The windows that end by ``limit`` and hold a changed moment; with ``due``, or end at one looked at."""
    at = np.flatnonzero(sums.n)
    size = max(0, len(at) - n + 1)
    first, last = at[:size], at[len(at) - size :]
    changed = np.append(0, np.cumsum(axis.is_changed))
    wanted: Mask = changed[last + 1] > changed[first]
    if due:
        wanted |= axis.is_due[last]
    # Beyond the last moment of a group, or of what was read, no window holds a change.
    wanted &= (axis.group[first] == axis.group[last]) & (axis.time[last] < limit)
    keep = np.flatnonzero(wanted)
    first, last = first[keep], last[keep]
    side = Side(
        np.ones(len(keep), np.bool_),
        axis.time[last] + 1,
        sums_of(sums.n[at], n, np.add)[keep],
        [sums_of(column[at], n, np.add)[keep] for column in sums.ints],
        [_pair(sums_of(np.stack([h[at], low[at]]), n, _add_pairs)[:, keep]) for h, low in sums.pairs],
    )
    return Consecutive(first, axis.group[first], axis.time[first], side)


def sums_of(values: _Values, n: int, add: Callable[[_Values, _Values], _Values]) -> _Values:
    """The sums of every ``n`` consecutive values along the last axis.

    >>> sums_of(np.array([1, 2, 3, 4, 5]), 3, np.add).tolist()
    [6, 9, 12]
    """
    size, offset, width = max(0, values.shape[-1] - n + 1), 0, 1
    total: _Values | None = None
    while size:
        if n & width:
            part = values[..., offset : offset + size]
            total = part if total is None else add(total, part)
            offset += width
        if 2 * width > n:
            break
        values = add(values[..., :-width], values[..., width:])
        width *= 2
    return values[..., :0] if total is None else total


def _add_pairs(a: _Values, b: _Values) -> _Values:
    return np.stack(dd.add((a[0], a[1]), (b[0], b[1])))


def _pair(values: _Values) -> tuple[_Values, _Values]:
    return values[0], values[1]
