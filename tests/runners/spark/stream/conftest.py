"""Every test begins without engines in this process, and leaves none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recension.runners.spark.stream import processor


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()
