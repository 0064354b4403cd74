"""Rows that do not come after what their partition has sent, and repeats: found, described, counted."""

from __future__ import annotations

from typing import Final

import numpy as np

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import RecensionError, StreamError
from recension.core.rows import Origin
from recension.core.segments import is_greater
from recension.core.time_kind import TimeKind
from recension.gate.partition_rows import PartitionRows
from recension.gate.partition_state import PartitionState
from recension.gate.repeats import REPEATED

UNORDERED: Final = "does not come after what its partition has sent"


def find_disordered(rows: PartitionRows, repeats: Mask, state: PartitionState) -> Mask:
    """Which rows do not come after what their partition has sent, or are not alone in their place."""
    wrong = np.zeros(len(rows), np.bool_)
    if not rows.placement.order or not len(rows):
        return wrong
    at = rows.at[~repeats[rows.at]]
    columns, partition = [column[at] for column in rows.placement.order], rows.partition[at]
    same = np.append(False, partition[1:] == partition[:-1])[: len(at)]
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    if state.order:
        if len(state.order) != len(columns):
            raise RecensionError(
                f"the order had {len(state.order)} columns before, and has {len(columns)} now"
            )
        known = [column[partition] for column in state.order]
        same |= state.has_order[partition] & ~is_greater(columns, known)
    wrong[at] = same
    return wrong


def describe_disorder(
    rows: PartitionRows, wrong: Mask, state: PartitionState, origin: Origin, kind: TimeKind
) -> StreamError:
    at = int(np.flatnonzero(wrong)[np.argmin(rows.row[wrong])])
    number = int(rows.partition[at])
    name, own = state.names[number], "/".join(str(column[at]) for column in rows.placement.order)
    known = f"order {own} twice"
    if state.has_order[number]:
        mine = [column[[at]] for column in rows.placement.order]
        last = [column[[number]] for column in state.order]
        if bool(is_greater(last, mine).all()):
            known = f"order {own} after {'/'.join(str(column[0]) for column in last)}"
    element = rows.batch.slice(at, at + 1).to_elements(kind)[0] if rows.batch.kind[at] <= CTI + 1 else ""
    place = f"partition {name}: " if name else ""
    reason = f"{place}{UNORDERED}: {known}{f': {element}' if element != '' else ''}"
    return origin.error(reason, int(rows.row[at]))


def leave_out(
    rows: PartitionRows, repeats: Mask, disordered: Mask, partitions: int
) -> list[tuple[str, EventBatch | None, Index]]:
    found: list[tuple[str, EventBatch | None, Index]] = []
    for reason, mask in ((REPEATED, repeats), (UNORDERED, disordered)):
        if bool(mask.any()):
            kept = rows.batch.filter(mask) if reason == UNORDERED else None
            found.append((reason, kept, np.bincount(rows.partition[mask], minlength=partitions)))
    return found
