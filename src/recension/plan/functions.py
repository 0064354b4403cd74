"""Users' functions of payloads: for one row or for a whole batch, and what they give, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recension.core.batch import payload_of
from recension.core.errors import RecensionError, SchemaError, describe_error, suggest_name
from recension.core.values import MISFITS, describe_misfit
from recension.plan.evaluation import Kernel


def takes_rows(fn: Callable[[Any], Any], schema: pa.Schema, columns: pa.Schema) -> bool:
    """Tried on an empty batch: only what gives a batch back is taken to be written for batches.

    A function of one row may well survive being given a batch (``row["x"] or row["y"]``), but it does not
    give one back.

    >>> x = pa.schema([("x", pa.int64())])
    >>> takes_rows(lambda row: {"x": row["x"] or 1}, x, x), takes_rows(lambda batch: batch, x, x)
    (True, False)
    """
    if not callable(fn):
        raise SchemaError(f"map: {fn!r} is not a function")
    try:
        answer = fn(pa.RecordBatch.from_pylist([], schema=schema))
    except Exception:
        return True
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        return True
    if set(answer.schema.names) != set(columns.names):
        raise SchemaError(
            f"map: the function gives the columns {answer.schema.names}, the schema says {columns.names}"
        )
    return False


def map_kernel(fn: Callable[[Any], Any], schema: pa.Schema, label: str, *, per_row: bool) -> Kernel:
    """A pass that maps payloads by a user's function; errors begin with the step's label."""

    def call(given: object) -> Any:
        try:
            return fn(given)
        except Exception as why:
            raise RecensionError(f"{label}: {describe_error(why)}") from why

    def kernel(payload: pa.RecordBatch) -> tuple[None, pa.RecordBatch]:
        mapped = [call(row) for row in payload.to_pylist()] if per_row else call(payload)
        if isinstance(mapped, list):
            return None, _payload_from_rows(mapped, schema, label, payload)
        return None, _conform(mapped, schema, label, payload.num_rows)

    return kernel


def _payload_from_rows(
    mapped: list[Any], schema: pa.Schema, label: str, payload: pa.RecordBatch
) -> pa.RecordBatch:
    """The answers of a function of rows as a payload; or an error that names the row."""

    def refusal(reason: str, at: int) -> SchemaError:
        (given,) = payload.slice(at, 1).to_pylist()
        return SchemaError(f"{label}: {reason}; it was given {given!r}")

    if len(mapped) != payload.num_rows:
        raise _size_error(label, payload.num_rows, len(mapped))
    names = set(schema.names)
    for at, answer in enumerate(mapped):
        if not isinstance(answer, Mapping):
            raise refusal(f"it gave {answer!r}, not a dict of columns", at)
        if not answer.keys() >= names:
            raise refusal(_describe_missing(answer, schema.names), at)
    try:
        return payload_of(mapped, schema)
    except MISFITS as why:
        for at, answer in enumerate(mapped):
            if (reason := _describe_misfit(answer, schema)) is not None:
                raise refusal(reason, at) from None
        raise SchemaError(f"{label}: {str(why).splitlines()[0]}") from None


def _describe_missing(answer: Mapping[Any, Any], names: list[str]) -> str:
    missing = next(name for name in names if name not in answer)
    hint = suggest_name(missing, [str(name) for name in answer if name not in names])
    return f"it gave {dict(answer)!r} without the column {missing!r}{hint}: write None if it has no value"


def _describe_misfit(answer: Mapping[str, Any], schema: pa.Schema) -> str | None:
    for field in schema:
        if (reason := describe_misfit(answer[field.name], field.type)) is not None:
            return f"column {field.name!r} is {field.type}, not {answer[field.name]!r}: {reason}"
    return None


def _conform(mapped: object, schema: pa.Schema, label: str, rows: int) -> pa.RecordBatch:
    """The answer of a function of batches, with the declared columns and types; or an error."""
    try:
        if isinstance(mapped, Mapping):
            mapped = pa.table(dict(mapped))
        table = pa.table(mapped).select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, KeyError, TypeError, ValueError) as why:
        raise SchemaError(f"{label}: {str(why).splitlines()[0]}") from None
    if table.num_rows != rows:
        raise _size_error(label, rows, table.num_rows)
    return table.to_batches()[0] if rows else pa.RecordBatch.from_pylist([], schema)


def _size_error(label: str, rows: int, found: int) -> SchemaError:
    return SchemaError(f"{label}: {rows} rows went in and {found} came out")


@dataclass(frozen=True)
class PassThroughColumns:
    """A user's function, of a batch or of a row, that never sees some columns; they are in its answer."""

    fn: Callable[[Any], Any]
    names: tuple[str, ...]

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def __call__(self, payload: Any) -> Any:
        if isinstance(payload, Mapping):
            row = {name: value for name, value in payload.items() if name not in self.names}
            return {**self.fn(row), **{name: payload[name] for name in self.names}}
        rest = [name for name in payload.schema.names if name not in self.names]
        return self._join_answer(payload, self.fn(payload.select(rest)))

    def _join_answer(self, payload: pa.RecordBatch, answer: Any) -> Any:
        """The function's answer, in any of its forms, with the columns that it did not see."""
        kept = payload.select(list(self.names))
        if isinstance(answer, list):
            return [{**row, **own} for row, own in zip(answer, kept.to_pylist(), strict=True)]
        table = pa.table(dict(answer) if isinstance(answer, Mapping) else answer)
        for name in self.names:
            table = table.append_column(name, kept.column(name))
        return table
