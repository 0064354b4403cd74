"""Small data, quickly planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.runners.spark.batch.jobs import quickly


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """The session, set for many small plans."""
    with quickly(spark):
        yield spark
