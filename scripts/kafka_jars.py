"""Fetch the jars of a Kafka broker and of Spark's Kafka connector: pinned versions, checked hashes.

    python -m scripts.kafka_jars            # both; or name one: broker, connector

They go into ~/.cache/recension/jars, or the folder RECENSION_JARS names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.jars import LockedJars, NoJarsError

__all__ = ["NoJarsError", "fetch", "folder", "jars"]

_JARS = LockedJars(Path(__file__).with_suffix(".lock"))
folder, jars, fetch = _JARS.folder, _JARS.jars, _JARS.fetch

if __name__ == "__main__":
    sys.exit(_JARS.run(sys.argv[1:] or ("broker", "connector")))
