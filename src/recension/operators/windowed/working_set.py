"""The part of the time axis a batch touches, before and after the batch, side by side.

    end points kept so far     |----------|-------|--------------|
    steps of the batch               +        -           +
    merged                     |-----|----|---|---|-------|------|

Each end point of the merged axis knows the state that held from it to the next one before the batch
(``old``; a new end point inherits that of its left neighbour) and the one that holds now (``new``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index, Mask
from recension.core.records import record
from recension.core.sorted_runs import Column, Columns
from recension.core.ticks import Ticks
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import EndPoints, never_inserted_error
from recension.operators.state.leaf_table import LeafExtract
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.dense_axis import constant, is_constant
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.steps import AxisSteps

_SHORT: Final = 256  # rows of which there is little to spare
_ZERO: Final = np.zeros(1, np.int64)
_MINUS_ONE: Final = np.full(1, -1)
_FALSE: Final = np.zeros(1, np.bool_)
_CLOSE: Final = 8  # keys that span so many times their count are marked instead of searched for
_KNOWN, _STEP = np.uint8(1), np.uint8(2)


@record
class Sums:
    """How many events there are, and what they add up to."""

    n: Index
    ints: list[Index]
    pairs: list[Pair]

    @staticmethod
    def from_columns(read: Callable[[str], Column], ints: int, pairs: int) -> Sums:
        """The sums in so many columns, which ``read`` gives by the names of `columns`."""
        return Sums(
            read("n"),
            [read(f"int{i}") for i in range(ints)],
            [(read(f"high{i}"), read(f"low{i}")) for i in range(pairs)],
        )

    def add(self, by: Sums) -> Sums:
        """Row by row the two together; a row without events left has no rounding error left either."""
        n = self.n + by.n
        pairs = [dd.add(pair, more) for pair, more in zip(self.pairs, by.pairs, strict=True)]
        if pairs and bool((is_empty := n == 0).any()):
            for part in (part for pair in pairs for part in pair):
                part[is_empty] = 0.0
        return Sums(n, [_add(a, b) for a, b in zip(self.ints, by.ints, strict=True)], pairs)

    def concat_with(self, other: Sums) -> Sums:
        """These and the others."""
        return Sums(
            np.concatenate((self.n, other.n)),
            [_concat(*columns) for columns in zip(self.ints, other.ints, strict=True)],
            [
                (np.concatenate((high, more_high)), np.concatenate((low, more_low)))
                for (high, low), (more_high, more_low) in zip(self.pairs, other.pairs, strict=True)
            ],
        )

    def take(self, rows: Index) -> Sums:
        """Some of the rows."""
        pairs = [(high.take(rows), low.take(rows)) for high, low in self.pairs]
        return Sums(self.n.take(rows), [_take(column, rows) for column in self.ints], pairs)

    def put(self, rows: Index, sums: Sums) -> Sums:
        """The same with others in some of the rows; its own columns may be written to."""
        self.n[rows] = sums.n
        for (high, low), (other_high, other_low) in zip(self.pairs, sums.pairs, strict=True):
            high[rows], low[rows] = other_high, other_low
        ints = [_put(column, rows, other) for column, other in zip(self.ints, sums.ints, strict=True)]
        return Sums(self.n, ints, self.pairs)

    def add_to_nothing(self) -> Sums:
        """As `add` gives where there was nothing before."""
        pairs = []
        for high, low in self.pairs:
            pairs.append(_clear(dd.two_sum(high + 0.0, low + 0.0), self.n))
        return Sums(self.n, self.ints, pairs)

    def columns(self) -> Columns:
        """The sums as the leaf table keeps them."""
        columns: Columns = {"n": self.n} | {f"int{i}": column for i, column in enumerate(self.ints)}
        for i, (high, low) in enumerate(self.pairs):
            columns |= {f"high{i}": high, f"low{i}": low}
        return columns


def _clear(pair: Pair, n: Index) -> Pair:
    """Nothing where there are no events."""
    is_empty = n == 0
    if bool(is_empty.any()):
        pair[0][is_empty] = pair[1][is_empty] = 0.0
    return pair


# Counts that are nearly always 0, as of NaN and of the infinities, are columns of one value: nothing to do.


def _take(column: Index, rows: Index) -> Index:
    return constant(int(column[0]), len(rows)) if is_constant(column) and len(column) else column.take(rows)


def _add(one: Index, other: Index) -> Index:
    if is_constant(one) and is_constant(other) and len(one):
        return constant(int(one[0]) + int(other[0]), len(one))
    return one + other


def _concat(one: Index, other: Index) -> Index:
    if is_constant(one) and is_constant(other) and len(one) and len(other) and one[0] == other[0]:
        return constant(int(one[0]), len(one) + len(other))
    return np.concatenate((one, other))


def _put(column: Index, rows: Index, values: Index) -> Index:
    if is_constant(column):
        if not len(rows) or (is_constant(values) and values[0] == column[0]):
            return column
        column = column.copy()
    elif not column.flags.writeable:  # a short one of one value
        column = column.copy()
    column[rows] = values
    return column


def _shorten(column: Index) -> Index:
    return column if len(column) < _SHORT or bool(column.any()) else constant(0, len(column))


@record
class AxisSide:
    """The state from each end point to the next, before or after."""

    is_point: Mask
    following: Ticks
    n: Index
    sums_at: Callable[[Index | slice], Sums]


@record
class WorkingSet:
    """The merged axis; ``extract`` is what was read from the table for it."""

    extract: LeafExtract
    group: Index
    time: Ticks
    refs: Index
    is_new: Mask
    is_context: Mask
    is_changed: Mask
    old: AxisSide
    new: AxisSide

    @property
    def is_born(self) -> Mask:
        """The end points that were not there before."""
        return self.is_new & self.new.is_point

    def write_back(self, points: EndPoints) -> None:
        """Store the new end points."""
        is_kept = self.new.is_point & ~self.is_context
        keep = slice(None) if bool(is_kept.all()) else is_kept.nonzero()[0]
        gone = (self.old.is_point & ~self.new.is_point).nonzero()[0]
        born = self.is_born.nonzero()[0]
        columns: Columns = {name: getattr(self, name)[keep] for name in ("group", "time", "refs")}
        columns |= self.new.sums_at(keep).columns()
        come, went = ((self.group.take(at), self.time.take(at)) for at in (born, gone))
        points.replace(self.extract, columns, come, went)


def state_columns(ints: int, pairs: int) -> dict[str, npt.DTypeLike]:
    """The columns of an end point, besides its group and time."""
    columns: dict[str, npt.DTypeLike] = {"refs": np.int64, "n": np.int64}
    columns |= {f"int{i}": np.int64 for i in range(ints)}
    return columns | pair_columns(pairs)


def pair_columns(pairs: int) -> dict[str, npt.DTypeLike]:
    """The columns of so many pairs."""
    return {f"{part}{i}": np.float64 for i in range(pairs) for part in ("high", "low")}


def merge_steps(points: EndPoints, steps: AxisSteps) -> WorkingSet:
    """The steps of a batch over the end points kept so far."""
    return _merge(points.extract(*steps.segments()), steps)


def _merge(extract: LeafExtract, steps: AxisSteps) -> WorkingSet:
    own = extract.columns
    at_known, at_steps, is_new = _interleave(own, steps)
    group, time, refs = np.zeros((3, len(is_new)), np.int64)
    group[at_known], time[at_known] = own["group"], own["time"]
    group[at_steps], time[at_steps], refs[at_steps] = steps.group, steps.time, steps.refs
    refs[at_known] += own["refs"]
    if bool((refs < 0).any()):
        raise never_inserted_error()
    is_context = np.zeros(len(is_new), np.bool_)
    is_context[at_known] = extract.follower
    # Where the next known end point is, and the last one before: the row after all stands for none.
    known = {name: np.concatenate((column, _ZERO)) for name, column in own.items() if name != "refs"}
    known["group"][-1] = -1
    after = (~is_new).cumsum()
    following = np.where(known["group"].take(after) == group, known["time"].take(after), time)
    after -= 1
    inherit = np.where(known["group"].take(after) == group, after, len(at_known))
    last_step = _last_marked(at_steps, len(is_new))
    is_changed, is_point = np.concatenate((steps.covered, _FALSE)).take(last_step), refs > 0
    old_n = known["n"].take(inherit)
    new_n = np.where(is_changed, steps.n.take(last_step), 0)
    new_n += old_n
    sums = _AxisSums.over(known, inherit, steps, last_step, is_changed)
    return WorkingSet(
        extract, group, time, refs, is_new, is_context, is_changed,
        AxisSide(~is_new, following, old_n, sums.old),
        AxisSide(is_point, next_point(group, time, is_point), new_n, sums.new),
    )  # fmt: skip


@record
class _AxisSums:
    """The sums along the axis, read where they are needed: those before, and after them those that changed.

    ``before`` and ``after`` are the places in ``sums`` of what held and of what holds from each point on.
    """

    sums: Sums
    before: Index
    after: Index

    @staticmethod
    def over(
        known: Columns, inherit: Index, steps: AxisSteps, last_step: Index, is_changed: Mask
    ) -> _AxisSums:
        none = len(known["n"]) - 1
        sums = Sums.from_columns(known.__getitem__, len(steps.ints), len(steps.pairs))
        sums = Sums(sums.n, [_shorten(column) for column in sums.ints], sums.pairs)
        rows = is_changed.nonzero()[0]
        inherited = inherit[rows]
        more = Sums(steps.n, steps.ints, steps.pairs).take(last_step[rows])
        heirs = (inherited < none).nonzero()[0]
        if len(heirs) == len(rows):
            changed = sums.take(inherited).add(more)
        else:
            changed = more.add_to_nothing()
            changed = changed.put(heirs, sums.take(inherited[heirs]).add(more.take(heirs)))
        after = inherit.copy()
        after[rows] = np.arange(none + 1, none + 1 + len(rows))
        return _AxisSums(sums.concat_with(changed), inherit, after)

    def old(self, rows: Index | slice) -> Sums:
        return self.sums.take(self.before[rows])

    def new(self, rows: Index | slice) -> Sums:
        return self.sums.take(self.after[rows])


def _interleave(known: Columns, steps: AxisSteps) -> tuple[Index, Index, Mask]:
    """Positions of the known end points and of the steps on the merged axis; which positions are new."""
    last = len(known["time"]) - 1
    if last >= 0 and known["group"][0] == known["group"][-1] == steps.group[0] == steps.group[-1]:
        known_keys, step_keys = known["time"], steps.time
    else:
        known_keys, step_keys = sort_keys([known["group"], steps.group], [known["time"], steps.time])
    size = len(known_keys) + len(step_keys)
    if last >= 0 and size > _SHORT:
        low = min(int(known_keys[0]), int(step_keys[0]))
        span = max(int(known_keys[-1]), int(step_keys[-1])) - low + 1
        if span <= _CLOSE * size:
            return _interleave_close(known_keys - low, step_keys - low, span)
    if len(known_keys) < len(step_keys):
        at_known, at_steps, size = _place_among(known_keys, step_keys)
    else:
        at_steps, at_known, size = _place_among(step_keys, known_keys)
    is_new = np.ones(size, np.bool_)
    is_new[at_known] = False
    return at_known, at_steps, is_new


def _interleave_close(known: Index, steps: Index, span: int) -> tuple[Index, Index, Mask]:
    """The same of keys from 0 to ``span`` that lie close together: marked, not searched for."""
    marks = np.zeros(span, np.uint8)
    marks[known] = _KNOWN
    marks[steps] = marks.take(steps) | _STEP
    marks = marks.take(marks.nonzero()[0])
    return (marks & _KNOWN).nonzero()[0], (marks & _STEP).nonzero()[0], marks == _STEP


def _place_among(few: Index, many: Index) -> tuple[Index, Index, int]:
    """Positions of few and of more sorted keys among all, each counted once; and how many those are."""
    place = many.searchsorted(few)
    is_met = many[np.minimum(place, len(many) - 1)] == few
    met = is_met.cumsum()
    at_few = np.arange(len(few)) + place - met + is_met
    size = len(few) + len(many) - (int(met[-1]) if len(few) else 0)
    is_other = np.ones(size, np.bool_)
    is_other[at_few[~is_met]] = False
    return at_few, is_other.nonzero()[0], size


def _last_marked(positions: Index, size: int) -> Index:
    """For each position the number of the last marked one at or before it, -1 if there is none."""
    is_marked = np.zeros(size, np.bool_)
    is_marked[positions] = True
    last: Index = is_marked.cumsum()
    last -= 1
    return last


def next_point(group: Index, time: Ticks, is_point: Mask) -> Ticks:
    """The time of the next end point of the same group; its own time where there is none."""
    points = is_point.nonzero()[0]
    if len(points) == len(time):
        return next_in_group(group, time)
    after = is_point.cumsum()
    same = np.concatenate((group[points], _MINUS_ONE))[after] == group
    return np.where(same, np.concatenate((time[points], _ZERO))[after], time)


def next_in_group(group: Index, time: Ticks) -> Ticks:
    """The time of the next row of the same group; its own time where there is none."""
    after = time.copy()
    after[:-1] = np.where(group[1:] == group[:-1], time[1:], time[:-1])
    return after
