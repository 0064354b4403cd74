"""Python elements, such as ``Insert({...}, 3, 5)``, as a batch in the columns of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from recension.core.batch import EventBatch, from_elements
from recension.core.errors import ElementTimeError, StreamError, TimeError, first_line, suggest_name
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract, kind_of_element
from recension.core.time_kind import OneKind, TimeKind
from recension.core.values import MISFITS, describe_misfit

_WITH_PAYLOAD: Final = (Insert, Retract)
_ELEMENTS: Final = (*_WITH_PAYLOAD, Cti, ExternalCti)


def read_elements(
    elements: Sequence[Any], columns: pa.Schema, source: str, first_row: int, times: OneKind
) -> EventBatch:
    """The elements as a batch; the first is number ``first_row`` of ``source``; ``times`` learns the kind."""
    names = set(columns.names)
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, _ELEMENTS):
            raise StreamError(f"{element!r} is not a stream element", file=source, row=row)
        if (kind := kind_of_element(element)) not in (None, times.seen):
            _note_kind(times, kind, element, source, row)
        if isinstance(element, _WITH_PAYLOAD) and element.payload.keys() != names:
            raise StreamError(_describe_columns(element, columns.names), file=source, row=row)
    try:
        return from_elements(elements, columns)
    except MISFITS as why:
        raise _locate_misfit(elements, columns, source, first_row, why) from None


def _note_kind(times: OneKind, kind: TimeKind, element: Element, source: str, row: int) -> None:
    place = f"{source}: row {row}: "
    try:
        times.note(kind, f"{place}{element}")
    except TimeError as why:
        raise ElementTimeError(str(why).removeprefix(place), file=source, row=row) from None


def _describe_columns(element: Insert | Retract, names: list[str]) -> str:
    given = list(element.payload)
    if unknown := [name for name in given if name not in names]:
        return f"no column {unknown[0]!r}{suggest_name(unknown[0], names)}; the source has {', '.join(names)}"
    missing = next(name for name in names if name not in given)
    return (
        f"no value for column {missing!r}, only for {', '.join(given) or 'none'}: write None if it has none"
    )


def _locate_misfit(
    elements: Sequence[Element], columns: pa.Schema, source: str, first_row: int, why: Exception
) -> StreamError:
    """The first value that does not fit its column."""
    for row, element in enumerate(elements, first_row):
        if not isinstance(element, Insert | Retract):
            continue
        for column in columns:
            value = element.payload[column.name]
            if (gist := describe_misfit(value, column.type)) is not None:
                reason = f"column {column.name!r} is {column.type}, not {value!r}: {gist}"
                return StreamError(reason, file=source, row=row)
    return StreamError(first_line(why) or type(why).__name__, file=source)
