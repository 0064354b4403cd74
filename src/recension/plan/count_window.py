"""Count windows: one answer for every run of ``n`` consecutive moments at which events start (or end)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from recension.core.errors import SchemaError
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.properties import Properties

Moment: TypeAlias = Literal["start", "end"]


@dataclass(frozen=True)
class CountWindows:
    """From each distinct start (end) to the ``n``-th from there, one tick beyond it (ruling G2)."""

    n: int
    by: Moment = "start"

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise SchemaError(f"count_window: a window counts one moment or more, not {self.n!r}")
        if self.by not in get_args(Moment):
            raise SchemaError(f"count_window: by is 'start' or 'end', not {self.by!r}")

    def __str__(self) -> str:
        return f"windows of {self.n} {self.by}{'' if self.n == 1 else 's'}"


@dataclass(frozen=True, eq=False)
class CountAggregate(SnapshotAggregate):
    """Aggregates per count window, for every group by itself; a result lives as long as its window."""

    windows: CountWindows | None = None

    @property
    def counted(self) -> CountWindows:
        """The windows."""
        assert self.windows is not None
        return self.windows

    @property
    def label(self) -> str:
        return f"{super().label}, {self.windows}"

    @property
    def breaks_ties(self) -> bool:
        """Counted by end, an event whose end moves moves itself: what that changes is not in the past."""
        return self.counted.by == "start" and super().breaks_ties

    def derive_properties(self) -> Properties:
        """Windows are shown and taken back whole: once they have ended by the watermark, eager ones at once.

        Windows of one group end in the order in which they start; those of different groups need not.
        """
        of = self.input.properties
        waits = self.speculate != "eager"
        in_order = waits and of.is_ordered and not self.keys and not self.breaks_ties
        is_single = self.rows is None or self.rows.k == 1
        known = Properties(has_key=True, is_shrink_only=True, is_point=self.counted.n == 1)
        return replace(
            known,
            is_insert_only=waits and of.is_perfect,
            is_ordered=in_order,
            is_strictly_increasing=in_order and of.is_perfect and is_single,
        )
