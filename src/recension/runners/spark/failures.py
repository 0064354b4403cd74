"""What stopped a Spark job, in one line."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

_OURS = re.compile(r"^recension\.core\.errors\.\w+: (.*)$", re.MULTILINE)


def reason_of(why: PySparkException) -> str:
    """The sentence of an error of ours, wherever it was raised; else the first line there is."""
    told = str(why)
    if ours := _OURS.findall(told):
        return str(ours[-1])
    if raised := re.search(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$", told, re.MULTILINE):
        return raised[1]
    return next((line.strip() for line in told.splitlines() if line.strip()), type(why).__name__)
