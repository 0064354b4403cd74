"""The command ``recension``: one file per command, each of which adds itself to the root."""

from recension.cli import bench, calibrate, check, demo, diff, explain, generate, history, modules, run
from recension.cli.root import app, main

__all__ = [
    "app",
    "bench",
    "calibrate",
    "check",
    "demo",
    "diff",
    "explain",
    "generate",
    "history",
    "main",
    "modules",
    "run",
]
