"""The pages that start Spark, some with a broker: `rc.spark.session()` gives the session of all tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts.kafka_broker import Broker
from tests.docs.pages import PAGES, is_on_kafka, is_on_spark, run
from tests.docs.places import ROOT

ON_SPARK = [page for page in PAGES if is_on_spark(page) and not is_on_kafka(page)]
ON_KAFKA = [page for page in PAGES if is_on_spark(page) and is_on_kafka(page)]


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, spark: Any, request: pytest.FixtureRequest) -> None:
    if 'f"delta:' in page.read_text(encoding="utf-8"):
        request.getfixturevalue("delta")
    run(page, tmp_path, request.getfixturevalue("monkeypatch"))


@pytest.mark.parametrize("page", ON_KAFKA, ids=lambda p: str(p.relative_to(ROOT)))
def test_page_on_kafka(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any, broker: Broker
) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    run(page, tmp_path, monkeypatch, broker.address)
