"""The question: how many devices are online at each site, and what rate was promised to them?

Two plans answer it. Their physical answers differ in nearly every row; what they mean is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import recension as rc
from recension.core.events import Event
from recension.demo.leases import SCHEMA
from recension.plan.properties import Properties, meet

LEASES: Final = "leases"
# At every moment the merged answers are those of one replica, the one that is furthest.
POLICY: Final = "lead"
_UNWATCHED: Final = "lab"


def first_plan() -> rc.Stream:
    """Leaves the lab out, then counts; answers at once, also for times that are still to come."""
    watched = rc.source(LEASES, SCHEMA).where(rc.col("site") != _UNWATCHED)
    return watched.group_by("site").agg(devices=rc.count(), mbits=rc.sum("mbits"), speculate="eager")


def other_plan() -> rc.Stream:
    """Counts everywhere, then leaves the lab out; answers as far as its input has come."""
    everywhere = rc.source(LEASES, SCHEMA).group_by("site")
    counted = everywhere.agg(devices=rc.count(), mbits=rc.sum("mbits"), speculate="ordered")
    return counted.where(rc.col("site") != _UNWATCHED)


def common_properties() -> Properties:
    """What holds for the answers of both plans: by this the merge chooses its algorithm."""
    return meet(first_plan().properties, other_plan().properties)


def complete_from(events: Sequence[Event], since: int) -> int:
    """From when on are answers complete that are made of the leases that end at ``since`` or later?

    An answer begins with the last lease before it that began or ended. So from the time on at which at every
    site a lease has begun since: answers that end later have begun later, too.
    """
    begun: dict[str, int] = {}
    for event in events:
        if event.vs >= since:
            site = event.payload["site"]
            begun[site] = min(begun.get(site, event.vs), event.vs)
    return max(begun.values()) + 1
