"""Expressions evaluated on a batch: the usual operators by Arrow, the other methods by narwhals.

Arrow computes what has to be fast or checked: comparisons, logic, arithmetic, conditions. Every other method
is replayed through the public interface of narwhals, on a table with one column for each operand:

    (x + 1).clip(0, 9)       is       _0.clip(0, 9)   where _0 is x + 1

A branch of `when` is computed on all rows. If that fails, it is computed again, on those alone that take it.

Methods and their arguments are named as there. Users' functions are called on the columns they take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import RecensionError
from recension.plan.expressions import arithmetic, zones
from recension.plan.expressions.arithmetic import Value
from recension.plan.expressions.medians import list_medians
from recension.plan.expressions.tree import Call, Column, FunctionCall, Literal, Tree, columns_of

_COMPARISONS: Final[dict[str, Callable[..., Value]]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPERATORS: Final[dict[str, Callable[..., Value]]] = {
    "&": pc.and_kleene,
    "|": pc.or_kleene,
    "not": pc.invert,
    "is_null": pc.is_null,
}
_FUNCTIONS: Final = frozenset(
    {"coalesce", "all_horizontal", "any_horizontal", "min_horizontal", "max_horizontal", "concat_str"}
)
_UNITS: Final = {"dt.total_milliseconds": "ms", "dt.total_microseconds": "us", "dt.total_nanoseconds": "ns"}


_BY_CLOCK: Final = frozenset(
    f"dt.{name}"
    for name in (
        *("date", "year", "month", "day", "hour", "minute", "second", "ordinal_day", "weekday", "to_string"),
        *("truncate", "offset_by", "replace_time_zone"),
    )
)
"""What depends on the clock of the zone of a timestamp."""
_FAILURES: Final = (RecensionError, pa.ArrowInvalid, nw.exceptions.NarwhalsError)


class _BranchError(Exception):
    """A failure on rows that take the branch: it is not tried again."""

    def __init__(self, why: Exception) -> None:
        self.why = why


def values_of(trees: list[Tree], batch: pa.RecordBatch) -> list[Value]:
    """One array for each expression, as long as the batch; a scalar if it reads no column."""
    evaluation = _Evaluation(batch)
    try:
        return [evaluation.value(tree) for tree in trees]
    except _BranchError as failed:
        raise failed.why from None


class _Evaluation:
    """Expressions over one batch; wanted only where they are ``live``, if that is given."""

    def __init__(self, batch: pa.RecordBatch, live: Value | None = None) -> None:
        self._batch, self._live = batch, live

    def value(self, tree: Tree) -> Value:
        """What the expression is."""
        match tree:
            case Column(name):
                return self._batch.column(name)
            case Literal():
                return tree.scalar
            case FunctionCall():
                return self._compute_alone(tree, self._call_function)
            case Call("when"):
                return self._evaluate_when(tree)
            case Call(name) if name in _COMPUTED:
                operands = [self.value(x) for x in tree.operands]
                try:
                    return _COMPUTED[name](tree, operands)
                except pa.ArrowInvalid as why:
                    raise arithmetic.explain_error(tree, operands, why) from None
            case Call("is_between"):
                return self._evaluate_between(tree)
            case Call("fill_null"):
                of, given = self.value(tree.operands[0]), dict(tree.arguments)["value"]
                filling = self.value(given if isinstance(given, Tree) else Literal(given))
                return pc.fill_null(of, filling)
            case Call():
                return self._compute_alone(tree, self._call_method)
        raise AssertionError(f"no value of {type(tree).__name__}")

    def _compute_alone(self, tree: Any, compute: Callable[[Any], pa.Array]) -> Value:
        """The value of what is computed on arrays; on one row only if it reads no column."""
        if next(columns_of(tree), None) is not None:
            return compute(tree)
        once = _Evaluation(pa.record_batch({"_": [0]}))
        return getattr(once, compute.__name__)(tree)[0]

    def _array(self, tree: Tree) -> pa.Array:
        value = self.value(tree)
        return pa.repeat(value, self._batch.num_rows) if isinstance(value, pa.Scalar) else value

    def _call_function(self, call: FunctionCall) -> pa.Array:
        return call.function.over_columns([self._array(x) for x in call.operands])

    def _evaluate_when(self, call: Call) -> Value:
        """Each branch is wanted only where it is taken; a condition that is null is not true."""
        condition, then, *rest = call.operands
        holds = pc.coalesce(self.value(condition), pa.scalar(False))
        taken = self._evaluate_branch(then, holds)
        if not rest:
            return pc.if_else(holds, taken, pa.scalar(None, taken.type))
        return pc.if_else(
            holds, *arithmetic.as_floats([taken, self._evaluate_branch(rest[0], pc.invert(holds))])
        )

    def _evaluate_branch(self, tree: Tree, taken: Value) -> Value:
        live = taken if self._live is None else pc.and_kleene(self._live, taken)
        try:
            return _Evaluation(self._batch, live).value(tree)
        except _FAILURES:
            return self._evaluate_where(tree, live)

    def _evaluate_where(self, tree: Tree, live: Value) -> Value:
        """The expression on some rows only; null on the others."""
        mask = pa.repeat(live, self._batch.num_rows) if isinstance(live, pa.Scalar) else live
        kept = np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), np.bool_)
        try:
            found = _Evaluation(self._batch.filter(pa.array(kept))).value(tree)
        except _FAILURES as why:
            raise _BranchError(why) from None
        if isinstance(found, pa.Scalar):
            return found
        return found.take(pa.array(np.cumsum(kept) - 1, mask=~kept))

    def _evaluate_between(self, call: Call) -> Value:
        given = dict(call.arguments)
        value, low, high = (self.value(x) for x in call.children)
        at_least = pc.greater_equal if given["closed"] in ("both", "left") else pc.greater
        at_most = pc.less_equal if given["closed"] in ("both", "right") else pc.less
        return pc.and_kleene(
            arithmetic.compare_values(at_least, value, low), arithmetic.compare_values(at_most, value, high)
        )

    def _call_method(self, call: Call) -> pa.Array:
        """A method of narwhals, or one of ours that checks what narwhals does not."""
        if call.name in _BY_CLOCK:
            return self._call_by_clock(call)
        if call.name == "list.median":
            return list_medians(self._array(call.operands[0]))
        unit = dict(call.arguments).get("time_unit") or _UNITS.get(call.name)
        if unit is not None:
            exact = arithmetic.scale_time(call, self._array(call.operands[0]), unit)
            if exact is not None:
                return exact
        found = self._replay_by_narwhals(call)
        if call.name == "list.sum":
            arithmetic.require_sums(call, self._array(call.operands[0]), found)
        return found

    def _call_by_clock(self, call: Call) -> pa.Array:
        """What depends on the clock of a zone is done on what that shows, where Arrow is not right."""
        times, given = self._array(call.operands[0]), dict(call.arguments)
        try:
            if call.name == "dt.replace_time_zone" and zones.is_zoned(pa.timestamp("us", given["time_zone"])):
                return zones.from_clock(zones.to_clock(times), given["time_zone"], strict=True)
            if zones.is_zoned(times.type) and call.name == "dt.truncate":
                unit = given["every"].lstrip("0123456789")
                return zones.truncate(times, unit, lambda shown: self._replay_on(call, shown))
            if zones.is_zoned(times.type) and call.name == "dt.offset_by":
                return self._offset_by_clock(call, times, given["by"])
            if zones.is_far(times) and call.name != "dt.offset_by":
                times = zones.to_clock(times)
        except (RecensionError, pa.ArrowInvalid) as why:
            raise arithmetic.explain_error(call, [], why) from None
        found = self._replay_on(call, times)
        if call.name == "dt.offset_by":
            arithmetic.require_moved(call, times, found, str(given["by"]))
        return found

    def _replay_on(self, call: Call, of: pa.Array) -> pa.Array:
        """A method that is called on this instead of on its operand."""
        try:
            return _select(_replay_call(call)[0], [of])
        except pa.ArrowInvalid as why:
            raise arithmetic.explain_error(call, [], why) from None

    def _offset_by_clock(self, call: Call, times: pa.Array, by: str) -> pa.Array:
        """Days are days of the clock."""
        if by.endswith("d"):
            found = zones.move_days(times, pa.scalar(timedelta(days=int(by[:-1]))))
        else:
            found = self._replay_on(call, times)
        arithmetic.require_moved(call, times, found, by)
        return found

    def _replay_by_narwhals(self, call: Call) -> pa.Array:
        expression, columns = _replay_call(call)
        arrays = [self._array(tree) for tree in columns]
        try:
            return _select(expression, arrays)
        except pa.ArrowInvalid as why:
            raise arithmetic.explain_error(call, [], why) from None


def _select(expression: nw.Expr, arrays: Sequence[pa.Array]) -> pa.Array:
    """An expression of narwhals over the columns ``_0``, ``_1``, ..."""
    table = pa.Table.from_arrays(arrays, [f"_{i}" for i in range(len(arrays))])
    column = nw.from_native(table, eager_only=True).select(_=expression).to_native().column(0)
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


@lru_cache(maxsize=4096)
def _replay_call(call: Call) -> tuple[nw.Expr, list[Tree]]:
    """A call as an expression of narwhals over the columns ``_0``, ``_1``, ..., and what these are."""
    replay = _Replay()
    return replay.call(call), replay.columns


class _Replay:
    """Calls replayed through narwhals, on columns for what is computed otherwise."""

    def __init__(self) -> None:
        self.columns: list[Tree] = []

    def call(self, call: Call) -> nw.Expr:
        if call.name == "str.tail" and dict(call.arguments)["n"] == 0:  # narwhals has -0 for 0: all of it
            return self.call(Call("str.head", call.operands, call.arguments))
        make = self._column if call.name in _BY_CLOCK else self._operand
        operands = [make(x) for x in call.operands]
        given = {key: self._argument(value) for key, value in call.arguments if value is not ...}
        if call.name in _FUNCTIONS:
            made: nw.Expr = getattr(nw, call.name)(*operands, **given)
            return made
        method: nw.Expr = attrgetter(call.name)(operands[0])(**given)
        return method

    def _operand(self, tree: Tree) -> nw.Expr:
        """Chains of methods are replayed at once; everything else becomes a column first."""
        if isinstance(tree, Literal) and tree.dtype is None:
            return nw.lit(tree.value)
        if isinstance(tree, Call) and _is_replayed(tree) and next(columns_of(tree), None) is not None:
            return self.call(tree)
        return self._column(tree)

    def _column(self, tree: Tree) -> nw.Expr:
        self.columns.append(tree)
        return nw.col(f"_{len(self.columns) - 1}")

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tree):
            return self._operand(value)
        if isinstance(value, pa.DataType):
            return nw.from_native(pa.chunked_array([], value), series_only=True).dtype
        return list(value) if isinstance(value, tuple) else value


def _is_replayed(call: Call) -> bool:
    """Can narwhals do it without a check of ours?"""
    own = {"when", "is_between", "fill_null", "list.sum", "list.median", "dt.timestamp"}
    return call.name not in own | _BY_CLOCK | _COMPUTED.keys() | _UNITS.keys()


def _quotient(call: Call, operands: list[Value]) -> Value:
    """Whole numbers are divided as floats."""
    if all(pa.types.is_integer(x.type) for x in operands):
        operands = [arithmetic.cast(x, pa.float64()) for x in operands]
    return pc.divide(*arithmetic.as_floats(operands))


def _remainder(call: Call, operands: list[Value]) -> Value:
    left, right = arithmetic.remainder_operands(*operands)
    kinds = [x.type for x in (left, right)]
    if any(map(pa.types.is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds)):
        return arithmetic.decimal_remainder(left, right)
    return pc.subtract(left, pc.multiply(arithmetic.floor_divide(left, right), right))


def _is_in(call: Call, operands: list[Value]) -> Value:
    """Null if the value is null."""
    (value,) = operands
    members = _members(dict(call.arguments)["other"], value.type)
    if pa.types.is_floating(value.type):  # -0.0 is 0.0
        value = pc.add(value, pa.scalar(0.0, value.type))
    found = pc.is_in(value, value_set=members)
    return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), found)


def _members(given: Any, kind: pa.DataType) -> pa.Array:
    """The values to look for; Arrow takes whole numbers for int64, whether they fit or not."""
    try:
        members = pa.array(given)
    except (OverflowError, pa.ArrowInvalid):
        return pa.array(given, kind)
    is_float = pa.types.is_floating(members.type)
    return pc.add(members, pa.scalar(0.0, members.type)) if is_float else members


def _round(call: Call, operands: list[Value]) -> Value:
    decimals = dict(call.arguments)["decimals"]
    to_digits = partial(pc.round, ndigits=decimals, round_mode="half_towards_infinity")
    if pa.types.is_decimal(operands[0].type):
        return arithmetic.round_decimals(operands[0], to_digits)
    return to_digits(operands[0])


def _round_to_whole(call: Call, operands: list[Value]) -> Value:
    compute = {"ceil": pc.ceil, "floor": pc.floor}[call.name]
    if pa.types.is_decimal(operands[0].type):
        return arithmetic.round_decimals(operands[0], compute)
    return compute(operands[0])


# What is computed here, of what its operands are.
_COMPUTED: Final[dict[str, Callable[[Call, list[Value]], Value]]] = {
    **{
        name: lambda call, xs: arithmetic.compare_values(_COMPARISONS[call.name], *xs)
        for name in _COMPARISONS
    },
    **{name: lambda call, xs: _OPERATORS[call.name](*xs) for name in _OPERATORS},
    **dict.fromkeys(arithmetic.KERNELS, arithmetic.compute),
    "sum_horizontal": arithmetic.sum_columns,
    "mean_horizontal": arithmetic.mean_of_columns,
    "/": _quotient,
    "//": lambda call, xs: arithmetic.floor_divide(*xs),
    "%": _remainder,
    "is_in": _is_in,
    "cast": lambda call, xs: arithmetic.cast(xs[0], dict(call.arguments)["dtype"]),
    "round": _round,
    "ceil": _round_to_whole,
    "floor": _round_to_whole,
}
