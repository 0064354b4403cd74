"""A function of payloads that leaves some columns beside it: it never sees them, and they come through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Beside:
    """A user's function, of a batch or of a row, with columns that pass by it."""

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
        return self._joined(payload, self.fn(payload.select(rest)))

    def _joined(self, payload: pa.RecordBatch, answer: Any) -> Any:
        """What the function gave, in whatever form, with the columns that passed by."""
        kept = payload.select(list(self.names))
        if isinstance(answer, list):
            return [{**row, **own} for row, own in zip(answer, kept.to_pylist(), strict=True)]
        table = pa.table(dict(answer) if isinstance(answer, Mapping) else answer)
        for name in self.names:
            table = table.append_column(name, kept.column(name))
        return table
