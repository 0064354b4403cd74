"""What one version of a state writes, the next one writes again; what it drops, the next one removes.

Spark reads a version as a snapshot and the changes of the versions after it. Changes are those of the attempt
that wrote them last. A snapshot is of whichever attempt, and when it is written, in the background, nobody
asks whether that attempt was the one that was committed:

    version      6       7       8
    attempt A    changes snapshot                killed before its micro-batch was committed
    attempt B            changes changes         what is read of version 8: A's snapshot of 7, and B's 8

Two attempts write alike if they are given the same rows in the same order. Where they do not (a user's own
function, an engine that cleaned its log at another time), what B's 8 names must be found all the same:

    written by B before 7     A began with it, and removed none of it that B's 8 can name: what A's own 7 did
                              not need was still there for its 8 to remove
    written by B's 7          is written again by B's 8
    written by B's 8          is there

So no version needs anything of a snapshot but what every attempt has in it.

Cost    what a micro-batch writes is written twice. It is read from Spark's own store, in memory mostly.
"""

from __future__ import annotations

from collections.abc import Collection

from recension.runners.spark.stream.codec import Store, require


class TwoVersions:
    """A store that removes what the version before dropped, and writes again what it wrote."""

    def __init__(self, store: Store, written: Collection[str], dropped: Collection[str]) -> None:
        self._store, self._before, self._due = store, written, dropped
        self._written: dict[str, None] = {}
        self._dropped: dict[str, None] = {}

    def get(self, name: str) -> bytes | None:
        """What has this name."""
        return self._store.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Write it now, and let the next version write it again."""
        self._store.put(name, value)
        self._written[name] = None
        self._dropped.pop(name, None)

    def remove(self, name: str) -> None:
        """Let the next version remove it."""
        self._dropped[name] = None
        self._written.pop(name, None)

    def settle(self) -> tuple[list[str], list[str]]:
        """Do what the version before left to do; the names of what this one wrote, and of what it dropped."""
        for name in self._due:
            if name not in self._written:
                self._store.remove(name)
        for name in self._before:
            if name not in self._written and name not in self._dropped:
                self._store.put(name, require(self._store, name))
        return list(self._written), list(self._dropped)
