"""What a window extent costs by either scheme: memory, updates and scans, normalised and weighted.

Arrays have one number a query. Tuple- and time-based windows differ in one thing only, how many tuples are
held when so many have arrived; everything else follows from these two numbers.

Source: temporal coalescing §6.1 and §6.2, equations 1 to 10; coalescing rulings 24 to 32 and 40.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.operators.schemes.constants import Constants, Numbers


@dataclass(frozen=True, slots=True)
class Weights:
    """How much memory, updates and scans matter beside each other (λ)."""

    memory: float = 1.0
    update: float = 1.0
    scan: float = 1.0

    def __str__(self) -> str:
        return f"⟨{self.memory:g}, {self.update:g}, {self.scan:g}⟩"


@dataclass(frozen=True, slots=True)
class Load:
    """So many tuples have arrived (k), so many are in the window (n)."""

    arrived: float
    held: float

    @property
    def expired_count(self) -> float:
        """How many have left the window."""
        return max(0.0, self.arrived - self.held)


@dataclass(frozen=True, slots=True)
class Queries:
    """Distinct coalescing queries over one stream and window: one number each.

    ``cp`` is the probability that a tuple coalesces with the one before it in its group, ``oop`` that it
    arrives out of order. ``row_bytes`` is a coalesced tuple with the query's attributes (r), ``stamp_bytes``
    what is kept of every other tuple behind it (m): a timestamp, and its value unless they are all equal.
    """

    cp: Numbers
    oop: Numbers
    row_bytes: Numbers
    stamp_bytes: Numbers
    groups: Numbers

    def __len__(self) -> int:
        return len(self.cp)

    @classmethod
    def broadcast(
        cls,
        cp: Numbers | list[float],
        oop: Numbers | list[float],
        row_bytes: Numbers | list[float] | float,
        stamp_bytes: Numbers | list[float] | float = 8.0,
        groups: Numbers | list[float] | float = 1.0,
    ) -> Queries:
        """Numbers that are the same for all may be given once."""
        each = np.broadcast_arrays(
            *(np.asarray(x, np.float64) for x in (cp, oop, row_bytes, stamp_bytes, groups))
        )
        return cls(*each)


@dataclass(frozen=True)
class CostModel:
    """Equations 1 to 10 for one window.

    ``row_bytes`` is a tuple of the stream with all its attributes. ``usual_oop`` is the disorder at which the
    greatest update cost is taken: the queries' mean, for at 1 the paper's choices cannot be had (ruling 40).
    """

    constants: Constants
    load: Load
    row_bytes: float
    usual_oop: float
    weights: Weights = Weights()

    def eager_memory(self, q: Queries) -> Numbers:
        """Equation 1: the first tuple of every group is whole, others whole or a timestamp."""
        first = np.minimum(q.groups, self.load.held)
        return first * q.row_bytes + (self.load.held - first) * (
            q.cp * q.stamp_bytes + (1 - q.cp) * q.row_bytes
        )

    def lazy_memory(self) -> float:
        """Equation 2."""
        return self.load.held * self.row_bytes

    def eager_update(self, q: Queries) -> Numbers:
        """Equation 3: all arrivals, and the expiry of those that are gone."""
        c, apart = self.constants, 1 - q.cp
        arrival = (
            apart * c.insert
            + q.cp * c.merge_cost(q.cp, q.oop)
            + q.oop * apart * c.split_cost(q.cp, q.oop, self.load.held)
        )
        expiry = q.cp * c.detach + apart * c.delete
        return self.load.arrived * arrival + self.load.expired_count * expiry

    def lazy_update(self) -> float:
        """Equation 4; late tuples have to be put in place here too."""
        insert, delete = self.constants.lazy_costs
        arrival = insert + self.usual_oop * self.constants.find
        return self.load.arrived * arrival + self.load.expired_count * delete

    def eager_scan(self, q: Queries) -> Numbers:
        """Equation 5: as many reads as there are coalesced tuples; the timestamps behind them cost little."""
        first = np.minimum(q.groups, self.load.held)
        rest, c = self.load.held - first, self.constants
        return c.read * (first + rest * (1 - q.cp)) + c.stamp * rest * q.cp

    def lazy_scan(self, q: Queries) -> Numbers:
        """Equation 6: all tuples are read, and those that coalesce are coalesced."""
        rest = self.load.held - np.minimum(q.groups, self.load.held)
        return self.constants.read * self.load.held + self.constants.coalesce * rest * q.cp

    @property
    def greatest_memory(self) -> float:
        """M_max: nothing is coalesced."""
        return self.load.held * self.row_bytes

    @property
    def greatest_update(self) -> float:
        """U_max: everything is coalesced. Not the greatest there is: eager updates may cost more than 1."""
        one, usual = np.ones(1), np.full(1, self.usual_oop)
        merge_cost = float(self.constants.merge_cost(one, usual)[0])
        return self.load.arrived * merge_cost + self.load.expired_count * self.constants.detach

    @property
    def greatest_scan(self) -> float:
        """S_max: everything is coalesced during the scan."""
        return self.load.held * (self.constants.read + self.constants.coalesce)

    def eager_parts(self, q: Queries) -> tuple[Numbers, Numbers, Numbers]:
        """Equation 7: memory, update and scan beside their greatest."""
        return (
            self.eager_memory(q) / self.greatest_memory,
            self.eager_update(q) / self.greatest_update,
            self.eager_scan(q) / self.greatest_scan,
        )

    def eager_cost(self, q: Queries) -> Numbers:
        """Equation 9: what each query costs with an extent of its own."""
        memory, update, scan = self.eager_parts(q)
        return self.weights.memory * memory + self.weights.update * update + self.weights.scan * scan

    def lazy_cost(self, q: Queries) -> Numbers:
        """Equation 10, the part of each query: its scans of the shared extent."""
        return self.weights.scan * self.lazy_scan(q) / self.greatest_scan

    def shared_cost(self) -> float:
        """Equation 10, the part that is paid once if any query is lazy: keeping the shared extent."""
        memory = self.lazy_memory() / self.greatest_memory
        return self.weights.memory * memory + self.weights.update * self.lazy_update() / self.greatest_update
