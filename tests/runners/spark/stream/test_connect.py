"""Sessions of Spark Connect: what holds on classic ones holds on them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.runners.spark.stream.connect import AGREED
from tests.runners.spark.stream.processes import Program

pytestmark = pytest.mark.skipif(find_spec("zstandard") is None, reason="a client of Connect needs zstandard")


@pytest.mark.parametrize(
    ("every", "plans", "steps"),
    [
        pytest.param(0, 0, 0, id="batch, streams, sinks"),
        pytest.param(4, 12, 8, id="agreement", marks=pytest.mark.soak),
    ],
)
def test_on_connect(tmp_path: Path, every: int, plans: int, steps: int) -> None:
    wanted = [str(number) for number in (every, plans, steps)]
    program = Program(
        "tests.runners.spark.stream.connect", str(tmp_path), *wanted, log=tmp_path / "words.txt"
    )
    program.finish()
    assert AGREED in program.said()
