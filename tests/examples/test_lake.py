"""The example of a lake, from Kafka to SQL, with a driver that is killed: as `make lake` runs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts import kafka_jars, lake_jars
from scripts.jars import NoJarsError

ROOT = Path(__file__).parents[2]
LIMIT = 900  # seconds


@pytest.mark.soak
@pytest.mark.skipif(find_spec("confluent_kafka") is None, reason="messages are sent with confluent-kafka")
def test_nothing_is_missing_and_nothing_extra() -> None:
    try:
        for locked, group in ((kafka_jars, "broker"), (kafka_jars, "connector"), (lake_jars, "delta")):
            locked.jars(group)
    except NoJarsError as why:
        pytest.skip(f"no jars: {why}")
    command = [sys.executable, "-m", "examples.lake"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the driver was killed after" in done.stdout
    assert done.stdout.endswith("0 missing, 0 extra\n")
