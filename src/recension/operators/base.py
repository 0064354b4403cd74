"""The contract of a physical operator.

An operator is driven in steps. In a step each input port may receive one batch of inserts and retractions
(`on_batch`), and then one CTI (`on_cti`), which speaks for everything that came before it. Whatever the
operator emits in a step may be the net effect of the whole batch; with batches of one element it behaves
exactly as the papers' tables show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, empty
from recension.core.ticks import BEGINNING
from recension.core.validity import counts_from_table, counts_to_table

Chunks: TypeAlias = Mapping[str, pa.Table]
Orphans: TypeAlias = Literal["stop", "pass", "take"]


@dataclass(frozen=True, slots=True)
class Output:
    """What an operator emits in answer to a CTI: changes, then the CTI it can promise, if it advances."""

    batch: EventBatch
    cti: int | None


class Operator(ABC):
    """One physical operator with its state."""

    makes_ctis: ClassVar[bool] = False
    """May what `on_batch` gives hold CTIs? They speak for all that the step gives."""
    changes_on_cti: bool = True
    """May `on_cti` emit changes? If not, the end of its inputs leaves its output as it is."""
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "stop"
    """External CTIs end here, pass beside the events, or are part of the batches taken in."""

    promises_alike: bool = False
    """Do its CTIs follow from those it gets, whatever the events? Then all shards promise the same."""
    is_clocked: bool = False
    """Does it count by the wall clock, so that it must be told the time?"""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.out_cti = BEGINNING
        self._nothing = empty(schema)

    @abstractmethod
    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        """Take in inserts and retractions; give back the changes they cause at once."""

    @abstractmethod
    def on_cti(self, port: int, t: int) -> Output:
        """Nothing before ``t`` changes any more on this port."""

    def check_end(self) -> None:
        """Raise what a CTI at the end of time would raise on the state as it is; nothing changes."""

    def refuse_endless(self) -> None:
        """Raise what an event that never ends would raise at the end of time."""

    def is_endless(self) -> bool:
        """Will its output surely hold an event that never ends, if all its inputs end now?"""
        return False

    def check_last(self, batch: EventBatch) -> None:
        """The same when this batch still comes before the end, where that is certain."""

    def on_clock(self, now: int) -> Output:
        """The wall clock shows ``now``, in microseconds; what comes next comes at that time."""
        return self.emit(self.out_cti)

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """No reader wants events whose final end is before ``t``: what is then not wanted of each input?

        The answer for an input is such a time for it, None if everything may matter. State that only serves
        what is not wanted may be dropped; ``shrinks`` says of which inputs no retraction lengthens an event.
        Operators for which this is not known to be right answer nothing.
        """
        return []

    def settled(self, port: int, t: int) -> int:
        """A time such that nothing comes of changes, on this port, to events that ended before it.

        An insert or a change before ``t`` in what this operator gives comes to nothing. BEGINNING where
        more is not known. It is said of events as they have ended by now: the answer may go back when one
        that had ended later is told to have ended before.
        """
        return BEGINNING

    def orphans(self, port: int) -> Orphans:
        """What becomes, on this port, of retractions that name an event which is not there (yet).

        They must not come (``stop``); the output is then right but for such retractions in it (``pass``);
        or it is a valid stream all the same (``take``).
        """
        return "stop"

    def trace(self) -> tuple[int, ...] | None:
        """What a past of which no row is held still decides.

        Two operators that hold no rows, have promised the same and have equal traces go on alike. None where
        this cannot be told.
        """
        return None

    def snapshot(self) -> Chunks:
        """The whole state as named Arrow tables; `restore` of them gives back an equal operator."""
        dropped = {"dropped": counts_to_table(counts)} if (counts := self.counts()) else {}
        return {"progress": pa.table({"out_cti": [self.out_cti]})} | dropped | dict(self.snapshot_state())

    def restore(self, chunks: Chunks) -> None:
        """Become the operator whose snapshot this is."""
        self.out_cti = chunks["progress"]["out_cti"][0].as_py()
        self.restore_state(chunks)
        counts = self.counts()
        counts.clear()
        if "dropped" in chunks:
            counts.update(counts_from_table(chunks["dropped"]))

    def snapshot_state(self) -> Chunks:
        """What `snapshot` holds beyond the promised CTI; operators with state give it here."""
        return {}

    def restore_state(self, chunks: Chunks) -> None:
        """Take back what `snapshot_state` gave; operators with state do it here."""

    def counts(self) -> Counter[str]:
        """The elements left out or moved so far, by reason: the operator's own, which `restore` sets."""
        return Counter()

    def words(self) -> list[str]:
        """What it has chosen while it ran, and why, in lines; nothing where there is nothing to choose."""
        return []

    def take_warnings(self) -> list[str]:
        """What a person should know of the data, said once; forgets it."""
        return []

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """Elements left out and kept aside since the last time of asking, with the reason; forgets them."""
        return []

    def state_rows(self) -> int:
        """How many rows of state are held."""
        return 0

    def state_bytes(self) -> int:
        """How much memory the state takes."""
        return 0

    def emit(self, t: int, batch: EventBatch | None = None) -> Output:
        """Emit ``batch``, then the CTI ``t`` if it advances (ruling B11)."""
        advances = t > self.out_cti
        self.out_cti = max(self.out_cti, t)
        return Output(self._nothing if batch is None else batch, t if advances else None)


def worst(of_readers: Sequence[Orphans]) -> Orphans:
    """What becomes of orphans that several readers get; where nothing reads them, nothing is known."""
    return min(of_readers, key=("stop", "pass", "take").index, default="stop")
