"""The command ``recension``. Each module with commands adds them to the root when it is imported."""

from recension.cli import bench, calibrate, demo, generate, inspect, modules, query_file, run, streams, why
from recension.cli.root import app, main

__all__ = [
    "app",
    "bench",
    "calibrate",
    "demo",
    "generate",
    "inspect",
    "main",
    "modules",
    "query_file",
    "run",
    "streams",
    "why",
]
