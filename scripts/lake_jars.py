"""Fetch the jars of Delta and of Iceberg for the Spark that is installed: pinned versions, checked hashes.

    python -m scripts.lake_jars             # delta (13 MB) and iceberg (47 MB)
    python -m scripts.lake_jars delta       # one of them
    python -m scripts.lake_jars s3          # Hadoop's client of S3 with Amazon's SDK: more than 600 MB

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
    sys.exit(_JARS.run(sys.argv[1:] or ("delta", "iceberg")))
