"""Inputs of a merge that contradict each other: what of it can be noticed, counted by input, and said once.

All inputs stand for one history. An input contradicts the output where what is final in the one is not, and
can no longer become, what the other has. What is looked at is what a merge has in hand anyhow; what it
has forgotten, because it is final, is not compared. So a contradiction proves that an input is wrong (not
which), and none proves nothing.

    R0, R1, R2   the last events shown are kept: an input that comes to their starts must have the same
    R3, R4       an event that becomes final is compared with what the inputs have whose stables have passed
                 its start. What an input has that the output forgets is a *doubt*, kept until that input's
                 own stable shows that it means it.
    R3-          only what the leading input lacks or has otherwise

An input that joined late, or was told by feedback what is no longer wanted, may lack what ends before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import kind_in_messages
from recension.operators.base import Chunks
from recension.operators.changes import changes
from recension.operators.state.chunks import cut_table, unite_table

OnAnomaly: TypeAlias = Literal["warn", "raise"]
NOWHERE: Final = BEGINNING
"""The end of an event that is not there."""
# So many doubts are kept; of more the oldest are forgotten.
MOST: Final = 4096
_SHOWN: Final = 200


class Contradictions:
    """Counts of contradictions by input. The first is a warning, or an error if ``raises``."""

    def __init__(self) -> None:
        self.raises = False
        self.names: dict[int, str] = {}
        self.by_port: Counter[int] = Counter()
        self._is_told = False
        self._warnings: list[str] = []

    def note(self, port: int, number: int, describe: Callable[[], str]) -> None:
        """An input contradicts the output so many times; ``describe`` says how it does for one of them."""
        if not number:
            return
        self.by_port[port] += number
        if self._is_told:
            return
        self._is_told = True
        text = (
            f"input {self._name(port)} contradicts what is final: it {describe()}; one of the inputs is "
            "wrong, and what was shown stays: find out which, detach it, and attach it again when it is right"
        )
        if self.raises:
            raise StreamError(f"merge: {text}; or go on with on_anomaly='warn'")
        self._warnings.append(f"{text}; on_anomaly='raise' would stop")

    def _name(self, port: int) -> str:
        return f"{port} ({self.names[port]})" if port in self.names else str(port)

    def by_input(self) -> dict[str, int]:
        """The counts, by the number of each input and its sources."""
        return {self._name(port): count for port, count in sorted(self.by_port.items())}

    def take_warnings(self) -> list[str]:
        """The warning, if there is one that was not taken."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def snapshot(self) -> pa.Table:
        """The counts, and whether any was told."""
        kinds = pa.schema([("port", pa.int64()), ("count", pa.int64())])
        return pa.table({"port": list(self.by_port), "count": list(self.by_port.values())}, kinds)

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave; snapshots of earlier versions have one count for all inputs."""
        counts = table["count"].to_pylist()
        ports = table["port"].to_pylist() if "port" in table.column_names else [0] * len(counts)
        self.by_port = Counter({port: count for port, count in zip(ports, counts, strict=True) if count})
        self._is_told, self._warnings = bool(self.by_port), []


def describe_event(payload: pa.RecordBatch, row: int, vs: int, ve: int) -> str:
    """An event in words, cut if it is long."""
    one = take_rows(payload, np.array([row]))
    start, end = np.array([vs]), np.array([ve])
    text = str(changes(start, start, end, one).to_elements(kind_in_messages())[0]).removeprefix("insert ")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Doubt:
    """What contradicts, of one input: an event, the end the input has for it, and where the payload is."""

    port: int
    vs: int
    end: int
    was: int
    payload: pa.RecordBatch
    row: int

    def describe(self) -> str:
        """What is wrong with it."""
        event = describe_event(self.payload, self.row, self.vs, self.was)
        if self.end == NOWHERE:
            return f"has taken back {event}, which the output has"
        if self.end != self.was:
            event = describe_event(self.payload, self.row, self.vs, self.end)
        return f"has {event}, which the output does not have"


_COLUMNS: Final[Mapping[str, Any]] = {
    "port": np.int64,
    "key": np.uint64,
    "vs": np.int64,
    "was": np.int64,
    "end": np.int64,
    "due": np.int64,
    "low": np.int64,
    "high": np.int64,
    "inside": np.bool_,
    "optional": np.bool_,
    "chunk": np.int64,
    "row": np.int64,
}


class Doubts:
    """Events of inputs that the output has forgotten, or never had, until the inputs' stables decide.

    Each has an end in the input now. Once the input's stable is ``due``, it contradicts if that end lies from
    ``low`` to ``high``, or beyond if not ``inside``; or if it is gone and not ``optional``.
    """

    def __init__(self) -> None:
        self._columns = {name: np.zeros(0, kind) for name, kind in _COLUMNS.items()}
        self._payloads: dict[int, pa.RecordBatch] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._columns["port"])

    def nbytes(self) -> int:
        """Memory held."""
        return sum(int(column.nbytes) for column in self._columns.values())

    def add(
        self,
        port: int,
        key: Hashes,
        vs: Ticks,
        end: Ticks,
        payload: pa.RecordBatch,
        *,
        due: Ticks | int,
        low: Ticks | int,
        high: Ticks | int,
        inside: Mask | bool = True,
        optional: Mask | bool = True,
    ) -> None:
        """Some events of an input; the payload has a row for each."""
        size = len(key)
        if not size:
            return
        new: dict[str, Any] = {"port": port, "key": key, "vs": vs, "was": end, "end": end, "due": due}
        new |= {
            "low": low,
            "high": high,
            "inside": inside,
            "optional": optional,
            "chunk": self._next,
            "row": np.arange(size),
        }
        self._payloads[self._next] = payload
        self._next += 1
        columns = {}
        for name, kind in _COLUMNS.items():
            more = np.broadcast_to(np.asarray(new[name], kind), size)
            columns[name] = np.concatenate([self._columns[name], more])[-MOST:]
        self._keep(columns)

    def _keep(self, columns: dict[str, Any]) -> None:
        self._columns = columns
        used = set(columns["chunk"].tolist()) if len(self._payloads) > 1 else set(self._payloads)
        self._payloads = {chunk: rows for chunk, rows in self._payloads.items() if chunk in used}

    def _take(self, at: Index | Mask) -> None:
        self._keep({name: column[at] for name, column in self._columns.items()})

    def update(self, port: int, keys: Hashes, old: Ticks | None, new: Ticks) -> None:
        """An input moves the ends of some events. Without ``old`` there is one event a key."""
        mine = np.flatnonzero(self._columns["port"] == port)
        if not len(mine) or not len(keys):
            return
        known = self._columns["key"][mine]
        order = np.argsort(known, kind="stable")
        known, mine = known[order], mine[order]
        first, last = (np.searchsorted(known, keys, side=side) for side in ("left", "right"))
        end = self._columns["end"]
        for at in np.flatnonzero(first < last).tolist():
            rows = mine[first[at] : last[at]]
            if old is not None:
                rows = rows[end[rows] == old[at]][:1]
            end[rows] = new[at]

    def pop_due(self, stables: Sequence[int], least: Sequence[int]) -> Iterator[Doubt]:
        """What the stables of the inputs decide now: those that contradict. The others decided are forgotten.

        An input need not tell of ends before the ``least`` one.
        """
        if not len(self):
            return
        every = self._columns
        stable = np.array(stables)[every["port"]]
        is_due = stable >= every["due"]
        if not bool(is_due.any()):
            return
        end = every["end"]
        gone = end == NOWHERE
        is_inside = (end >= every["low"]) & (end <= every["high"])
        fits = np.where(gone, every["optional"], is_inside != every["inside"])
        fits |= np.where(gone, every["was"], end) < np.array(least)[every["port"]]
        wrong = np.flatnonzero(is_due & ~fits)
        payloads = self._payloads
        self._take(~is_due)
        for at in wrong.tolist():
            vs, was, last = (int(every[name][at]) for name in ("vs", "was", "end"))
            chunk, row = int(every["chunk"][at]), int(every["row"][at])
            yield Doubt(int(every["port"][at]), vs, last, was, payloads[chunk], row)

    def drop(self, port: int) -> None:
        """An input has left."""
        if len(self):
            self._take(self._columns["port"] != port)

    def snapshot(self, schema: pa.Schema) -> Chunks:
        """All of them, as tables."""
        columns = {name: pa.array(self._columns[name]) for name in _COLUMNS if name not in ("chunk", "row")}
        facts = pa.table(columns)
        chunk, row = self._columns["chunk"], self._columns["row"]
        parts = [take_rows(self._payloads[int(chunk[at])], row[at : at + 1]) for at in range(len(self))]
        payload = pa.Table.from_batches(parts, schema)
        return {"doubts": facts, **cut_table("doubts/payload", payload)}

    def restore(self, chunks: Chunks, schema: pa.Schema) -> None:
        """Become what `snapshot` gave; a snapshot of an earlier version has none."""
        self.__init__()  # type: ignore[misc]
        if "doubts" not in chunks or not chunks["doubts"].num_rows:
            return
        facts, payload = chunks["doubts"], unite_table("doubts/payload", chunks).combine_chunks()
        size = facts.num_rows
        self._columns |= {name: facts[name].to_numpy().copy() for name in facts.column_names}
        self._columns |= {"chunk": np.zeros(size, np.int64), "row": np.arange(size)}
        (self._payloads[0],) = payload.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        self._next = 1


def next_tick(t: Ticks) -> Ticks:
    """The first time after each; after the last it is the last itself, at which all is final."""
    later: Ticks = t + (t < FOREVER)
    return later
