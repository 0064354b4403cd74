"""Elements as people write them into a batch, or an error that names source, row and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from recension.core.batch import EventBatch, from_elements
from recension.core.errors import StreamError, nearest
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract, kind_of_element
from recension.core.time_kind import OneKind
from recension.core.values import MISFITS, misfit


def batch_of(
    elements: Sequence[Any], columns: pa.Schema, source: str, first_row: int, times: OneKind
) -> EventBatch:
    """The elements as a batch; the first is number ``first_row`` of ``source``; ``times`` learns the kind."""
    names = set(columns.names)
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, Insert | Retract | Cti | ExternalCti):
            raise StreamError(f"{element!r} is not a stream element", file=source, row=row)
        if (kind := kind_of_element(element)) not in (None, times.seen):
            times.note(kind, f"{source}: row {row}: {element}")
        if isinstance(element, Insert | Retract) and element.payload.keys() != names:
            raise StreamError(_misnamed(element, columns.names), file=source, row=row)
    try:
        return from_elements(elements, columns)
    except MISFITS as why:
        raise _located(elements, columns, source, first_row, why) from None


def _misnamed(element: Insert | Retract, names: list[str]) -> str:
    given = list(element.payload)
    if unknown := [name for name in given if name not in names]:
        return f"no column {unknown[0]!r}{nearest(unknown[0], names)}; the source has {', '.join(names)}"
    missing = next(name for name in names if name not in given)
    return (
        f"no value for column {missing!r}, only for {', '.join(given) or 'none'}: write None if it has none"
    )


def _located(
    elements: Sequence[Element], columns: pa.Schema, source: str, first_row: int, why: Exception
) -> StreamError:
    """The first value that does not fit its column."""
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, Insert | Retract):
            continue
        for field in columns:
            value = element.payload[field.name]
            if (gist := misfit(value, field.type)) is not None:
                reason = f"column {field.name!r} is {field.type}, not {value!r}: {gist}"
                return StreamError(reason, file=source, row=row)
    return StreamError((str(why).splitlines() or [type(why).__name__])[0], file=source)
