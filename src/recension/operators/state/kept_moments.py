"""The moments of each group: those from the last CTI on, and the few before it that open windows need.

A window of ``n`` moments that reaches up to the present begins at most ``n - 1`` moments in the past. What
lies further back is final and forgotten (rulings G7, G8).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.block_table import Extract
from recension.operators.state.end_points import EndPoints


class KeptMoments(EndPoints):
    """Rows (group, time, n, ...), ``n`` counting the events at that moment alone."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        # What refers to a moment is what counts at it: there is nothing else to remember it for.
        super().__init__({name: kind for name, kind in columns.items() if name != "refs"}, key_schema)

    def around(self, group: Index, time: Ticks, rows: int) -> Extract:
        """The moments about each (group, time), at least ``rows`` before and after it."""
        return self._table.extract_around(group, time, rows)

    def forget(self, t: int, keep: int) -> tuple[Index, Ticks]:
        """Of each group's moments before ``t`` keep the last few; gives back (group, time) of the others."""
        is_due = np.zeros(len(self._points_of), np.bool_)
        is_due[self._expiring.pop_before(t)[1]] = True
        groups = np.flatnonzero(is_due)
        if not len(groups):
            return groups, groups
        extract = self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
        own = {name: column[~extract.follower] for name, column in extract.columns.items()}
        past = np.flatnonzero((own["time"] < t) & is_due[own["group"]])
        group, time = own["group"][past], own["time"][past]
        from_end = np.searchsorted(group, group, "right") - np.arange(len(past))
        goes, stays = from_end > keep, from_end <= keep
        self._held[groups] = FOREVER
        np.minimum.at(self._held, group[stays], time[stays])
        np.subtract.at(self._points_of, group[goes], 1)
        rest = np.delete(np.arange(len(own["time"])), past[goes])
        self._table.replace(extract.blocks, {name: column[rest] for name, column in own.items()})
        return group[goes], time[goes]
