"""The pages that start Spark: their `rc.spark.session()` gives the one session of all tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import PAGES, is_on_spark, run
from tests.docs.places import ROOT

ON_SPARK = [page for page in PAGES if is_on_spark(page)]


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    run(page, tmp_path, monkeypatch)
