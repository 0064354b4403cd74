"""Every snippet of the README and of docs runs, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.kafka_broker import Broker
from tests.docs.pages import PAGES, is_on_kafka, is_on_spark, run, snippets
from tests.docs.places import ROOT

WITHOUT_SPARK = [page for page in PAGES if snippets(page) and not is_on_spark(page)]
LOCAL = [page for page in WITHOUT_SPARK if not is_on_kafka(page)]
ON_KAFKA = [page for page in WITHOUT_SPARK if is_on_kafka(page)]


@pytest.mark.parametrize("page", LOCAL, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", ON_KAFKA, ids=lambda p: str(p.relative_to(ROOT)))
def test_page_on_kafka(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    run(page, tmp_path, monkeypatch, broker.address)


def test_pages_that_show_nothing_running_are_few() -> None:
    """A page of the guide is tables and words alone for a reason: it needs a server, or a quiet machine."""
    guide = [page for page in PAGES if page.parent.name == "guide"]
    alone = {"glossary", "recovery", "object-stores", "nexmark"}
    assert {page.stem for page in guide if not snippets(page)} == alone
