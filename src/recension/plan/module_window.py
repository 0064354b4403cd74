"""Modules over windows: a call of a user's module, and what it says of the events of every window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.modules.module import Clipping, Module, Stamping
from recension.plan.aggregate import GroupedNode, require_speculate
from recension.plan.aggregates import Aggregate
from recension.plan.expressions import Expression, column, expression, result_type
from recension.plan.node import FilterRule, Names, Node, Outputs, Speculate
from recension.plan.properties import Properties
from recension.plan.schemas import require_names, schema_of, type_name, type_of
from recension.plan.span import describe_outputs, projected_schema
from recension.plan.structure import NOT_STRUCTURE
from recension.plan.windows import CountWindows, SessionWindows, Windows


@dataclass(frozen=True)
class ModuleCall:
    """A module with the expressions mapped to its inputs, and their types."""

    module: Module
    inputs: Outputs
    types: tuple[pa.DataType, ...]

    @property
    def references(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset().union(*(computed.references for _, computed in self.inputs))

    def value_type(self) -> pa.DataType:
        """The type of the value it gives."""
        return type_of(_declared_result(self.module), f"{self.module.name}: result")

    def row_schema(self) -> pa.Schema:
        """The columns of the rows it gives."""
        return schema_of(_declared_result(self.module), f"{self.module.name}: result")

    def __str__(self) -> str:
        parameters = [f"{name}={value!r}" for name, value in self.module.parameters.items()]
        inputs = [describe_outputs(self.inputs).replace(" = ", "=")] if self.inputs else []
        return f"{self.module.name}({', '.join([*inputs, *parameters])})"


def call_of(module: Module, schema: pa.Schema) -> ModuleCall:
    """The module over events of this schema; what is not mapped is the column of that name."""
    declared: Mapping[str, Any] | None = module.inputs
    if declared is None:
        names = [name for name in schema.names if name not in module.ignores]
        mapped = module.mapping or {name: column(name) for name in names}
        declared = dict.fromkeys(mapped)
    else:
        mapped = {name: module.mapping.get(name, column(name)) for name in declared}
    inputs = tuple((name, expression(value)) for name, value in mapped.items())
    types = tuple(_input_type(module, name, e, declared[name], schema) for name, e in inputs)
    return ModuleCall(module, inputs, types)


def require_inputs(call: ModuleCall, schema: pa.Schema) -> None:
    """Raise unless the inputs can be computed from events of this schema."""
    for name, computed in call.inputs:
        result_type(computed, schema, f"{call.module.name}({name}={computed})")


def _input_type(module: Module, name: str, computed: Any, declared: Any, schema: pa.Schema) -> pa.DataType:
    given = result_type(computed, schema, f"{module.name}({name}={computed})")
    if declared is None:
        return given
    wanted = type_of(declared, f"{module.name}: input {name!r}")
    if given == wanted or _widens(given, wanted):
        return wanted
    raise SchemaError(
        f"{module.name}: the input {name!r} is {type_name(wanted)}, but {computed} is {type_name(given)}; "
        "map another expression, or cast it"
    )


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Can every value of one type be one of the other? (Whole numbers beyond floats are refused when met.)"""
    if pa.types.is_floating(wanted):
        return pa.types.is_integer(given) or (pa.types.is_floating(given) and _bits(given) <= _bits(wanted))
    if pa.types.is_signed_integer(wanted):
        return pa.types.is_signed_integer(given) and _bits(given) <= _bits(wanted)
    text = (pa.string(), pa.large_string())
    return given in text and wanted in text


def _bits(kind: pa.DataType) -> int:
    return int(kind.bit_width)


def _declared_result(module: Module) -> Any:
    if not hasattr(module, "result"):
        raise SchemaError(f"{module.name}: declare what it gives, as in result = 'float64'")
    return module.result


WindowKind: TypeAlias = Windows | CountWindows | SessionWindows | None
"""A grid, counted moments, sessions, or the snapshots themselves."""
Answer: TypeAlias = ModuleCall | Aggregate
Ends: TypeAlias = Literal["unseen", "clipped", "seen"]


