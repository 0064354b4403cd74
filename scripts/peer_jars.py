"""Fetch the jars with which Flink reads and writes Parquet: pinned versions, checked hashes.

    python -m scripts.peer_jars

They go into ~/.cache/recension/jars, or the folder RECENSION_JARS names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.jars import LockedJars

_JARS = LockedJars(Path(__file__).with_suffix(".lock"))
folder = _JARS.folder

if __name__ == "__main__":
    sys.exit(_JARS.run(["flink"]))
