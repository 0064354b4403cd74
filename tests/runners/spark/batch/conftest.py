"""Small data, quickly planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.runners.spark.batch.jobs import QUICK


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """The session, set for many small plans."""
    before = {key: spark.conf.get(key) for key in QUICK}
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
