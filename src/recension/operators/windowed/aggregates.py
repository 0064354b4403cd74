"""Built-in aggregates as a measure: sums that the index carries, and selections from the live events.

The answers of stretches before and after a batch become retractions and inserts. What stays is not touched
(ruling B16). A stretch of a grid stands for many windows of equal content: the answer is compared once, and
written out for each window that comes or goes. A window that data make and that keeps its answer may have
its end moved by a single retraction, where the index allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, empty, new_end, old_end, take_rows, take_values
from recension.core.netting import expand, order_of
from recension.core.records import record
from recension.core.rowhash import rows_equal_at
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.changes import changes, order_of_changes
from recension.operators.state.chunks import add_prefix, take_prefix
from recension.operators.state.ranked_events import Pick
from recension.operators.windowed.accumulators import (
    OVERFLOWS,
    Accumulator,
    PlacedAccumulator,
    PlacedChanges,
    overflow_error,
)
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.events import (
    Argument,
    CoveringEvents,
    Deciding,
    EventsOfGroups,
    order_of_events,
)
from recension.operators.windowed.index import (
    Closing,
    Ends,
    IndexSpec,
    Stretches,
    View,
    WindowChange,
    WindowIndex,
)
from recension.operators.windowed.lanes import FloatLanes
from recension.operators.windowed.operator import Ahead, Keys, Measure, WindowedOperator, ahead
from recension.operators.windowed.selections import FunctionError, RankedValues, Selection, TopK
from recension.operators.windowed.steps import Contributions, Points
from recension.operators.windowed.working_set import Sums

_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: its values per event (None: the event itself counts) and how they count."""

    argument: Argument | None
    measure: Accumulator | Selection | TopK


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """What to aggregate, whatever the windows are; without ``keys`` there are no groups.

    The aggregates are in the order of the last columns of ``schema``; one that yields rows stands alone.
    ``breaks_ties`` says that some aggregate depends on the order of events that begin together, which the
    ends decide: then a moved end can change the past back to the start of the event, and CTIs must wait.
    With ``read_changes`` batches do not hold events but what parts of them change (`parts`).
    """

    schema: pa.Schema
    input_schema: pa.Schema
    aggregations: Sequence[Aggregation]
    keys: Keys | None = None
    key_schema: pa.Schema | None = None
    breaks_ties: bool = False
    read_changes: Callable[[EventBatch], Contributions] | None = None

    def count_columns(self) -> tuple[int, int]:
        """How many columns of whole numbers and of float pairs the sums take."""
        sums = [a.measure for a in self.aggregations if isinstance(a.measure, Accumulator)]
        return sum(m.ints for m in sums), sum(m.pairs for m in sums)

    def float_pairs(self) -> list[int]:
        """The numbers of the pairs that are sums of floats as they come."""
        found, number = list[int](), 0
        for aggregation in self.aggregations:
            if isinstance(aggregation.measure, Accumulator):
                found += [number] if aggregation.measure.sums_floats else []
                number += aggregation.measure.pairs
        return found

    def index_spec(self, view: View) -> IndexSpec:
        """What the index has to keep for it."""
        keys = pa.schema([]) if self.key_schema is None else self.key_schema
        sees_ends = any(isinstance(a.measure, Selection) and a.measure.sees_ends for a in self.aggregations)
        ends: Ends = "seen" if self.breaks_ties else "clipped" if sees_ends else "unseen"
        return IndexSpec(keys, view, ends, *self.count_columns())


def deciding(aggregations: Sequence[Aggregation]) -> Deciding:
    """What decides all the selections; nothing is known if some selection needs every event."""
    chosen = [(a.measure, a.argument) for a in aggregations if not isinstance(a.measure, Accumulator)]
    picks = [_pick(measure, argument) for measure, argument in chosen if measure.picks and argument]
    counted = [argument for measure, argument in chosen if argument and isinstance(measure, RankedValues)]
    is_known = len(picks) + len(counted) == len(chosen)
    return Deciding(picks, list(dict.fromkeys(counted))) if is_known else Deciding()


