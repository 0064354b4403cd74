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
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.end_points import EndPoints, is_among
from recension.operators.state.leaf_table import LeafExtract


class KeptMoments(EndPoints):
    """Rows (group, time, n, ...), ``n`` counting the events at that moment alone."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        # What refers to a moment is what counts at it: there is nothing else to remember it for.
        super().__init__({name: kind for name, kind in columns.items() if name != "refs"}, key_schema)

    def around(self, group: Index, time: Ticks, rows: int) -> LeafExtract:
        """The moments about each (group, time), at least ``rows`` before and after it."""
        return self._table.extract_around(group, time, rows)

    def forget(self, t: int, keep: int) -> tuple[Index, Ticks]:
        """Of each group's moments before ``t`` keep the last few; gives back (group, time) of the others."""
        groups = self._take_due(t)
        if not len(groups):
            return groups, groups
        extract = self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
        own = {name: column[~extract.follower] for name, column in extract.columns.items()}
        past = np.flatnonzero((own["time"] < t) & is_among(own["group"], groups))
        group, time = own["group"][past], own["time"][past]
        from_end = np.searchsorted(group, group, "right") - np.arange(len(past))
        goes, stays = from_end > keep, from_end <= keep
        first = np.flatnonzero(stays & ~np.append(False, stays[:-1] & (group[1:] == group[:-1])))
        self._hold(groups, group[first], time[first])
        self._count(group[:0], group[goes])
        rest = np.delete(np.arange(len(own["time"])), past[goes])
        self._table.replace(extract, {name: column[rest] for name, column in own.items()})
        return group[goes], time[goes]
