"""Says, once a run, what of a query is hardly what its author meant, given what its inputs are like."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from recension.core.batch import EventBatch
from recension.core.formats.columns import KIND
from recension.core.ticks import FOREVER
from recension.plan.node import Node
from recension.plan.source import Source
from recension.plan.warnings import find_warnings

_log: Final = logging.getLogger("recension")


def warn_of_frames(
    query: Node, sources: Mapping[str, Source], columns: Mapping[str, Collection[str]]
) -> None:
    """Say it in the log of a query whose inputs are not looked at here, by the columns that they have."""
    instants = {
        name
        for name, given in columns.items()
        if (start := sources[name].start) is not None and start in given and KIND not in given
    }
    for text in find_warnings([query], instants):
        _log.warning(text)


class MeaningWarnings:
    """Warns, once, of queries that are hardly what their author meant, by what the first rows are like."""

    def __init__(self) -> None:
        self._seen, self._said = set[str](), set[str]()
        self._instants, self._endless = set[str](), set[str]()

    def look(self, source: str, batch: EventBatch, *, is_table: bool) -> bool:
        """Note how long the first rows of a source live; are they the first?"""
        if source in self._seen or not bool((is_data := batch.is_data()).any()):
            return False
        self._seen.add(source)
        vs, ve = batch.vs[is_data], batch.ve[is_data]
        if bool((ve - 1 == vs).all()):
            self._instants.add(source)
        elif is_table and bool((ve == FOREVER).all()):
            self._endless.add(source)
        return True

    def take_new(self, plans: Sequence[Node]) -> list[str]:
        """What is to be said of queries and was not said yet."""
        found = find_warnings(plans, self._instants, self._endless)
        fresh = [text for text in found if text not in self._said]
        self._said.update(fresh)
        return fresh