@dataclass(frozen=True)
class Policies:
    """How lifetimes are clipped for modules, and how the rows they give are stamped (§III.C).

    ``recompute``: output is computed again to be retracted, instead of being kept. ``verify``: every call is
    made twice, and must give the same.
    """

    clip: Clipping = "full"
    stamp: Stamping = "align"
    speculate: Speculate = "perfect"
    recompute: bool = False
    verify: bool = field(default=False, metadata=NOT_STRUCTURE)

    def __post_init__(self) -> None:
        for verb, value, known in (
            ("clip_input", self.clip, get_args(Clipping)),
            ("stamp_output", self.stamp, get_args(Stamping)),
        ):
            if value not in known:
                raise SchemaError(f"{verb}: one of {', '.join(map(repr, known))}, not {value!r}")
        if not isinstance(self.recompute, bool):
            raise SchemaError(
                f"agg: recompute is True or False, not {self.recompute}; name the answer otherwise"
            )
        require_speculate(self.speculate)


@dataclass(frozen=True, eq=False)
class ModuleWindow(GroupedNode):
    """Answers per window, for every group by itself: the keys' columns first.

    Either named values, one row a window; or one operator, whose rows' columns take the place of its name.
    """

    input: Node
    keys: Outputs
    answers: tuple[tuple[str, Answer], ...]
    windows: WindowKind
    policies: Policies = Policies()

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        return self.windows.named_times if isinstance(self.windows, Windows) else ()

    @property
    def label(self) -> str:
        return self._describe("snapshots" if self.windows is None else str(self.windows))

    @property
    def label_with_units(self) -> str:
        """The label for messages that have timestamps."""
        if isinstance(self.windows, Windows | SessionWindows):
            return self._describe(self.windows.with_units)
        return self.label

    def _describe(self, shape: str) -> str:
        by = f" by {describe_outputs(self.keys)}" if self.keys else ""
        parts = [str(a) if self.operator or name == str(a) else f"{name} = {a}" for name, a in self.answers]
        clip = f", clip {self.policies.clip}" if self.ends != "unseen" else ""
        verb = f"apply{by} {parts[0]}" if self.operator else f"aggregate {', '.join(parts)}{by}"
        stamp = "" if self.policies.stamp == "align" else f", stamp {self.policies.stamp}"
        return f"{verb}, {shape}{clip}{stamp}, speculate {self.policies.speculate}"

    @property
    def calls(self) -> list[ModuleCall]:
        """The modules among the answers."""
        return [answer for _, answer in self.answers if isinstance(answer, ModuleCall)]

    @property
    def operator(self) -> ModuleCall | None:
        """The module that yields rows, if there is one; it is then the only answer."""
        (_, first), *_ = self.answers
        return first if isinstance(first, ModuleCall) and first.module.yields_rows else None

    @property
    def ends(self) -> Ends:
        """What modules see of the ends of events: nothing, what lies in the window, or all."""
        if not any(call.module.is_time_sensitive for call in self.calls):
            return "unseen"
        return "clipped" if self.policies.clip in ("right", "full") else "seen"

    @property
    def waits_for_ends(self) -> bool:
        """Can a window change as long as one of its events may still end otherwise?

        A session waits for the ends of its events in any case.
        """
        is_session = isinstance(self.windows, SessionWindows)
        return self.ends == "seen" and not is_session and not self.input.properties.is_insert_only

    @property
    def orders_events(self) -> bool:
        """Does an aggregate of the library among the answers look at the order (vs, ve, payload)?"""
        return any(isinstance(a, Aggregate) and a.is_order_sensitive for _, a in self.answers)

    @property
    def breaks_ties(self) -> bool:
        """Can an end that moves change which of two events that begin together counts as the first?

        Counted by end, an event whose end moves moves itself: what that changes is not in the past. A
        session waits for the ends of its events in any case.
        """
        by_end = isinstance(self.windows, CountWindows) and self.windows.by == "end"
        waits = by_end or isinstance(self.windows, SessionWindows)
        return self.orders_events and not waits and not self.input.properties.is_insert_only

    @property
    def references(self) -> frozenset[str]:
        """The columns it reads."""
        if self.orders_events:
            return frozenset(self.input.schema.names)
        used = [key.references for _, key in self.keys] + [answer.references for _, answer in self.answers]
        return frozenset().union(*used)

    @property
    def passed_on(self) -> dict[str, Expression]:
        """The columns on which events that differ do not affect each other: filters on them may go below.

        These are the keys. On a grid, whose windows do not depend on events, also the columns that the module
        declares to be partitioned by, if it gives no rows for parts that are empty.
        """
        found = dict(self.keys)
        is_in_parts = self.operator is not None and self.operator.module.is_empty_preserving
        if self.operator is not None and is_in_parts and isinstance(self.windows, Windows):
            inputs = dict(self.operator.inputs)
            own = {name: inputs[name] for name in self.operator.module.partitioned_by if name in inputs}
            found = own | found
        return found

    def derive_schema(self) -> pa.Schema:
        keys = projected_schema(self.keys, self.input.schema, "group_by")
        for call in self.calls:
            require_inputs(call, self.input.schema)
        if self.operator is not None:
            self._check_operator()
            rows = [field for field in self.operator.row_schema() if field.name not in keys.names]
            return pa.schema([*keys, *rows])
        self._check_values()
        answers = [pa.field(name, self._type(answer)) for name, answer in self.answers]
        require_names([*keys.names, *(field.name for field in answers)], "agg")
        return pa.schema([*keys, *answers])

    def _type(self, answer: Answer) -> pa.DataType:
        if isinstance(answer, ModuleCall):
            return answer.value_type()
        return answer.result_type(self.input.schema)

    def _check_operator(self) -> None:
        assert self.operator is not None
        module, stamp = self.operator.module, self.policies.stamp
        if len(self.answers) > 1:
            raise SchemaError(f"apply: {module.name} yields rows, so it must be the only one")
        if strange := set(module.partitioned_by) - set(self.operator.row_schema().names):
            raise SchemaError(
                f"{module.name}: partitioned_by names {min(strange)!r}, which is not in its rows"
            )
        if stamp != "align" and not module.is_time_sensitive:
            raise SchemaError(
                f"stamp_output({stamp!r}): {module.name} knows no time, so that its rows live as long as "
                "their window; only 'align' is possible"
            )

    def _check_values(self) -> None:
        for _, answer in self.answers:
            if isinstance(answer, ModuleCall) and answer.module.yields_rows:
                raise SchemaError(f"agg: {answer.module.name} yields rows", instead="; use apply(...)")
            if isinstance(answer, Aggregate) and answer.yields_rows:
                raise SchemaError(f"agg: {answer} yields rows, so it must be the only one")
        if self.policies.stamp != "align":
            raise SchemaError(
                f"stamp_output({self.policies.stamp!r}): an aggregate gives values, which live as long as "
                "their window; only 'align' is possible"
            )

    @property
    def _only_grows(self) -> bool:
        """Are rows never taken back? Windows of a grid stay where they are, whatever events there are."""
        is_monotone = self.operator is not None and self.operator.module.is_monotone
        return is_monotone and self.input.properties.is_insert_only and isinstance(self.windows, Windows)

    def derive_properties(self) -> Properties:
        """Windows are shown once they have ended by the watermark, and what is aligned to them in order."""
        of, policies = self.input.properties, self.policies
        waits = policies.speculate != "eager" and policies.stamp != "time_bound"
        grid = self.windows if policies.stamp == "align" and isinstance(self.windows, Windows) else None
        in_order = waits and of.is_perfect and grid is not None
        return Properties(
            is_insert_only=(waits and of.is_perfect) or self._only_grows,
            is_ordered=in_order,
            is_strictly_increasing=in_order and not self.keys and self.operator is None,
            has_key=self.operator is None,
            is_shrink_only=policies.stamp != "time_bound",
            constant_duration=None if grid is None else grid.constant_duration,
        )

    def columns_read(self, needed: Names) -> list[Names]:
        return [self.references]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return (FilterRule(self.passed_on),)

    def with_speculate(self, speculate: Speculate) -> Node:
        return replace(self, policies=replace(self.policies, speculate=speculate))
