"""When the R3 merge shows what an input has: before it must, or not.

Whatever a policy shows is put right, at the latest, when a stable would make it final. `Location 1` of the
paper is an adjust, `location 2` the first insert of a key.

Source      Physically Independent Stream Merging, §V-A; rulings 32–37.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.lmerge.merge import NONE, OUT

PolicyName: TypeAlias = Literal["first", "eager", "hf", "ff", "lead", "quorum"]
Leader: TypeAlias = Literal["stable", "starts", "unfrozen"]


class MergeView(Protocol):
    """What a policy may ask of the merge."""

    def ends(self, port: int) -> Ticks:
        """The end each input, or the output, has for every node."""

    def live_ports(self) -> list[int]:
        """The inputs that have not left."""

    def count_unfrozen(self, port: int) -> int:
        """How many events an input has that no stable has passed."""

    @property
    def leader(self) -> int:
        """The input of the last stable that had an effect."""


class Policy(ABC):
    """Decides which nodes follow an input when that input changes them."""

    only_final = False
    """Are events shown only when they are fully frozen?"""
    follows = False
    """Does the whole output follow the input that leads?"""

    def note(self, port: int, vs: Ticks) -> None:
        """An input has sent elements with these starts."""

    @abstractmethod
    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        """Of the nodes that an input has just changed: which follow it now."""

    def snapshot(self) -> pa.Table:
        """What the policy remembers."""
        return pa.table({})

    def restore(self, table: pa.Table) -> None:
        """Remember what `snapshot` gave."""


class First(Policy):
    """Out3: a key is shown as the first input has it; changes wait until they are final."""

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        missing: Mask = (merge.ends(OUT)[nodes] == NONE) & (merge.ends(port)[nodes] != NONE)
        return missing


class Eager(Policy):
    """Out1: every change is shown."""

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        return np.ones(len(nodes), np.bool_)


class HalfFrozen(Policy):
    """Out2, for latency: a key is shown when a stable has passed its start, and never removed."""

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        return np.zeros(len(nodes), np.bool_)


class FullyFrozen(HalfFrozen):
    """Out2, for silence: an event is shown when it is final; nothing is ever adjusted, and stables wait."""

    only_final = True


class Lead(Policy):
    """The output is what the input of the last effective stable says."""

    follows = True

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        return np.full(len(nodes), port == merge.leader)


class LeadByStarts(First):
    """A key is shown first by the input that has sent the latest start."""

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}

    def note(self, port: int, vs: Ticks) -> None:
        self._latest[port] = max(self._latest.get(port, BEGINNING), int(vs.max(initial=BEGINNING)))

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        latest = max(merge.live_ports(), key=lambda one: (self._latest.get(one, BEGINNING), -one))
        return super().follows_input(port, nodes, merge) & (port == latest)

    def snapshot(self) -> pa.Table:
        kinds = pa.schema([("port", pa.int64()), ("vs", pa.int64())])
        return pa.table({"port": list(self._latest), "vs": list(self._latest.values())}, kinds)

    def restore(self, table: pa.Table) -> None:
        self._latest = dict(zip(table["port"].to_pylist(), table["vs"].to_pylist(), strict=True))


class LeadByUnfrozen(First):
    """A key is shown first by the input that has the most events which may still go."""

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        most = max(merge.live_ports(), key=lambda one: (merge.count_unfrozen(one), -one))
        return super().follows_input(port, nodes, merge) & (port == most)


class Quorum(First):
    """A key is shown when so large a part of the inputs has it."""

    def __init__(self, part: float) -> None:
        self._part = part

    def follows_input(self, port: int, nodes: Index, merge: MergeView) -> Mask:
        live = merge.live_ports()
        holders = np.zeros(len(nodes), np.int64)
        for one in live:
            holders += merge.ends(one)[nodes] != NONE
        return super().follows_input(port, nodes, merge) & (holders >= math.ceil(self._part * len(live)))


def make_policy(name: PolicyName, leader: Leader = "stable", quorum: float = 0.5) -> Policy:
    """The policy of that name."""
    match name, leader:
        case "first", _:
            return First()
        case "eager", _:
            return Eager()
        case "hf", _:
            return HalfFrozen()
        case "ff", _:
            return FullyFrozen()
        case "lead", "stable":
            return Lead()
        case "lead", "starts":
            return LeadByStarts()
        case "lead", "unfrozen":
            return LeadByUnfrozen()
        case "quorum", _:
            return Quorum(quorum)
    raise RecensionError(f"merge: no policy {name!r} with leader {leader!r}")
