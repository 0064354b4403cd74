"""Names of columns, which Spark reads by rules of its own."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.errors import SchemaError


def column_named(name: str) -> Column:
    """A column by its name, whatever is in it: dots and back-ticks are not taken for Spark's signs."""
    return F.col(f"`{name.replace('`', '``')}`")


def plain_name(name: str) -> str:
    """A name without signs, for ``mapInArrow``, which asks for columns without quoting their names."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def own_name(plain: str) -> str:
    """The way back."""
    return unquote(plain)


def refuse_alike(spark: SparkSession, names: Sequence[str], place: str) -> None:
    """Refuse columns whose names differ by case only, unless the session tells case apart."""
    if spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise SchemaError(
                f"{place}: columns {other} and {name} are the same to Spark, which overlooks case; "
                "rename one, or set spark.sql.caseSensitive to true"
            )
