"""What an input changed: the query is run again without it, over the recorded inputs, step by step.

An event of a source is all the elements that tell of it: without its insert, its retractions go too.
What differs in the end, on every edge above the source, is what the event changed.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from recension.core.batch import INSERT
from recension.core.difference import difference
from recension.core.errors import RecensionError
from recension.core.history import History
from recension.core.time_kind import KnownKind
from recension.core.values import rows_of
from recension.inspector.page_data import edge_id, show_value
from recension.plan.node import Node
from recension.plan.tables import find_followed
from recension.runners.local import Session
from recension.runners.recording import Recording, read_recording

_MOST: Final = 500


class Replay:
    """A recording and the query that was recorded."""

    def __init__(self, recording: Recording, query: Node, name: str = "query") -> None:
        self._recording, self._queries = recording, {name: query}
        if not recording.is_whole:
            raise RecensionError("it cannot be replayed: the recording does not hold all of its inputs")
        if missing := [source for source, edge in recording.sources.items() if edge not in recording.edges]:
            raise RecensionError(f"it cannot be replayed: {', '.join(missing)} was not recorded")
        if find_followed([query]):
            raise RecensionError("it cannot be replayed: a table that is read again follows its streams")
        with TemporaryDirectory() as folder, self._session().record(Path(folder) / "r") as recorder:
            labels = [vertex["label"] for vertex in read_recording(recorder.path).manifest["plan"]]
        if labels != [vertex["label"] for vertex in recording.manifest["plan"]]:
            raise RecensionError("the query is not the one that was recorded: its steps are others")

    def effect(self, edge: int, elements: Collection[int]) -> dict[str, Any]:
        """What differs on every edge without these elements of a source."""
        if edge not in self._recording.sources.values():
            raise RecensionError("only an event of a source can be left out")
        self._require_whole(edge, elements)
        without = self._run(edge, set(elements))
        found, left_out = dict[str, Any](), 0
        for number, history in self._histories.items():
            if number in self._recording.sources.values() or number not in self._recording.edges:
                continue
            differs = difference(actual=without[number], expected=history)
            if differs:
                sides = {"because": differs.missing, "instead": differs.unexpected}
                found[edge_id(0, number)] = {name: name_events(side) for name, side in sides.items()}
                left_out += sum(max(0, len(side) - _MOST) for side in sides.values())
        return {"edges": found, "left_out": left_out}

    @cached_property
    def _histories(self) -> dict[int, History]:
        return self._run(-1, set())

    def _require_whole(self, edge: int, elements: Collection[int]) -> None:
        """Refuse an event whose insert is not among its elements: its retractions alone are not it."""
        batch = self._recording.stream(edge).batch()
        if not elements or not 0 <= min(elements) <= max(elements) < len(batch):
            raise RecensionError("the recording has no such elements")
        if batch.kind[min(elements)] != INSERT:
            raise RecensionError("this page does not have the beginning of that event; --limit shows more")

    def _session(self) -> Session:
        streams = [self._recording.stream(edge) for edge in self._recording.sources.values()]
        times = KnownKind(next((stream.time_type for stream in streams if stream.batches), None))
        self._now = 0
        return Session(self._queries, clock=lambda: self._now, history_limit=0, times=times)

    def _run(self, edge: int, elements: set[int]) -> dict[int, History]:
        """The histories of all edges without some elements of one."""
        session, recording = self._session(), self._recording
        came = {name: recording.by_step(number) for name, number in recording.sources.items()}
        seen = dict.fromkeys(recording.sources, 0)
        steps = recording.steps()
        with TemporaryDirectory() as folder:
            recorder = session.record(Path(folder) / "r", "all", 1 << 40)
            moments = steps["at"].cast("int64").to_pylist()
            rows = zip(steps["step"].to_pylist(), moments, steps["source"].to_pylist(), strict=True)
            for step, self._now, source in rows:
                if source is None:
                    session.tick()
                # A micro-batch may have elements of several sources.
                for fed in [source] if source in came else came:
                    if (batch := came[fed].get(step)) is None:
                        continue
                    if recording.sources[fed] == edge:
                        places = np.arange(seen[fed], seen[fed] + len(batch))
                        kept = ~np.isin(places, list(elements))
                        seen[fed] += len(batch)
                        batch = batch.filter(kept)
                    session.feed(fed, batch)
            recorder.close()
            again = read_recording(recorder.path)
            return {number: again.stream(number).history() for number in again.edges}


def name_events(history: History) -> list[dict[str, Any]]:
    """The first events of a history as the page names them."""
    some = history.filter(np.arange(len(history)) < _MOST)
    payloads = rows_of(some.payload) if some.payload.num_columns else [{}] * len(some)
    return [
        {
            "texts": {name: None if value is None else show_value(value) for name, value in payload.items()},
            "vs": str(vs),
            "ve": str(ve),
        }
        for payload, vs, ve in zip(payloads, some.vs.tolist(), some.ve.tolist(), strict=True)
    ]
