"""The inputs of a merge: which have joined, how far each has come, who leads.

A stream that joins with a time ``t`` is complete for every event that ends at ``t`` or later. Its stables
have no effect on the output until the output's own stable has reached ``t`` (rulings 39–41).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING

State: TypeAlias = Literal["joining", "joined", "leaving", "left"]


@dataclass(slots=True)
class Input:
    """One input, past or present. Numbers are never used again (ruling 44)."""

    since: int = BEGINNING
    stable: int = BEGINNING
    state: State = "joined"

    @property
    def is_live(self) -> bool:
        """Does it still count?"""
        return self.state in ("joining", "joined")


class Inputs:
    """All inputs by port."""

    def __init__(self, ports: int) -> None:
        self._all = [Input() for _ in range(ports)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, port: int) -> Input:
        return self._all[port]

    def attach(self, since: int) -> int:
        """A new input that is complete from ``since`` on; its port."""
        self._all.append(Input(since, state="joining"))
        return len(self._all) - 1

    def gate(self, port: int, since: int) -> None:
        """An input that is there from the beginning, but complete only from ``since`` on."""
        if since > BEGINNING:
            self._all[port] = Input(since, state="joining")

    def detach(self, port: int) -> None:
        """An input leaves; what it sends from now on is ignored."""
        if not self._all[port].is_live:
            raise RecensionError("merge: this input has left already")
        self._all[port].state = "leaving"

    def bid_farewell(self) -> None:
        """The output's stable has moved on: nothing of those who left is shown unsettled any more."""
        for one in self._all:
            if one.state == "leaving":
                one.state = "left"

    def note(self, port: int, t: int) -> None:
        """An input promises that nothing before ``t`` changes any more."""
        self._all[port].stable = max(self._all[port].stable, t)

    def join(self, reached: int) -> list[int]:
        """The inputs whose time the output has reached now, in order of their ports."""
        due = [port for port, one in enumerate(self._all) if one.state == "joining" and one.since <= reached]
        for port in due:
            self._all[port].state = "joined"
        return due

    def live(self) -> list[int]:
        """The ports of inputs that have not left."""
        return [port for port, one in enumerate(self._all) if one.is_live]

    def joined(self) -> list[int]:
        """The ports of inputs that take part in everything."""
        return [port for port, one in enumerate(self._all) if one.state == "joined"]

    def furthest(self) -> tuple[int, int] | None:
        """Of the joined inputs the one with the greatest stable, the first of equal ones, and that stable."""
        joined = self.joined()
        if not joined:
            return None
        port = max(joined, key=lambda port: (self._all[port].stable, -port))
        return port, self._all[port].stable

    def states(self) -> list[State]:
        """The state of each input by port."""
        return [one.state for one in self._all]

    def snapshot(self) -> pa.Table:
        """All inputs."""
        kinds = [("since", pa.int64()), ("stable", pa.int64()), ("state", pa.string())]
        return pa.Table.from_pylist([asdict(one) for one in self._all], pa.schema(kinds))

    def restore(self, table: pa.Table) -> None:
        """Become the inputs that `snapshot` gave."""
        self._all = [Input(**row) for row in table.to_pylist()]
