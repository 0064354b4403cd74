"""The columns of a history table: lifetimes, payload, and a number that tells equal events apart.

Equal events are rows of their own, and differ in ``_ordinal``. It starts at 0, so that it is 0 throughout in
a table without equal events. Numbers of events that were retracted may be missing or come again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from recension.core.errors import SchemaError
from recension.core.formats.columns import CONTROL, VE, VS
from recension.runners.spark.lake.table import quoted

ORDINAL: Final = "_ordinal"
SHAPE: Final = "recension.shape"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the columns of a history table are called; ``current`` says that an event has no end."""

    start: str = VS
    end: str = VE
    current: str | None = None

    def to_json(self) -> str:
        """For the properties of a table."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(properties: Mapping[str, str]) -> Shape:
        """That of a table of ours."""
        return Shape(**json.loads(properties[SHAPE]))

    def columns(self, stream: spark.StructType) -> spark.StructType:
        """The columns of the table for a stream."""
        times = [spark.StructField(name, stream[VS].dataType) for name in (self.start, self.end)]
        flag = [spark.StructField(self.current, spark.BooleanType())] if self.current else []
        payload = payload_of(stream)
        taken = {*(field.name for field in (*times, *flag)), ORDINAL}
        for field in payload:
            if field.name in taken:
                raise SchemaError(f"the payload has a column {field.name}, which the table needs: rename it")
            if _has_map(field.dataType):
                raise SchemaError(
                    f"column {field.name} has a map, and SQL does not compare maps: a history table needs "
                    "lists or structs there (a changelog takes maps)"
                )
        return spark.StructType([*times, *payload, *flag, spark.StructField(ORDINAL, spark.LongType())])

    def history(self, table: DataFrame) -> DataFrame:
        """The rows of a table as a history: ``_vs``, ``_ve`` and the payload."""
        hidden = {self.start, self.end, self.current, ORDINAL}
        payload = [F.col(quoted(name)) for name in table.columns if name not in hidden]
        return table.select(F.col(quoted(self.start)).alias(VS), F.col(quoted(self.end)).alias(VE), *payload)


SCD2: Final = Shape("valid_from", "valid_to", "is_current")


def payload_of(stream: spark.StructType) -> list[spark.StructField]:
    """The columns of a stream's payload."""
    return [spark.StructField(f.name, f.dataType) for f in stream if f.name not in CONTROL]


def _has_map(kind: spark.DataType) -> bool:
    if isinstance(kind, spark.StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, spark.MapType) or (
        isinstance(kind, spark.ArrayType) and _has_map(kind.elementType)
    )
