"""Names of columns, which Spark reads by rules of its own."""

from __future__ import annotations

from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def column_named(name: str) -> Column:
    """A column by its name, whatever is in it: dots and back-ticks are not taken for Spark's signs."""
    return F.col(f"`{name.replace('`', '``')}`")


def plain_name(name: str) -> str:
    """A name without signs, for ``mapInArrow``, which asks for columns without quoting their names."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def own_name(plain: str) -> str:
    """The way back."""
    return unquote(plain)
