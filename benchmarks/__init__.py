"""How fast, how much memory, and how both grow: `python -m benchmarks`, or `python -m benchmarks history`."""
