"""Span steps that read the lifetimes of events, and those that give events other lifetimes.

    where(rc.lifetime() > 10)       with_columns(cost=rc.lifetime() * col("rate"))
    with_lifetime(rc.end(), rc.end() + 10)

A payload that holds the start stays what it is. One that holds the end changes when the end moves: the event
is taken back whole and shown anew, from its start on. So CTIs wait for the starts of events whose ends are
not final (rulings D9 and D10), unless the new lifetime lies where the end is (ruling D13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Mask, take_rows
from recension.core.errors import RecensionError, SchemaError, TimeError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import Instant, TimeKind, describe_kind, describe_time_in_message
from recension.plan.evaluation import Predicate, Projection, evaluate
from recension.plan.expressions import Expression, column, require_boolean, result_type
from recension.plan.expressions.bounds import HIGHEST, LOWEST, Bounds, bounds, least_change
from recension.plan.expressions.tree import substitute
from recension.plan.node import FilterRule, Names, Node, Outputs, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.schemas import END, START, require_names, type_name
from recension.plan.span import describe_selection, is_identity
from recension.plan.structure import NOT_STRUCTURE

TIMES = frozenset({START, END})

Gate: TypeAlias = Callable[[pa.RecordBatch, Ticks], Mask]
"""Which events may be shown at all, whatever their ends."""
StartKernel: TypeAlias = Callable[[pa.RecordBatch, Ticks], tuple[Mask, pa.RecordBatch]]
"""Of payloads and starts: which events are kept, and their payloads then."""
Rewrite: TypeAlias = Callable[[pa.RecordBatch, Ticks, Ticks], tuple[Mask, pa.RecordBatch, Ticks, Ticks]]
"""Of payloads, starts and ends: which events are shown, and their payloads, starts and ends then."""
CtiRule: TypeAlias = Callable[[int, int], int]
"""Of a CTI, and of the first start of which an event may still change: the CTI that holds of the output."""


@dataclass(frozen=True, eq=False)
class TimedSpan(TimedNode):
    """The predicates in turn, then the outputs, both over payload and times; then other lifetimes, if any.

    ``times`` is the type of the times in expressions. ``start`` and ``end`` are computed from the outputs and
    the event's own times; a null start drops the event, a null end is for ever. ``bound``: no event
    starts more than this before its own start.
    """

    input: Node
    times: pa.DataType
    predicates: tuple[Expression, ...]
    outputs: Outputs
    start: Expression | None = None
    end: Expression | None = None
    bound: int | None = None
    verb: str = field(default="select", metadata=NOT_STRUCTURE)
    """Only says, in errors, how it was written."""

    @property
    def label(self) -> str:
        steps = [f"where {predicate}" for predicate in self.predicates]
        if not is_identity(self.outputs, self.input.schema):
            steps.append(describe_selection(self.outputs, self.input.schema))
        if self.is_altering:
            within = "" if self.bound is None else f", at most {self.bound} before its own"
            steps.append(f"live from {self.start or START}{within} to {self.end or END}")
        return "; ".join(steps)

    @property
    def is_altering(self) -> bool:
        """Does it give other lifetimes?"""
        return self.start is not None or self.end is not None

    @property
    def forgets_lifetimes(self) -> bool:
        """Do the new lifetimes depend on columns alone, and not on the events' own times?"""
        if self.start is None or self.end is None:
            return False
        read, computed = self.start.references | self.end.references, dict(self.outputs)
        below = (computed[name].references for name in read if name in computed)
        return not TIMES & read.union(*below)

    @property
    def reads_times(self) -> bool:
        """Does the payload depend on the times, or whether the event is shown?"""
        return any(map(reads_times, (*self.predicates, *(computed for _, computed in self.outputs))))

    @property
    def reads_end(self) -> bool:
        """Does the payload depend on the end, or whether the event is shown?"""
        read = (*self.predicates, *(computed for _, computed in self.outputs))
        return any(END in computed.references for computed in read)

    @property
    def ends_move(self) -> bool:
        """May the end of an event that has come move? (To remove it is to move nothing.)"""
        of = self.input.properties
        return not of.is_insert_only and of.constant_duration is None

    @property
    def holds_ctis(self) -> bool:
        """Do CTIs wait for the starts of events whose ends are not final?"""
        return self.ends_move and self._end_rule is None

    # Its columns.

    def derive_schema(self) -> pa.Schema:
        timed = self._schema_with_times(self.input.schema)
        for predicate in self.predicates:
            require_boolean(predicate, timed, f"{self.verb}({predicate})")
        require_names([name for name, _ in self.outputs], self.verb)
        types = [
            result_type(
                computed, timed, f"{self.verb}({name if name == computed.column else f'{name}={computed}'})"
            )
            for name, computed in self.outputs
        ]
        schema = pa.schema(
            [pa.field(name, kind) for (name, _), kind in zip(self.outputs, types, strict=True)]
        )
        if self.is_altering:
            self._check_lifetime(self._schema_with_times(schema))
        return schema

    def _schema_with_times(self, schema: pa.Schema) -> pa.Schema:
        """The columns, and the times beside them."""
        return pa.schema([*schema, pa.field(START, self.times), pa.field(END, self.times)])

    def _check_lifetime(self, timed: pa.Schema) -> None:
        if self.bound is not None and self.bound < 0:
            raise TimeError(f"with_lifetime: bound is how far back a start may lie, not {self.bound} ticks")
        for which in ("start", "end"):
            self._require_time(which, timed)
        if not _follows(lambda t: self._earliest_start(t, t)):
            raise SchemaError(
                f"with_lifetime: nothing says how early {self._start} may be, so no CTI could pass; say how "
                "long before the event's own start it may lie at most",
                instead=', as in with_lifetime(..., bound="1h")',
            )

    def _require_time(self, which: str, timed: pa.Schema) -> None:
        """Raise unless a new start or end is a number or a timestamp, as times are; an end may be null."""
        computed = self._start if which == "start" else self._end
        kind = result_type(computed, timed, f"with_lifetime({which}={computed})")
        if which == "end" and pa.types.is_null(kind):
            return
        wanted = pa.types.is_integer if pa.types.is_integer(self._lifetime_kind) else pa.types.is_timestamp
        if not wanted(kind):
            is_own = reads_times(computed) and pa.types.is_integer(kind)
            hint = (
                "; say in the source what its times are, as in times='timestamp[us, UTC]'" if is_own else ""
            )
            raise SchemaError(
                f"with_lifetime: {which} must be {_describe_times(self._lifetime_kind)}, but {computed} is "
                f"{type_name(kind)}{hint}"
            )

    @cached_property
    def _lifetime_kind(self) -> pa.DataType:
        """The type of times in new lifetimes: that of the source, or timestamps if they are computed so."""
        if pa.types.is_timestamp(self.times):
            return self.times
        schema = self._schema_with_times(pa.schema([(n, self._output_type(e)) for n, e in self.outputs]))
        kinds = [result_type(e, schema, "with_lifetime") for e in (self.start, self.end) if e is not None]
        zones = [kind for kind in kinds if pa.types.is_timestamp(kind)]
        return pa.timestamp("us", zones[0].tz) if zones else self.times

    def _output_type(self, computed: Expression) -> pa.DataType:
        return result_type(computed, self._schema_with_times(self.input.schema), self.verb)

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        """That times are timestamps, if they are taken for such."""
        kind = self._lifetime_kind if self.is_altering else self.times
        if not pa.types.is_timestamp(kind):
            return ()
        return (("with_lifetime" if self.is_altering else "rc.start() and rc.end()", Instant(0, kind)),)

    @property
    def times_made(self) -> TimeKind:
        return self._lifetime_kind if self.is_altering and self._lifetime_kind != self.times else None

    def derive_properties(self) -> Properties:
        """Of a step that keeps lifetimes, as of a projection, but that a moved end takes an event back.

        Other lifetimes: an insert gives at most one insert, and only starts that stay keep their order.
        """
        of = self.input.properties
        keeps_start = self.start is None or self.start.column == START
        keeps_columns = set(self.input.schema.names) <= {computed.column for _, computed in self.outputs}
        has_key = of.has_key and keeps_columns and keeps_start
        if not self.is_altering and not (self.reads_end and self.ends_move):
            return replace(of, has_key=has_key)
        if not self.is_altering:
            return Properties(is_shrink_only=of.is_shrink_only, has_key=has_key)
        in_step = keeps_start and not self.ends_move
        return Properties(
            is_insert_only=of.is_insert_only,
            is_ordered=of.is_ordered and in_step,
            is_strictly_increasing=of.is_strictly_increasing and in_step,
            has_deterministic_ties=of.has_deterministic_ties and in_step,
            has_key=has_key,
            is_shrink_only=not self.ends_move,
            cti_frequency=of.cti_frequency if in_step else None,
        )

    def kept_columns(self) -> Mapping[str, str]:
        return {name: e.column for name, e in self.outputs if e.column and e.column not in TIMES}

    @cached_property
    def _read_by_lifetime(self) -> Names:
        given = (e.references for e in (self.start, self.end) if e is not None)
        return frozenset().union(*given) - TIMES

    def columns_read(self, needed: Names) -> list[Names]:
        outputs = (e.references for name, e in self.outputs if name in needed | self._read_by_lifetime)
        return [frozenset().union(*outputs, *(p.references for p in self.predicates)) - TIMES]

    def without_unread(self, needed: Names) -> Node:
        kept = tuple(output for output in self.outputs if output[0] in needed | self._read_by_lifetime)
        return self if len(kept) == len(self.outputs) else replace(self, outputs=kept)

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that read no times. Where events are dropped, one would meet rows it never met before."""
        plain = {name: computed for name, computed in self.outputs if computed.references.isdisjoint(TIMES)}
        return (FilterRule(plain, needs_total=bool(self.predicates) or self.is_altering),)

    # Where it can run, and how it stands to time.

    def needs(self) -> None:
        return None

    @property
    def passes_external_ctis(self) -> bool:  # type: ignore[override]
        """As a span step, unless it takes events back or moves them."""
        return not self.is_altering and not self.reads_end

    @property
    def is_before_state(self) -> bool:  # type: ignore[override]
        return self.passes_external_ctis

    @property
    def ignores_ctis(self) -> bool:
        """Its CTIs, if not its events, depend on those of other groups where they wait."""
        return not self.holds_ctis

    @property
    def holds_ctis_by_group(self) -> bool:
        return self.holds_ctis

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return True

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], outputs=(*columns_named(keys), *self.outputs))

    # How it is done.

    @property
    def _start(self) -> Expression:
        return column(START) if self.start is None else self.start

    @property
    def _end(self) -> Expression:
        return column(END) if self.end is None else self.end

    def expand(self, computed: Expression) -> Expression:
        """An expression over the outputs and times as one over the input's payload and times."""
        outputs = dict(self.outputs)
        return Expression(
            substitute(computed.tree, lambda name: (column(name) if name in TIMES else outputs[name]).tree)
        )

    @cached_property
    def _start_below(self) -> Expression:
        """The new start, over the input's payload and times."""
        return self.expand(self._start)

    def _earliest_start(self, since: int, t: int) -> int:
        """The least new start of an event that starts at ``since`` or later and ends at ``t`` or later."""
        begins, ends = Bounds(since, may_be_null=False), Bounds(max(since, t))
        least = bounds(self._start_below.tree, begins, ends).low
        return least if self.bound is None else max(least, since - self.bound)

    @cached_property
    def _end_rule(self) -> Callable[[int], int] | None:
        """Before which time nothing changes if ends at ``t`` or later move; None if that is not known."""
        start, end = self._start_below, self.expand(self._end)
        if END in start.references:
            # Wherever the event was and will be shown, that depends on its old and new end.
            anywhere = Bounds(may_be_null=False)
            rule = lambda t: bounds(start.tree, anywhere, Bounds(t)).low  # noqa: E731
        elif self.reads_end:
            return None
        else:
            rule = lambda t: least_change(end.tree, t)  # noqa: E731
        return rule if _follows(rule) else None

    def cti_rule(self) -> CtiRule:
        """See `CtiRule`."""
        if not self.is_altering:
            return lambda t, since: since
        rule = self._end_rule if self.ends_move else None

        def reach(t: int, since: int) -> int:
            least = min(self._earliest_start(since, t), HIGHEST if rule is None else rule(t))
            return max(BEGINNING, min(FOREVER, least))

        return reach

    def gate(self) -> Gate | None:
        """The first predicates, as far as they do not read the end: an event that fails them never counts."""
        first = self.predicates[: self._gate_size]
        if not first:
            return None
        conditions = [Predicate(predicate) for predicate in first]
        is_timed = any(START in predicate.references for predicate in first)

        def holds(payload: pa.RecordBatch, vs: Ticks) -> Mask:
            rows = self._with_times(payload, vs, None) if is_timed else payload
            return _filter_by(conditions, rows, len(vs))[0]

        return holds

    @property
    def _gate_size(self) -> int:
        reads = (END in predicate.references for predicate in self.predicates)
        return next((i for i, is_open in enumerate(reads) if is_open), len(self.predicates))

    def start_kernel(self) -> StartKernel:
        """The whole step, if it keeps lifetimes and reads no ends: a span step of payloads and starts."""
        conditions = [Predicate(predicate) for predicate in self.predicates]
        project = self._projection

        def apply(payload: pa.RecordBatch, vs: Ticks) -> tuple[Mask, pa.RecordBatch]:
            keep, rows = _filter_by(conditions, self._with_times(payload, vs, None), len(vs))
            return keep, project(rows, rows.num_rows)

        return apply

    @property
    def _projection(self) -> Callable[[pa.RecordBatch, int], pa.RecordBatch]:
        if is_identity(self.outputs, self.input.schema):
            return lambda rows, size: rows.select(self.schema.names)
        return Projection(self.outputs, self.schema)

    def rewrite(self) -> Rewrite:
        """What becomes of events that have passed the `gate`."""
        conditions = [Predicate(predicate) for predicate in self.predicates[self._gate_size :]]
        project = self._projection

        def apply(payload: pa.RecordBatch, vs: Ticks, ve: Ticks) -> tuple[Mask, pa.RecordBatch, Ticks, Ticks]:
            timed = self._with_times(payload, vs, ve)
            shown, timed = _filter_by(conditions, timed, len(vs))
            vs, ve = vs[shown], ve[shown]
            made = project(timed, len(vs))
            if not self.is_altering:
                return shown, made, vs, ve
            return self._alter(shown, made, vs, ve)

        return apply

    def _alter(
        self, shown: Mask, payload: pa.RecordBatch, vs: Ticks, ve: Ticks
    ) -> tuple[Mask, pa.RecordBatch, Ticks, Ticks]:
        timed = self._with_times(payload, vs, ve)
        start, is_there = self._ticks(self._start, timed, BEGINNING) if self.start else (vs, None)
        end = self._ticks(self._end, timed, FOREVER)[0] if self.end else ve
        there = end > start
        if is_there is not None:
            there &= is_there
        if self.bound is not None:
            self._require_bound(start, vs, there)
        if bool(there.all()):
            return shown, payload, start, end
        rows = np.flatnonzero(there)
        shown = shown.copy()
        shown[shown] = there
        return shown, take_rows(payload, rows), start[rows], end[rows]

    def _ticks(self, computed: Expression, timed: pa.RecordBatch, missing: int) -> tuple[Ticks, Mask]:
        """Times in ticks, and where there is one."""
        kind = result_type(computed, timed.schema, "with_lifetime")
        try:
            (found,) = evaluate([computed], [kind], timed)
        except RecensionError as why:  # a time is no float, so the advice for other numbers does not help
            reason = str(why).removesuffix("; cast to float64 first")
            raise RecensionError(f"with_lifetime: {reason}") from None
        if pa.types.is_timestamp(kind):
            found = found.cast(pa.timestamp("us", kind.tz))
        known = np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False), np.bool_)
        ticks = pc.fill_null(found.cast(pa.int64()), missing)
        return np.asarray(ticks.to_numpy(zero_copy_only=False), np.int64), known

    def _require_bound(self, start: Ticks, vs: Ticks, there: Mask) -> None:
        assert self.bound is not None
        least = np.where(vs < BEGINNING + self.bound, np.int64(BEGINNING), vs - self.bound)
        early = np.flatnonzero(there & (start < least))
        if len(early):
            row = early[0]
            found, own = describe_time_in_message(int(start[row])), describe_time_in_message(int(vs[row]))
            raise TimeError(
                f"with_lifetime: an event that starts at {own} would start at {found}, which is more than "
                f"bound={self.bound} before; give a larger bound, or drop such events first"
            )

    def _with_times(self, payload: pa.RecordBatch, vs: Ticks, ve: Ticks | None) -> pa.RecordBatch:
        """The payload with the times that are known beside it."""
        columns, names = list(payload.columns), list(payload.schema.names)
        columns.append(self._time_column(pa.array(vs, pa.int64())))
        names.append(START)
        if ve is not None:
            # Some checked kernels look at what lies under a null, too.
            is_endless = ve == FOREVER
            ends = pa.array(np.where(is_endless, np.int64(0), ve), pa.int64(), mask=is_endless)
            columns.append(self._time_column(ends))
            names.append(END)
        return pa.RecordBatch.from_arrays(columns, names)

    def _time_column(self, ticks: pa.Array) -> pa.Array:
        return ticks if pa.types.is_integer(self.times) else ticks.view(self.times)


def _filter_by(
    conditions: Sequence[Predicate], rows: pa.RecordBatch, size: int
) -> tuple[Mask, pa.RecordBatch]:
    """The rows that satisfy all conditions, each asked of what the one before left; which they are."""
    keep = np.ones(size, np.bool_)
    for condition in conditions:
        holds = condition(rows)
        if not bool(holds.all()):
            rows = rows.filter(pa.array(holds))
        keep[keep] = holds
    return keep, rows


def _follows(rule: Callable[[int], int]) -> bool:
    """Does the bound go on for ever as time does, if there is one?"""
    early, late = rule(1 << 40), rule(1 << 50)
    return early == HIGHEST or late > early > LOWEST


def _describe_times(kind: pa.DataType) -> str:
    return "whole numbers, which are ticks" if pa.types.is_integer(kind) else describe_kind(kind)


def reads_times(computed: Expression) -> bool:
    """Does an expression read the times of events?"""
    return not computed.references.isdisjoint(TIMES)
