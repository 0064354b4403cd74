"""What may know what, and what a plain import may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_layers() -> None:
    """The contracts of pyproject.toml: the layers, and pyspark in one place only."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_plain_import_is_light() -> None:
    """`import recension` loads neither Spark nor Kafka nor plotting nor test tools, whatever is installed."""
    heavy = [
        "pyspark",
        "confluent_kafka",
        "pandas",
        "matplotlib",
        "hypothesis",
        "yaml",
        "duckdb",
        "rich",
        "typer",
    ]
    program = f"import sys, recension; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