def _pick(measure: Selection | TopK, argument: Argument) -> Pick:
    def order(vs: Ticks, ve: Ticks, payload: pa.RecordBatch) -> Index:
        return measure.order(argument(payload), cache(lambda: order_of_events(vs, ve, payload)))

    return Pick(order, measure.picks or 0)


def aggregate_over(
    spec: AggregateSpec, view: View, make_index: Callable[[IndexSpec], WindowIndex]
) -> WindowedOperator:
    """The operator that aggregates over the windows of an index."""
    index = make_index(spec.index_spec(view))
    return WindowedOperator(index, Aggregates(spec, index), spec.keys)


def _computed_ahead(aggregation: Aggregation, name: str) -> Aggregation:
    """With an argument that is computed ahead where that can fail: some floats are too large for sums."""
    argument, measure = aggregation.argument, aggregation.measure
    if argument is None:
        return aggregation
    if isinstance(measure, Accumulator) and (measure.sums_floats or isinstance(measure, PlacedAccumulator)):
        check = partial(_refuse_too_large, measure, name)
        return replace(aggregation, argument=Ahead(argument, check))
    return replace(aggregation, argument=ahead(argument))


def _refuse_too_large(measure: Accumulator, name: str, values: pa.Array) -> None:
    if pa.types.is_floating(values.type):
        _contributions(measure, values, len(values), name)


def _contributions(measure: Accumulator, values: pa.Array | None, size: int, name: str) -> Contributions:
    """What events add; ``name`` is that of the column of the answer."""
    try:
        return measure.contributions(values, size)
    except OVERFLOWS as why:
        raise overflow_error(why, name) from None


