"""Consistency on histories: waiting changes nothing here, and what depends on arrival is refused by name."""

from __future__ import annotations

from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER
from recension.plan.nodes import AdvanceTime, Align, Cleanse, Finalize, ImportTime
from recension.runners.spark.batch.frame import Frame


def unchanged(node: Align | Cleanse, frame: Frame) -> Frame:
    """A history has no order to wait for and nothing that is not final."""
    return frame


def finalize(node: Finalize, frame: Frame) -> Frame:
    """An endless memory loses nothing; a finite one loses what comes late, and a history has no late."""
    require_endless_memory(node)
    return frame


def require_endless_memory(node: Finalize) -> None:
    """Refuse a finite memory."""
    if node.remember == FOREVER:
        return
    level = " (rc.WEAK)" if node.remember == 0 else ""
    raise RecensionError(
        f"{node.label}{level}: what a finite memory forgets depends on arrival, and a history has none; "
        "run the query as a stream, or leave the memory (finalize, consistency) out of the batch query"
    )


def advance_time(node: AdvanceTime | ImportTime, frame: Frame, clock: Frame | None = None) -> Frame:
    """Where nothing can be late, CTIs change nothing."""
    require_nothing_late(node)
    return frame


def require_nothing_late(node: AdvanceTime | ImportTime) -> None:
    """Refuse CTIs that may come before what they are about."""
    if node.input.properties.is_ordered:
        return
    raise RecensionError(
        f"{node.label}: what comes late depends on arrival, and a history has none; "
        "run the query as a stream, or leave advance_time out of the batch query"
    )
