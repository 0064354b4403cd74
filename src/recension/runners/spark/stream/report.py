"""What the operators of a shard do in one micro-batch, as plain values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from recension.runners.local import Session
from recension.runners.metrics import Metrics

_COUNTED: Final = (
    *("events_in", "retractions_in", "events_out", "retractions_out"),
    *("seconds", "dropped", "skipped", "anomalies"),
)


class Report:
    """What the operators of a session do in one micro-batch."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before = [asdict(metrics) for metrics in session.metrics()]
        self._counted = session.counts()
        self._unreadable: dict[str, Counter[str]] = {}
        self._inputs: dict[str, str] = {}
        self.elements = 0

    def add(self, infos: Iterable[str]) -> None:
        """Count what tasks that read a source could not read."""
        for info in filter(None, infos):
            for name, counts in json.loads(info).items():
                self._unreadable[name] = self._unreadable.get(name, Counter()) + Counter(counts)

    def note_inputs(self, states: Mapping[str, str], ignored: Mapping[str, Counter[str]]) -> None:
        """The streams of a merge, and what was ignored of them."""
        self._inputs |= states
        for name, counts in ignored.items():
            self._unreadable[name] = self._unreadable.get(name, Counter()) + counts

    def changes(self) -> dict[str, Any]:
        """As plain values."""
        counts = {n: c - self._counted.get(n, Counter()) for n, c in self._session.counts().items()}
        for name, unreadable in self._unreadable.items():
            counts[name] = counts.get(name, Counter()) + unreadable
        pairs = zip(self._before, self._session.metrics(), strict=True)
        return {
            "elements": self.elements,
            "operators": [_change(old, new) for old, new in pairs],
            "counts": {name: dict(counted) for name, counted in counts.items() if counted},
            "inputs": self._inputs,
        }


def _change(old: dict[str, Any], new: Metrics) -> dict[str, object]:
    """What an operator did in one micro-batch, and what it holds now."""
    now = asdict(new)
    for name in _COUNTED:
        now[name] -= old[name]
    now["warnings"] = new.warnings[len(old["warnings"]) :]
    return now
