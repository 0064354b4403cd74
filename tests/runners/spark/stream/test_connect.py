"""Sessions of Spark Connect: what holds on classic ones holds on them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.runners.spark.stream.connect import AGREED
from tests.runners.spark.stream.processes import Program

pytestmark = pytest.mark.skipif(find_spec("zstandard") is None, reason="a client of Connect needs zstandard")


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(["queries"], id="batch, streams, sinks"),
        pytest.param(["two"], id="two at once into Delta", marks=pytest.mark.soak),
        pytest.param(["4", "12", "8"], id="agreement", marks=pytest.mark.soak),
    ],
)
def test_on_connect(tmp_path: Path, what: list[str]) -> None:
    program = Program("tests.runners.spark.stream.connect", str(tmp_path), *what, log=tmp_path / "words.txt")
    program.finish()
    assert AGREED in program.said()
