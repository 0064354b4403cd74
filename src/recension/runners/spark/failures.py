"""What stopped a Spark job, in one line."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

_OURS = re.compile(r"^recension\.core\.errors\.\w+: (.*)$", re.MULTILINE)
# Spark's own words that say more than that a query has failed.
_SPARKS = re.compile(
    r"\[(?:USER_RAISED_EXCEPTION|FAILED_READ_FILE)(?:\.\w+)?\] (.*?)(?:\s+SQLSTATE: \w+)?\s*$", re.MULTILINE
)


def reason_of(why: PySparkException) -> str:
    """The sentence of an error of ours, wherever it was raised; else the first line there is."""
    told = str(why)
    if ours := _OURS.findall(told):
        return str(ours[-1])
    if sparks := _SPARKS.search(told):
        return sparks[1]
    return next((line.strip() for line in told.splitlines() if line.strip()), type(why).__name__)
