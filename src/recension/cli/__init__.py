"""The command ``recension``: one file per command, each of which adds itself to the root."""

from recension.cli import check, diff, generate, history
from recension.cli.root import app, main

__all__ = ["app", "check", "diff", "generate", "history", "main"]
