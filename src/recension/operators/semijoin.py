"""Temporal semi and anti join: left events while some, or while no, matching right event is alive.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history equals the oracle's: maximal parts of the left lifetimes;
            an output CTI is the least of the input CTIs. The output lengthens where parts grow together.
State, Cost, Source   see `coverage_join`.
"""

from __future__ import annotations

from recension.operators.coverage_join import CoverageJoin


class SemiJoin(CoverageJoin):
    """Left events on the parts of their lifetimes that matching right events cover."""

    _covered = True


class AntiJoin(CoverageJoin):
    """Left events on the parts of their lifetimes that no matching right event covers."""

    _covered = False
