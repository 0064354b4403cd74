"""Are two histories equal, and if not, how do they differ?

Nulls equal nulls, NaN equals NaN, and floating-point values may differ by 1e-9 relative: the same sum
taken in another order is the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.history import History, concat_histories, table_hash
from recension.core.netting import cancel, rank_in_group
from recension.core.rowhash import combine

RELATIVE_TOLERANCE = 1e-9
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """Events of one history that the other does not have."""

    missing: History
    unexpected: History

    def __bool__(self) -> bool:
        return bool(len(self.missing) or len(self.unexpected))

    def __str__(self) -> str:
        if not self:
            return "equivalent"
        lines = [f"{len(self.missing)} missing, {len(self.unexpected)} unexpected"]
        for sign, side in (("-", self.missing), ("+", self.unexpected)):
            lines += [f"  {sign} {event}" for event in _first_events(side).to_events()]
            if len(side) > _SHOWN:
                lines.append(f"  {sign} … and {len(side) - _SHOWN} more")
        return "\n".join(lines)


def _first_events(history: History) -> History:
    keep = np.zeros(len(history), np.bool_)
    keep[np.lexsort((history.ve, history.vs))[:_SHOWN]] = True
    return history.filter(keep)


def equivalent(left: History, right: History) -> bool:
    """Do both hold the same bag of events?"""
    return not difference(right, left)


def difference(actual: History, expected: History) -> Difference:
    """What ``actual`` lacks of ``expected``, and what it holds beyond it."""
    expected, actual = unify(expected, actual)
    missing, unexpected = _cancel(expected, actual)
    if len(missing) and len(unexpected) and _float_names(expected.schema):
        missing, unexpected = _cancel_close(missing, unexpected)
    return Difference(missing, unexpected)


def _cancel(left: History, right: History) -> tuple[History, History]:
    """Take away what is exactly equal on both sides."""
    survives, _, by = cancel(left.identity(), right.identity())
    rest = np.ones(len(right), np.bool_)
    rest[by] = False
    return left.filter(survives), right.filter(rest)


def _float_names(schema: pa.Schema) -> list[str]:
    return [f.name for f in schema if pa.types.is_floating(f.type)]


def _cancel_close(left: History, right: History) -> tuple[History, History]:
    """Take away pairs that agree in all but a rounding error of their floating-point columns.

    Events that agree in everything else are put in order of those columns on both sides and compared in
    that order.
    """
    key, values = _keys_and_floats(concat_histories([left, right]))
    side = np.repeat([0, 1], [len(left), len(right)])
    order = np.lexsort((*reversed(values), side, key))
    sides = [order[side[order] == s] for s in (0, 1)]
    ranks = [rank_in_group(key[rows]) for rows in sides]
    pairs = [combine(key[rows], rank) for rows, rank in zip(sides, ranks, strict=True)]
    _, at_left, at_right = cancel(*pairs)
    a, b = sides[0][at_left], sides[1][at_right]
    close = np.all([np.isclose(v[a], v[b], RELATIVE_TOLERANCE, 0.0, equal_nan=True) for v in values], axis=0)
    keep = np.ones(len(key), np.bool_)
    keep[a[close]] = keep[b[close]] = False
    return left.filter(keep[: len(left)]), right.filter(keep[len(left) :])


def _keys_and_floats(
    history: History,
) -> tuple[npt.NDArray[np.uint64], list[npt.NDArray[np.float64]]]:
    floats = _float_names(history.schema)
    exact = history.payload.drop_columns(floats)
    # The key keeps null and NaN apart; among the values both are NaN.
    nulls = pa.table({name: history.payload[name].is_null() for name in floats})
    key = combine(table_hash(exact, len(history)), table_hash(nulls, len(history)))
    values = [history.payload[n].cast(pa.float64()).to_numpy() for n in floats]
    return combine(combine(key, history.vs), history.ve), values


def unify(left: History, right: History) -> tuple[History, History]:
    """Both histories with the same columns in the same order, numbers widened to a common type."""
    names, others = left.schema.names, right.schema.names
    if set(names) != set(others):
        raise SchemaError(f"payload columns differ: {', '.join(names)} against {', '.join(others)}")
    target = pa.schema([_common_field(left.schema.field(n), right.schema.field(n)) for n in names])
    return _cast(left, target), _cast(right, target)


def _cast(history: History, target: pa.Schema) -> History:
    if history.schema.equals(target) or not target.names:
        return history
    columns = [_cast_column(history.payload[field.name], field) for field in target]
    return replace(history, payload=pa.Table.from_arrays(columns, schema=target))


def _cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    # Arrow cannot even cast to the same type where an item that may not be null is one, as in a null list.
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        # Some value has no exact counterpart in the common type; then it equals nothing exact there either.
        return column.cast(field.type, safe=False)


def _common_field(left: pa.Field, right: pa.Field) -> pa.Field:
    plain = [
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
        for f in (left, right)
    ]
    kinds = [f.type for f in plain]
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds) and kinds[0] != kinds[1]:
        # Wide enough for every int64 and uint64: an unsigned number is never taken for a negative one.
        scale = max(getattr(kind, "scale", 0) for kind in kinds)
        return pa.field(left.name, pa.decimal128(38, min(scale, 18)))
    if all(pa.types.is_timestamp(kind) and kind.tz for kind in kinds) and kinds[0].tz != kinds[1].tz:
        plain = [pa.field(f.name, pa.timestamp(f.type.unit, "UTC")) for f in plain]
    try:
        merged = pa.unify_schemas([pa.schema([f]) for f in plain], promote_options="permissive").field(0)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise SchemaError(
            f"column {left.name} is {left.type} on one side and {right.type} on the other"
        ) from None
    return pa.field(merged.name, merged.type)
