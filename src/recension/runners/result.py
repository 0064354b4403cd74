"""What a query gave: a physical stream, and the history it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from recension.core.batch import EventBatch, concat, empty
from recension.core.events import Element
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.show import show_history
from recension.plan.properties import Properties

if TYPE_CHECKING:
    from recension.runners.metrics import Metrics


@dataclass(frozen=True)
class Result:
    """The output of a run."""

    batches: list[EventBatch]
    schema: pa.Schema
    properties: Properties
    time_type: pa.DataType = field(default_factory=pa.int64)
    metrics: list[Metrics] = field(default_factory=list)
    dropped: dict[str, list[tuple[str, EventBatch]]] = field(default_factory=dict)

    def elements(self) -> list[Element]:
        """The physical stream as Python values."""
        return [element for batch in self.batches for element in batch.to_elements()]

    def batch(self) -> EventBatch:
        """The physical stream as one batch."""
        return concat(self.batches) if self.batches else empty(self.schema)

    def history(self) -> History:
        """The canonical history: what is left when every retraction is applied."""
        return reconstitute(self.batches, self.schema)

    def to_arrow(self) -> pa.Table:
        """The physical stream as a table with control columns."""
        columns = stream_schema(self.schema, self.time_type)
        return pa.Table.from_batches([stream_rows(batch, columns) for batch in self.batches], columns)

    def to_pandas(self) -> Any:
        """The physical stream as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The physical stream as a polars frame."""
        return import_module("polars").from_arrow(self.to_arrow())

    def show(self, rows: int = 20) -> None:
        """Print the history as a table."""
        print(show_history(self.history(), rows, self.time_type))
