"""Group and apply: an operator on each group by itself, as if no other group existed (ruling B15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from recension.core.events import Event, Payload
from recension.denote.lineage import Bases, Lineage, Region, Words, list_inputs
from recension.denote.order import Columns, History, Key, key_of, names


def groups(history: Iterable[Event], keys: Columns) -> list[History]:
    """The history split by the values of the key columns; null and NaN are groups like any other."""
    split: dict[Key, History] = {}
    for event in history:
        split.setdefault(key_of(event.payload, keys), []).append(event)
    return list(split.values())


def grouped(history: History, keys: Columns, fn: Callable[[History], History]) -> History:
    """Apply ``fn`` to every group; the group's keys come first in each resulting payload.

    >>> h = [Event({"x": 1, "k": "a"}, 0, 5), Event({"x": 2, "k": "b"}, 3, 9)]
    >>> first = grouped(h, "k", lambda group: [Event({"n": len(group)}, group[0].vs, group[0].ve)])
    >>> print(*first, sep="; ")
    [0, 5) {'k': 'a', 'n': 1}; [3, 9) {'k': 'b', 'n': 1}
    """
    return [
        Event(with_keys(group[0].payload, event.payload, keys), event.vs, event.ve)
        for group in groups(history, keys)
        for event in fn(group)
    ]


def with_keys(source: Payload, payload: Payload, keys: Columns) -> Payload:
    """The key columns of ``source``, then the other columns of ``payload``."""
    chosen = {key: source[key] for key in names(keys)}
    return chosen | {name: value for name, value in payload.items() if name not in chosen}


class EachGroup(Lineage):
    """What the answer of a group's query rests on: all events of the group, as far as the query reaches.

    ``reach_ports`` says how far that is in each input, by number.
    """

    def __init__(
        self, columns: Sequence[Mapping[str, str]], reach_ports: Callable[[Region], Mapping[int, Region]]
    ) -> None:
        super().__init__(columns)
        self._reach_ports = reach_ports

    def reach(self, region: Region) -> list[Region]:
        times = self._reach_ports(region)
        return [
            replace(there, start=times[port].start, end=times[port].end) if port in times else there
            for port, there in enumerate(super().reach(region))
        ]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return f"made of the group's {list_inputs(bases, words)}"
