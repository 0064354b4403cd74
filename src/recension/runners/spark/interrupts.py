"""Ctrl-C while Spark starts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupted_after() -> Iterator[None]:
    """Let a Ctrl-C count at the end only.

    A Java process that has started ends with ours. One whose start is broken off waits for us forever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread
        return
    wanted = False

    def note(*_: Any) -> None:
        nonlocal wanted
        wanted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if wanted:
            signal.raise_signal(signal.SIGINT)
