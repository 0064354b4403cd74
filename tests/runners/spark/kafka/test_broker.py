"""The broker that the other tests use, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.kafka_broker import Broker, NoBrokerError
from scripts.kafka_jars import NoJarsError, jars


def test_topics_are_made_and_grow(broker: Broker) -> None:
    broker.create_topic("grows", 2)
    broker.grow_topic("grows", 3)
    with pytest.raises(RuntimeError, match="already exists"):
        broker.create_topic("grows", 2)
    with pytest.raises(RuntimeError, match="already has 3"):
        broker.grow_topic("grows", 3)


def test_what_is_missing_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECENSION_JARS", str(tmp_path))
    with pytest.raises(
        NoJarsError, match=r"4 jars, such as .* are not in .*: run python -m scripts.kafka_jars"
    ):
        jars("connector")
    with pytest.raises(NoBrokerError, match="45 jars"):
        Broker(tmp_path / "broker")
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "kafka-clients-3.9.2.jar").write_bytes(b"not the one")
    with pytest.raises(NoJarsError, match="4 jars"):
        jars("connector")