class Aggregates(Measure):
    """One answer for each stretch, which the windows in it share."""

    def __init__(self, spec: AggregateSpec, index: WindowIndex) -> None:
        super().__init__(spec.schema)
        self._index, self._no_events, self._nothing = index, empty(spec.input_schema), empty(spec.schema)
        self._own_schema = pa.schema(list(spec.schema)[len(spec.key_schema or ()) :])
        names = spec.schema.names[-len(spec.aggregations) :]
        self._aggregations = [*map(_computed_ahead, spec.aggregations, names)]
        self._breaks_ties = spec.breaks_ties
        self._read_changes, self.reads_events = spec.read_changes, spec.read_changes is None
        ints, pairs = spec.count_columns()
        self._no_amounts = Contributions([np.zeros(0, np.int64)] * ints, [(np.zeros(0), np.zeros(0))] * pairs)
        floats, are_sums = spec.float_pairs(), spec.read_changes is not None
        self._lanes = FloatLanes(index, pairs, floats, are_sums=are_sums) if floats else None
        needs_events = any(not isinstance(a.measure, Accumulator) for a in spec.aggregations)
        self._events = EventsOfGroups(spec.input_schema, index.place) if needs_events else None
        self._placed = [a.measure for a in spec.aggregations if isinstance(a.measure, PlacedAccumulator)]
        self._deciding = deciding(self._aggregations) if index.is_lived_through else Deciding()
        self.always_answers = not any(isinstance(a.measure, TopK) for a in spec.aggregations)
        self.shards_share_ctis = (index.is_fixed or index.moves == "both") and not spec.breaks_ties

    def no_events(self) -> EventBatch:
        return self._no_events

    def arguments(self) -> list[Argument]:
        return [one.argument for one in self._aggregations if one.argument is not None]

    def contributions(self, batch: EventBatch, group: Index) -> Contributions:
        if not len(batch):
            return self._no_amounts if self._lanes is None else self._no_amounts.widen(self._lanes.count)
        if self._read_changes is not None:
            changes = self._read_changes(batch)
            return (
                changes if self._lanes is None else replace(changes, pairs=self._lanes.split(changes.pairs))
            )
        ints, pairs = list[Index](), list[Pair]()
        for place, aggregation in enumerate(self._aggregations, len(self.schema) - len(self._aggregations)):
            if isinstance(aggregation.measure, Accumulator):
                values = None if aggregation.argument is None else aggregation.argument(batch.payload)
                part = _contributions(aggregation.measure, values, len(batch), self.schema.names[place])
                ints += part.ints
                pairs += part.pairs
        points = self._points(batch, group) if self._placed else None
        if self._lanes is not None:
            pairs = self._lanes.split(pairs)
            points = None if points is None else points.widen(self._lanes.count)
        return Contributions(ints, pairs, points=points)

    def forget_lanes(self) -> None:
        """Choose anew which floats are summed apart, by what the index keeps."""
        if self._lanes is not None:
            self._lanes.forget()

    def _points(self, batch: EventBatch, group: Index) -> Points:
        """Where the sums that have state of their own change, in all columns."""
        vs, old, new, place = batch.vs, old_end(batch), new_end(batch), self._index.place
        if place is not None:
            (vs, new), old = place(batch.vs, new), place(batch.vs, old)[1]
        changes = PlacedChanges(group, self._index.group_hash(group), vs, old, new, batch)
        found, ints, pairs = list[Points](), 0, 0
        for aggregation in self._aggregations:
            measure = aggregation.measure
            if isinstance(measure, PlacedAccumulator) and aggregation.argument is not None:
                own = measure.points(aggregation.argument(batch.payload), changes)
                found.append(_among(own, ints, pairs, self._no_amounts))
            if isinstance(measure, Accumulator):
                ints, pairs = ints + measure.ints, pairs + measure.pairs
        return found[0] if len(found) == 1 else _concat_points(found)

    def apply(self, change: WindowChange, batch: EventBatch, group: Index) -> EventBatch:
        if self._events is not None:
            return self._apply_to_events(self._events, change, batch, group)
        if not len(change):
            return self._nothing
        # Sums alone are known before anything is taken in: both sides are answered at once.
        group, had = np.concatenate((change.old.group, change.new.group)), len(change.old)
        results = self._rows(group, change.old.sums.concat_with(change.new.sums), None)
        return emit(change, self._index, results, had, self.schema)

    def _apply_to_events(
        self, events: EventsOfGroups, change: WindowChange, batch: EventBatch, group: Index
    ) -> EventBatch:
        old = self._results(events, change.old, change.old_end) if len(change) else None
        if len(batch):
            events.take(batch, self._index.group_hash(group))
        if old is None:
            return self._nothing
        both = old.concat_with(self._results(events, change.new, change.new_end))
        return emit(change, self._index, both, len(old.group), self.schema)

    def _results(self, held: EventsOfGroups, stretches: Stretches, end: Index) -> StretchResults:
        group = stretches.group
        events = held.find_within(
            self._index.group_hash, group, stretches.low, stretches.high, stretches.sums.n, self._deciding
        )
        try:
            return self._rows(group, stretches.sums, events)
        except FunctionError as why:
            low, high = stretches.low, np.minimum(stretches.high, end[stretches.slot])
            windows = self._index.expand(*(x[why.row : why.row + 1] for x in (low, high)))
            raise why.to_module_error(int(windows.start[0]), int(windows.end[0])) from why

    def _rows(self, group: Index, sums: Sums, events: CoveringEvents | None) -> StretchResults:
        first = self._aggregations[0]
        if isinstance(first.measure, TopK) and events is not None and first.argument is not None:
            return self._top_k_rows(first.measure, group, events, first.argument(events.payload))
        columns, ints = list[pa.Array](), sums.ints
        pairs = sums.pairs if self._lanes is None else self._lanes.collapse(sums.pairs)
        for name, aggregation in zip(self._own_schema.names, self._aggregations, strict=True):
            measure = aggregation.measure
            if isinstance(measure, Accumulator):
                try:
                    columns.append(measure.result(sums.n, ints[: measure.ints], pairs[: measure.pairs]))
                except OVERFLOWS as why:
                    raise overflow_error(
                        why, name, lambda row: self._index.keys_of(group[row : row + 1])
                    ) from None
                ints, pairs = ints[measure.ints :], pairs[measure.pairs :]
            elif isinstance(measure, Selection) and events is not None and aggregation.argument is not None:
                answers = measure.result(events, aggregation.argument(events.payload))
                if isinstance(measure, RankedValues) and events.deep is not None:
                    answers = measure.fill_deep(answers, events.is_deep, events.deep(aggregation.argument))
                columns.append(answers)
        return StretchResults(group, columns)

    def _top_k_rows(
        self, top: TopK, group: Index, events: CoveringEvents, values: pa.Array
    ) -> StretchResults:
        chosen, rank, counts = top.choose(events, values)
        payload = take_rows(events.payload, chosen)
        columns = [*(payload.column(name) for name in self._own_schema.names[:-1]), pa.array(rank)]
        return StretchResults(np.repeat(group, counts), columns, counts)

    def earliest_open_end(self, t: int) -> int:
        return self._events.earliest_tie(t) if self._events is not None and self._breaks_ties else FOREVER

    def close(self, t: int, closing: Closing) -> int:
        if self._events is not None:
            if closing.gone is not None:
                group, *places = closing.gone
                self._events.remove_within(self._index.group_hash(group), *places)
            self._events.expire(closing.past)
        for measure in self._placed:
            measure.forget_before(closing.past)
        return closing.until if self._index.moves == "both" else closing.first_open

    def clear(self) -> None:
        if self._events is not None:
            self._events.expire(FOREVER)
        for measure in self._placed:
            measure.forget_before(FOREVER)

    def rows(self) -> int:
        placed = sum(measure.rows() for measure in self._placed)
        return placed if self._events is None else placed + len(self._events)

    def nbytes(self) -> int:
        placed = sum(measure.nbytes() for measure in self._placed)
        return placed if self._events is None else placed + self._events.nbytes()

    def snapshot(self) -> Chunks:
        own = {} if self._events is None else dict(self._events.snapshot())
        for i, measure in enumerate(self._placed):
            own |= add_prefix(f"placed{i}", measure.snapshot())
        return own

    def restore(self, chunks: Chunks) -> None:
        self.forget_lanes()
        if self._events is not None:
            self._events.restore(chunks)
        for i, measure in enumerate(self._placed):
            measure.restore(take_prefix(f"placed{i}", chunks))


