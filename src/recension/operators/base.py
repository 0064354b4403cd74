"""The contract of a physical operator.

An operator is driven in steps. In a step each input port may receive one batch of inserts and retractions
(`on_batch`), and then one CTI (`on_cti`), which holds for everything that came before it. An operator may
emit the net effect of the whole batch. With batches of one element it behaves exactly as the papers' tables
show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from recension.core.batch import EventBatch, empty
from recension.core.change_log import tables_of
from recension.core.records import record
from recension.core.ticks import BEGINNING
from recension.core.validity import counts_from_table, counts_to_table

Chunks: TypeAlias = Mapping[str, pa.Table]
Orphans: TypeAlias = Literal["stop", "pass", "take"]
T = TypeVar("T")


@record
class Output:
    """What an operator emits when it gets a CTI: changes, then a CTI of its own if that advances."""

    batch: EventBatch
    cti: int | None


class Operator(ABC):
    """One physical operator with its state."""

    makes_ctis: ClassVar[bool] = False
    """May the output of `on_batch` hold CTIs? They hold for all that the step emits."""
    changes_on_cti: bool = True
    """May `on_cti` emit changes? If not, the end of its inputs leaves its output as it is."""
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "stop"
    """Are external CTIs stopped here, passed on unchanged, or taken in as part of the batches?"""

    shards_share_ctis: bool = False
    """Do its CTIs depend on input CTIs alone, never on events? Then all shards emit the same CTIs."""
    is_all_rows: ClassVar[bool] = False
    """Does it remember nothing but rows, its last CTI and those of its inputs?"""
    is_clocked: bool = False
    """Does it depend on the wall clock, so that `on_clock` must be called?"""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.out_cti = BEGINNING
        self._nothing = empty(schema)
        self._counts: Counter[str] = Counter()
        self._dropped: list[tuple[str, EventBatch]] = []

    @abstractmethod
    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        """Take in inserts and retractions; give back the changes they cause at once."""

    @abstractmethod
    def on_cti(self, port: int, t: int) -> Output:
        """Take in a CTI: nothing before ``t`` changes any more on this port."""

    def check_end(self) -> None:
        """Raise what a CTI at the end of time would raise on the state as it is; nothing changes."""

    def refuse_endless(self) -> None:
        """Raise what an event that never ends would raise at the end of time."""

    def is_endless(self) -> bool:
        """Will its output surely hold an event that never ends, if all its inputs end now?"""
        return False

    def check_last(self, batch: EventBatch) -> EventBatch | None:
        """The same when this batch still comes before the end; what it makes of it, if that is certain."""
        return None

    def on_clock(self, now: int) -> Output:
        """The wall clock shows ``now``, in microseconds: the time of all that comes next."""
        return self.emit(self.out_cti)

    def ends_with(self, ports: Collection[int], inputs: int) -> bool:
        """Does its output end when these ports have ended, of so many inputs?"""
        return len(ports) == inputs

    def is_endless_after(self, ports: Collection[int]) -> bool:
        """Will it show an event that never ends if these ports end now? Asked where it still has rows."""
        return self.is_endless()

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        """Raise what `on_batch` would raise of a row by itself; nothing changes.

        A step that reads rows only gives what `on_batch` will give for this very batch, and remembers it.
        None: what comes out is not known.
        """
        return None

    def forget_looked(self) -> None:
        """What was remembered by `look` is not needed any more."""

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """No reader needs events whose final end is before ``t``: what is then not needed of each input?

        The answer is one time for each input: events that finally end before it are not needed. None means
        that all may be needed. State that only serves such events may be dropped. ``shrinks`` says for which
        inputs no retraction lengthens an event. An empty list is always safe.
        """
        return []

    def no_effect_before(self, port: int, t: int) -> int:
        """The time before which changes on this port have no effect: changes to events that ended before it.

        ``t`` says the same of the output: whatever this operator emits before ``t`` has no effect on its
        readers. BEGINNING is always safe. The answer uses the ends that are known now. It may go back when a
        retraction moves an end back.
        """
        return BEGINNING

    def orphans(self, port: int) -> Orphans:
        """What happens on this port to orphans: retractions of an event that is not there, or not yet.

        ``stop``: they must not come. ``pass``: they may, and then the output has orphans too but is right
        otherwise. ``take``: they may, and the output is a valid stream all the same.
        """
        return "stop"

    def trace(self) -> tuple[int, ...] | None:
        """What the operator still remembers when it holds no rows; None if that is not known.

        Two operators without rows, with equal traces and the same last CTI, will behave alike.
        """
        return () if self.is_all_rows else None

    def snapshot(self) -> Chunks:
        """The whole state as named Arrow tables; `restore` of them gives back an equal operator."""
        return tables_of(self.parts())

    def parts(self) -> Chunks:
        """The whole state as named tables, and as logged stores: those can be stored by their changes.

        `restore` also takes what became of the tables, and the changes to the stores.
        """
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
        """What `snapshot` holds besides the last CTI; operators with state override this."""
        return {}

    def restore_state(self, chunks: Chunks) -> None:
        """Take back what `snapshot_state` gave; operators with state override this."""

    def counts(self) -> Counter[str]:
        """How many elements were dropped or adjusted so far, by reason; `restore` writes into it."""
        return self._counts

    def describe_choices(self) -> list[str]:
        """What it has chosen while it ran, and why, as lines for `explain`; empty if it has no choice."""
        return []

    def take_warnings(self) -> list[str]:
        """Warnings about the data since the last call; each is given once."""
        return []

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """Elements dropped since the last call, with the reason; each is given once."""
        dropped, self._dropped = self._dropped, []
        return dropped

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


class HeldState(Protocol):
    """State that knows its size and can be stored."""

    def __len__(self) -> int: ...

    def nbytes(self) -> int:
        """Memory taken."""

    def snapshot(self) -> Chunks:
        """The whole state as named Arrow tables."""

    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""


class SingleStateOperator(Operator):
    """An operator whose state is one object, and all of it rows."""

    is_all_rows = True

    def __init__(self, schema: pa.Schema, state: HeldState) -> None:
        super().__init__(schema)
        self._held_state = state

    def state_rows(self) -> int:
        return len(self._held_state)

    def state_bytes(self) -> int:
        return self._held_state.nbytes()

    def snapshot_state(self) -> Chunks:
        return self._held_state.snapshot()

    def restore_state(self, chunks: Chunks) -> None:
        self._held_state.restore(chunks)


class Looked(Generic[T]):
    """What `Operator.look` has found of batches or payloads, until these very ones come."""

    def __init__(self) -> None:
        self._found: list[tuple[EventBatch | pa.RecordBatch, T]] = []

    def keep(self, rows: EventBatch | pa.RecordBatch, found: T) -> T:
        """What was found of these rows."""
        self._found.append((rows, found))
        return found

    def take(self, rows: EventBatch | pa.RecordBatch) -> T | None:
        """What was found of these very rows; from now on it is not known."""
        for place, (looked, found) in enumerate(self._found):
            if looked is rows:
                del self._found[place]
                return found
        return None

    def clear(self) -> None:
        """Forget all of it."""
        self._found = []


def worst_outcome(of_readers: Sequence[Orphans]) -> Orphans:
    """What happens to orphans that several readers get; `stop` where there is no reader."""
    return min(of_readers, key=("stop", "pass", "take").index, default="stop")
