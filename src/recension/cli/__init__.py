"""The command ``recension``. A module with commands adds them to the root when one of them is called."""

from recension.cli.root import load_commands, main

__all__ = ["load_commands", "main"]
