"""Elements for tables in lake formats."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import recension as rc
from recension.core.batch import EventBatch, from_elements

NAMES = pa.schema([("name", pa.string()), ("x", pa.float64())])


def ann(vs: int, ve: int, name: str = "a") -> rc.Insert:
    return rc.Insert({"name": name, "x": float("nan")}, vs, ve)


def ends(vs: int, ve: int, new_ve: int, name: str = "a") -> rc.Retract:
    return rc.Retract({"name": name, "x": float("nan")}, vs, ve, new_ve)


def elements(*given: Any) -> EventBatch:
    return from_elements(list(given), NAMES)
