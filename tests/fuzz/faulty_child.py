"""A child that does what a path's name says: to see that the sandbox sees it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.fuzz.serving import serve


def _misbehave(path: Path) -> str:
    match path.name:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            while True:
                pass
        case "memory":
            return str(len(b"x" * (200 << 20)))
        case "raise":
            raise IndexError
    return "accepted"


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]), _misbehave)