def _among(own: Points, ints: int, pairs: int, all_columns: Contributions) -> Points:
    """The points of one aggregate, with the columns of all: its own come after so many."""
    none, zero = np.zeros(len(own.time), np.int64), np.zeros(len(own.time))
    whole, parts = [none] * len(all_columns.ints), [(zero, zero)] * len(all_columns.pairs)
    whole[ints : ints + len(own.ints)] = own.ints
    parts[pairs : pairs + len(own.pairs)] = own.pairs
    return replace(own, ints=whole, pairs=parts)


def _concat_points(found: list[Points]) -> Points:
    def concat(column: Callable[[Points], Any]) -> Any:
        return np.concatenate([column(points) for points in found])

    return Points(
        concat(lambda points: points.group),
        concat(lambda points: points.time),
        concat(lambda points: points.refs),
        concat(lambda points: points.cover),
        [concat(lambda points, i=i: points.ints[i]) for i in range(len(found[0].ints))],  # type: ignore[misc]
        [
            (concat(lambda p, i=i: p.pairs[i][0]), concat(lambda p, i=i: p.pairs[i][1]))  # type: ignore[misc]
            for i in range(len(found[0].pairs))
        ],
    )


@record
class StretchResults:
    """The rows of some stretches, in order, without the keys: ``group`` stands for them.

    ``counts`` tells how many rows each stretch has, one if it is not given.
    """

    group: Index
    columns: list[pa.Array]
    counts: Index | None = None

    def concat_with(self, other: StretchResults) -> StretchResults:
        """These and the others."""
        counts = None
        if self.counts is not None and other.counts is not None:
            counts = np.concatenate((self.counts, other.counts))
        columns = [pa.concat_arrays(pair) for pair in zip(self.columns, other.columns, strict=True)]
        return StretchResults(np.concatenate((self.group, other.group)), columns, counts)


