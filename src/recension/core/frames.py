"""Tables in the forms people have them in: Arrow, pandas, polars, and back without loss.

pandas frames get pandas' own nullable types, in which an integer stays an integer beside a null and NaN is
not null. Other libraries are met through Arrow's C interface.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import narwhals as nw
import pyarrow as pa
from narwhals.exceptions import DuplicateError

from recension.core.errors import FormatError, RecensionError, StreamError, first_failure

_MIXED: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def table_of(data: Any, name: str | None = None) -> pa.Table:
    """An Arrow table from an Arrow table or batch, a pandas or polars frame, or what else speaks Arrow.

    ``name`` is the source that an error names.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        frame = nw.from_native(data, eager_only=True)
    except DuplicateError:
        twin = next(name for name, times in Counter(data.columns).items() if times > 1)
        raise FormatError(f"column {twin} is there twice", file=name) from None
    except TypeError:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        kinds = "an Arrow table, a pandas or polars frame, a History, a Result, a list of elements, or a path"
        raise RecensionError(f"cannot read a {type(data).__name__} as a stream; give {kinds}") from None
    try:
        if frame.implementation.is_pandas():
            _refuse_mixed_times(frame, name)
            return _from_pandas(frame.to_native())
        table = frame.to_arrow()
        return _with_usual_types(table) if frame.implementation.is_polars() else table
    except _MIXED as why:
        raise _mixed_values(frame, name, why) from None


def arrow_table(data: Any, verb: str) -> pa.Table:
    """An Arrow table from a table or a batch; other forms have verbs of their own."""
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not isinstance(data, pa.Table):
        others = "from_pandas and from_polars take frames"
        raise RecensionError(f"{verb} takes an Arrow table or batch, not a {type(data).__name__}; {others}")
    return data


def _from_pandas(frame: Any) -> pa.Table:
    """Without the index, which has no meaning here: a filtered or sorted frame has another one."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    if len(frame):
        return table
    # In an empty frame these are the types that pandas gives to columns it knows nothing of.
    kinds = [
        pa.null() if dtype in (object, float) else field.type
        for field, dtype in zip(table.schema, frame.dtypes, strict=True)
    ]
    return pa.schema(list(zip(table.column_names, kinds, strict=True))).empty_table()


def _refuse_mixed_times(frame: nw.DataFrame[Any], name: str | None) -> None:
    """Dates, times and times with a zone in one column: Arrow would make them all like the first one."""
    for column in frame.columns:
        if frame[column].dtype != nw.Object:
            continue
        values = frame[column].to_list()
        kinds = [_kind_of_time(value) for value in values] if set(map(type, values)) - {str} else []
        known = [kind for kind in kinds if kind is not None]
        if len(set(known)) > 1:
            at = next(i for i, kind in enumerate(kinds) if kind not in (None, known[0]))
            reason = f"column {column}: {values[at]!r} is {kinds[at]}, and those before it are {known[0]}"
            raise StreamError(reason, file=name, row=at + 1)


def _kind_of_time(value: Any) -> str | None:
    if isinstance(value, datetime):
        if value != value:
            return None
        return "a time without a zone" if value.utcoffset() is None else "a time with a zone"
    return "a date" if isinstance(value, date) else None


def _with_usual_types(table: pa.Table) -> pa.Table:
    """Texts, bytes and lists as they were before: polars has one type of each, with large offsets."""
    try:
        return table.cast(pa.schema([field.with_type(_usual_type(field.type)) for field in table.schema]))
    except pa.ArrowInvalid:
        return table  # more than 2 GiB of text in one piece


def _usual_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_usual_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_usual_type(field.type)) for field in kind])
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _mixed_values(frame: nw.DataFrame[Any], name: str | None, why: Exception) -> StreamError:
    """An error that names the first value that is of another type than those before it in its column."""
    for column in frame.columns:
        values = frame[column].to_list()
        if _is_mixed(values):
            at = first_failure(len(values), partial(_is_mixed, values))
            reason = f"column {column}: {values[at]!r} is not of the type of the values before it"
            return StreamError(reason, file=name, row=at + 1)
    return StreamError(" ".join(str(why).split())[:300], file=name)


def _is_mixed(values: list[Any], size: int | None = None) -> bool:
    """Are the first ``size`` values, or all, of several types?"""
    try:
        pa.array(values[:size], from_pandas=True)
    except _MIXED:
        return True
    return False


def to_pandas(table: pa.Table) -> Any:
    """A pandas frame with nullable types: whole numbers stay whole beside nulls, and NaN is not null.

    Types that pandas has none of its own for (decimals, dates, lists, ...) stay Arrow's.
    """
    return table.to_pandas(types_mapper=_pandas_type)


def to_polars(table: pa.Table) -> Any:
    """A polars frame."""
    try:
        polars = import_module("polars")
    except ModuleNotFoundError:
        raise RecensionError("polars is not installed: pip install polars, or use to_arrow()") from None
    return polars.from_arrow(table)


def _pandas_type(kind: pa.DataType) -> Any:
    if (own := _nullable_dtypes().get(kind)) is not None:
        return own
    is_own = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_dictionary, pa.types.is_null)
    if any(check(kind) for check in is_own) or isinstance(kind, pa.BaseExtensionType):
        return None
    return import_module("pandas").ArrowDtype(kind)


@cache
def _nullable_dtypes() -> dict[pa.DataType, Any]:
    pandas = import_module("pandas")
    kinds = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    types = {getattr(pa, kind.lower())(): getattr(pandas, f"{kind}Dtype")() for kind in kinds}
    types |= {pa.float32(): pandas.Float32Dtype(), pa.float64(): pandas.Float64Dtype()}
    return types | {pa.bool_(): pandas.BooleanDtype(), pa.string(): pandas.StringDtype()}
