"""Coalescing queries, one or many, over one stream and window: eager extents of their own, or a lazy one.

Assumes     a valid physical stream in which no group of any query has two readings at one time.
Guarantees  the output history has the answers of every query, each row with its query's number, as that query
            alone would give them, whatever its scheme and whenever that changes. CTIs pass unchanged.
State       an eager extent for every query that is chosen to be, and one lazy extent if any is not; how
            likely the readings of each query are to coalesce and to come late.
Cost        that of the extents, and a sort of the latest readings of a batch for every query. To become
            eager, a query scans the lazy extent once. To become lazy where nothing is, a lazy extent is begun
            and relied on when it holds all that matters.
Source      Temporal Coalescing on Window Extents over Data Streams, §6.2; coalescing rulings 34 to 36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Mask, concat, empty, take_rows
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks, Operator, Output
from recension.operators.extents.extent import HashedPayload
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.sharing import Keeper, LazyReader, Owner
from recension.operators.extents.windows import SlidingWindow
from recension.operators.schemes.costs import Load
from recension.operators.schemes.learning import Probabilities
from recension.operators.schemes.plan import Planner, SchemePlan
from recension.operators.state.chunks import add_prefix, take_prefix

_SAMPLE: Final = 2048


@dataclass(frozen=True)
class QuerySpec:
    """One query: what it asks, and the columns of its answers."""

    query: CoalescingQuery
    answers: pa.Schema


class CoalesceMany(Operator):
    """``schema`` has the query's number, then all columns that any answer has; others are null.

    Where the answers of a lone query have that schema already, they are not numbered.
    """

    shards_share_ctis = True

    def __init__(
        self,
        schema: pa.Schema,
        readings: pa.Schema,
        asked: Sequence[QuerySpec],
        window: SlidingWindow,
        is_eager: Mask,
        planner: Planner | None = None,
    ) -> None:
        """``is_eager`` is how it begins; without a planner it stays so."""
        super().__init__(schema)
        self._readings, self._asked, self._window, self._planner = readings, list(asked), window, planner
        self.plan: SchemePlan | None = None
        self._wanted = np.array(is_eager, np.bool_)
        self._keeper = None if self._wanted.all() else Keeper(readings, window)
        self._members: list[Owner | LazyReader] = [
            self._owner(j) if eager else self._reader(j) for j, eager in enumerate(self._wanted.tolist())
        ]
        self._learned = [_learner(each.query, readings) for each in asked] if planner else []
        self._arrived = 0

    def _owner(self, j: int) -> Owner:
        return Owner(self._asked[j].answers, self._readings, self._asked[j].query, self._window)

    def _reader(self, j: int) -> LazyReader:
        return LazyReader(self._asked[j].answers, self._asked[j].query, self._window)

    @property
    def is_eager(self) -> Mask:
        """Which queries have an extent of their own now."""
        return np.array([isinstance(member, Owner) for member in self._members], np.bool_)

    @property
    def _keeper_in_use(self) -> Keeper | None:
        """The keeper, if any query reads what it keeps."""
        return None if self.is_eager.all() else self._keeper

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        view = None if (kept := self._keeper_in_use) is None else kept.view(batch)
        shown = [
            member.show(view) if isinstance(member, LazyReader) else member.on_batch(port, batch)
            for member in self._members
        ]
        if self._keeper is not None:
            self._keeper.on_batch(port, batch)
        if self._planner is not None:
            self._learn(batch)
            self._replan()
        return self._combine(shown)

    def on_cti(self, port: int, t: int) -> Output:
        view = None if (kept := self._keeper_in_use) is None else kept.view_at(t)
        shown = [
            member.show(view) if isinstance(member, LazyReader) else member.on_cti(port, t).batch
            for member in self._members
        ]
        if self._keeper is not None:
            self._keeper.on_cti(port, t)
            self._rely_on_keeper(t)
        for learned in self._learned:
            learned.forget_before(self._first_time())
        return self.emit(t, self._combine(shown))

    def _combine(self, shown: Iterable[EventBatch]) -> EventBatch:
        """All answers, each with its query's number."""
        parts = [self._add_number(j, batch) for j, batch in enumerate(shown) if len(batch)]
        return concat(parts) if parts else empty(self.schema)

    def _add_number(self, j: int, batch: EventBatch) -> EventBatch:
        if batch.schema.equals(self.schema):
            return batch
        number, *others = self.schema
        known = set(batch.schema.names)
        columns = [pa.repeat(pa.scalar(j, number.type), len(batch))] + [
            batch.payload.column(field.name) if field.name in known else pa.nulls(len(batch), field.type)
            for field in others
        ]
        payload = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)

    # How queries change their schemes.

    def move(self, is_eager: Mask) -> None:
        """Let queries have these schemes: at once where they can, else when the lazy extent is complete."""
        self._wanted = np.array(is_eager, np.bool_)
        if self._keeper is None and not self._wanted.all():
            self._keeper = self._begin_keeper()
        if self._keeper is not None and self._keeper.since == BEGINNING:
            self._apply_schemes()
        elif self._wanted.all():
            self._keeper = None  # it was young, and nobody waits for it any more

    def _apply_schemes(self) -> None:
        """There is a complete lazy extent, or none is needed: every query gets the scheme it should have."""
        for j, (member, eager) in enumerate(zip(self._members, self._wanted.tolist(), strict=True)):
            if eager and isinstance(member, LazyReader):
                assert self._keeper is not None, "lazy queries have a keeper"
                self._members[j] = owner = self._owner(j)
                owner.fill(self._keeper)
            elif not eager and isinstance(member, Owner):
                self._members[j] = self._reader(j)
        if self._wanted.all():
            self._keeper = None

    def _begin_keeper(self) -> Keeper:
        """Begun where all queries are eager: of the readings so far it has none."""
        owner = self._members[0]
        assert isinstance(owner, Owner), "without a keeper all queries are eager"
        keeper = Keeper(self._readings, self._window, since=owner.watermark)
        keeper.out_cti = owner.out_cti
        if not len(owner.extent):
            keeper.become_complete(owner)
        return keeper

    def _rely_on_keeper(self, t: int) -> None:
        """A young keeper is complete once no reading from before it is held, and none can come."""
        keeper, owner = self._keeper, self._members[0]
        if keeper is None or keeper.since == BEGINNING:
            return
        assert isinstance(owner, Owner), "while a keeper is young all queries are eager"
        if t > keeper.since and not owner.extent.count_before(keeper.since + 1):
            keeper.become_complete(owner)
            self._apply_schemes()

    # What is learned, and the plan made of it.

    def _learn(self, batch: EventBatch) -> None:
        """From the latest readings of a batch: those of a large one are enough to know it by."""
        rows = np.flatnonzero(batch.kind == INSERT)
        self._arrived += len(rows)
        rows = rows[-_SAMPLE:]
        times, latest = batch.vs[rows], HashedPayload(take_rows(batch.payload, rows))
        for each, learned in zip(self._asked, self._learned, strict=True):
            values = latest.payload.select(list(each.query.on))
            learned.observe(latest.hash_columns(each.query.group_by), times, values)

    def _replan(self) -> None:
        assert self._planner is not None, "schemes are planned"
        held = max(own.state_rows() for own in self._holders())
        load = Load(max(self._arrived, held), held)
        estimates = [learned.estimate() for learned in self._learned]
        plan = self._planner.replan(self.plan, estimates, load)
        if plan is not None:
            self.plan = plan
            self.move(plan.selection.is_eager)

    def _first_time(self) -> int:
        return min(own.extent.first_time() for own in self._holders())

    def _holders(self) -> list[Keeper | Owner]:
        """Those that hold readings."""
        found: list[Keeper | Owner] = [] if self._keeper is None else [self._keeper]
        return found + [member for member in self._members if isinstance(member, Owner)]

    def trace(self) -> tuple[int, ...] | None:
        """What is learned, and the schemes, leave no trace in answers."""
        return self._holders()[0].trace()

    def state_rows(self) -> int:
        return sum(own.state_rows() for own in self._holders())

    def state_bytes(self) -> int:
        learned = sum(each.nbytes() for each in self._learned if len(each))
        return learned + sum(own.state_bytes() for own in self._holders())

    def snapshot_state(self) -> Chunks:
        chunks = {"schemes": pa.table({"is_eager": self.is_eager, "is_wanted": self._wanted})}
        own = [(j, member) for j, member in enumerate(self._members) if isinstance(member, Owner)]
        parts = [(str(j), member.snapshot_state()) for j, member in own]
        parts += [(f"{j}/learned", each.snapshot()) for j, each in enumerate(self._learned)]
        if self._keeper is not None:
            parts.append(("keeper", self._keeper.snapshot_state()))
        if self._planner is not None:
            chunks["arrived"] = pa.table({"readings": [self._arrived]})
        if self.plan is not None:
            chunks["plan"] = self.plan.snapshot()
        for name, each in parts:
            chunks |= add_prefix(name, each)
        return chunks

    def restore_state(self, chunks: Chunks) -> None:
        eager, wanted = (chunks["schemes"][name].to_numpy() for name in ("is_eager", "is_wanted"))
        self._wanted = wanted.astype(np.bool_)
        kept = take_prefix("keeper", chunks)
        # Those that are there take over changes.
        self._keeper = (self._keeper or Keeper(self._readings, self._window)) if kept else None
        if self._keeper is not None:
            self._keeper.restore_state(kept)
        for j, each in enumerate(eager.tolist()):
            member = self._members[j]
            if each:
                owner = member if isinstance(member, Owner) else self._owner(j)
                owner.restore_state(take_prefix(str(j), chunks))
                self._members[j] = owner
            elif isinstance(member, Owner):
                self._members[j] = self._reader(j)
        for j, learned in enumerate(self._learned):
            learned.restore(take_prefix(f"{j}/learned", chunks))
        if self._planner is not None:
            self._arrived = chunks["arrived"]["readings"][0].as_py()
            self.plan = self._planner.restore(chunks["plan"]) if "plan" in chunks else None

    def describe_choices(self) -> list[str]:
        """The schemes as they are, and why."""
        if self.plan is None:
            eager = int(self.is_eager.sum())
            return [f"{eager} eager, {len(self._members) - eager} lazy; nothing is learned yet"]
        waits = "" if bool((self.is_eager == self._wanted).all()) else " (a lazy extent is being filled)"
        first, *rest = self.plan.describe()
        return [first + waits, *rest]


def _learner(query: CoalescingQuery, readings: pa.Schema) -> Probabilities:
    return Probabilities(pa.schema([readings.field(name) for name in query.on]), query.equivalent)