def emit(
    change: WindowChange, index: WindowIndex, results: StretchResults, had_rows: int, schema: pa.Schema
) -> EventBatch:
    """Retractions and inserts that take the old answers, the first ``had_rows`` ones, to the new answers."""
    pairs = _pair_rows(change, results, had_rows)
    low, had, has = change.low, change.old_end, change.new_end
    if pairs.slot is not None:
        low, had, has = low[pairs.slot], had[pairs.slot], has[pairs.slot]
    stays = pairs.was & pairs.now
    both = stays.nonzero()[0]
    stays[both] = rows_equal_at(results.columns, pairs.old_row.take(both), pairs.new_row.take(both))
    kept, moves = _keep(index, stays, low, had, has)
    is_gone, has_come = pairs.was & (had > kept), pairs.now & (has > kept)
    is_gone[moves] = has_come[moves] = False
    goes, comes = is_gone.nonzero()[0], has_come.nonzero()[0]
    changed = np.concatenate((goes, comes))
    shown = index.expand(kept.take(changed), np.concatenate((had.take(goes), has.take(comes))))
    # What goes stands before what comes.
    changed, start, end, at = (
        changed.take(shown.stretch),
        shown.start,
        shown.end,
        shown.count_before(len(goes)),
    )
    vs = np.concatenate((low[moves], start))
    before = np.concatenate((had[moves], end[:at], start[at:]))
    after = np.concatenate((has[moves], start[:at], end[at:]))
    row = np.concatenate((pairs.old_row[moves], pairs.old_row[changed[:at]], pairs.new_row[changed[at:]]))
    if not index.emits_in_order:
        # By group and time, and at each place the retraction first: three sorted runs, which are merged.
        order = np.argsort(np.concatenate((moves, changed)), kind="stable")
    elif index.is_fixed and _are_in_order(shown.low, vs):
        order = _order_of_windows(shown.low, at)
    else:
        order = order_of_changes(vs, before, after)
    row = row.take(order)
    keys = index.keys_of(results.group.take(row))
    own = [take_values(column, row) for column in results.columns]
    payload = pa.RecordBatch.from_arrays([*keys.columns, *own], schema=schema)
    return changes(vs.take(order), before.take(order), after.take(order), payload)


def _are_in_order(window: Index, starts: Ticks) -> bool:
    """Do windows start in the order of their numbers, which are less than 2**62 apart?

    At an end of time windows with different numbers may start.
    """
    low, high = int(starts.min(initial=FOREVER)), int(starts.max(initial=BEGINNING))
    if low == BEGINNING or high == FOREVER:
        return False
    return int(window.max(initial=BEGINNING)) - int(window.min(initial=FOREVER)) < 2**62


def _order_of_windows(window: Index, gone: int) -> Index:
    """As `order_of_changes` for windows with these numbers, which are closer together than their starts.

    The first ``gone`` of them are retracted.
    """
    place = window - window.min(initial=FOREVER)
    place <<= 1
    place[gone:] += 1
    return order_of(place)


def _keep(index: WindowIndex, stays: Mask, low: Index, had: Index, has: Index) -> tuple[Index, Index]:
    """Up to where each stretch is left as it is; and which ones move their ends, as the answer ``stays``."""
    if index.is_fixed:
        return np.where(stays, np.minimum(had, has), low) if bool(stays.any()) else low, _NONE
    is_same = stays & (had == has)
    may_move = index.moves == "both" or ((has < had) & (index.moves == "shorten"))
    return np.where(is_same, had, low), (stays & ~is_same & may_move).nonzero()[0]


@record
class _Pairs:
    """The k-th row of a stretch before and its k-th row after, side by side; one each without ``slot``."""

    slot: Index | None
    was: Mask
    now: Mask
    old_row: Index
    new_row: Index


def _pair_rows(change: WindowChange, results: StretchResults, had_rows: int) -> _Pairs:
    was, now = change.old_end > change.low, change.new_end > change.low
    if results.counts is None:
        return _Pairs(None, was, now, was.cumsum() - 1, now.cumsum() + (had_rows - 1))
    had, has = np.zeros(len(was), np.int64), np.zeros(len(was), np.int64)
    had[was], has[now] = results.counts[: len(change.old)], results.counts[len(change.old) :]
    slot, k = expand(np.zeros(len(was), np.int64), np.maximum(had, has))
    first_old, first_new = had.cumsum() - had, had_rows + has.cumsum() - has
    return _Pairs(slot, k < had[slot], k < has[slot], first_old[slot] + k, first_new[slot] + k)
