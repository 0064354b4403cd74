"""Which table an address means: ``delta:PATH``, or ``catalog.schema.table`` in a catalog of the session.

Other addresses are directories of our own format. A name has three parts, the first of which the session
knows as a catalog: a directory may have dots in its name too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from os import fspath
from typing import Final

from pyspark.sql import SparkSession

from recension.core.errors import RecensionError
from recension.runners.spark.lake.delta import DeltaTable
from recension.runners.spark.lake.iceberg import IcebergTable
from recension.runners.spark.lake.table import LakeTable, quoted
from recension.runners.spark.sinks.files import AnyPath, spark_address

_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){2}")
_CATALOGS: Final = "spark.sql.catalog."
# The formats by their names before a path, and by what the classes of their catalogs are called.
_PATHS: Final[dict[str, Callable[[str], LakeTable]]] = {"delta": DeltaTable.at}
_CLASSES: Final[dict[str, Callable[[str, str], LakeTable]]] = {"delta": DeltaTable, "iceberg": IcebergTable}


def lake_table(spark: SparkSession, place: AnyPath) -> LakeTable | None:
    """The table of a lake format that an address means; none if it is a directory."""
    address = fspath(place)
    scheme, _, path = address.partition(":")
    if scheme in _PATHS and path:
        return _PATHS[scheme](spark_address(path))
    if not _NAME.fullmatch(address):
        return None
    parts = address.split(".")
    kind = spark.conf.get(_CATALOGS + parts[0], None)
    if kind is None and parts[0] != "spark_catalog":
        return None
    for word, table in _CLASSES.items():
        if word in (kind or "").lower():
            return table(address, quoted(*parts))
    raise RecensionError(
        f"{address}: the catalog {parts[0]} is not one of {', '.join(sorted(_CLASSES))}; "
        "name a path (delta:PATH), or a directory of our own (./NAME)"
    )
