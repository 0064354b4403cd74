"""One commit in the making: the files of the next manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from recension.core.batch import Index
from recension.core.formats.manifest import DataFile, Manifest, UnusedFile
from recension.core.history import History
from recension.runners.spark.sinks.known import Recent
from recension.runners.spark.sinks.stored import StoredEvents
from recension.runners.spark.sinks.upkeep import mergeable, to_rewrite


class Revision:
    """Starts from a manifest; every method writes files that nobody sees before the next manifest."""

    def __init__(self, manifest: Manifest, stored: StoredEvents, cti: int) -> None:
        self._manifest, self._stored, self._cti = manifest, stored, cti
        self._files = {file.name: file for file in manifest.files}
        self._deletions = {file.name: file for file in manifest.deletions}

    def delete(self, rows: Mapping[str, Index]) -> None:
        """Take rows out of the history."""
        if not rows:
            return
        for name, places in rows.items():
            self._files[name] = self._files[name].without(len(places))
        written = self._stored.delete(rows)
        self._deletions[written.name] = written

    def add(self, events: History, kind: str = "added") -> None:
        """Put events into the history."""
        if not len(events):
            return
        written = self._stored.write(events, kind)
        self._files[written.name] = written
        if not written.is_final(self._cti):
            self._stored.live.add(written.name, events)

    def rewrite(self) -> None:
        """Merge what has become small and many; put what is final where it stays."""
        for group in to_rewrite(list(self._files.values()), self._cti):
            self._merge(group)
        if not self._stored.has_deletions(self._files):
            self._deletions = {}
        if small := mergeable(list(self._deletions.values())):
            merged = self._stored.merge_deletions(small, set(self._files))
            self._deletions = {n: f for n, f in self._deletions.items() if f not in small}
            self._deletions |= {merged.name: merged} if merged.rows else {}

    def _merge(self, group: list[DataFile]) -> None:
        events = self._stored.events(group)
        for file in group:
            del self._files[file.name]
            self._stored.forget(file.name)
        final = events.ve < self._cti
        self.add(events.filter(final), "final")
        self.add(events.filter(~final), "merged")

    def manifest(self, batch: int, recent: Recent, now: float, keep: float) -> tuple[Manifest, list[str]]:
        """The next manifest, and the files that nobody needs once it is there."""
        old = self._manifest
        gone = old.used() - {*self._files, *self._deletions}
        dropped = [*old.dropped, *(UnusedFile(name, now) for name in sorted(gone))]
        # What the last commit dropped is still in the manifest before this one.
        expired = [file.name for file in old.dropped if file.at + keep < now]
        manifest = replace(
            old,
            number=old.number + 1,
            batch=batch,
            recent=recent,
            cti=self._cti,
            files=tuple(self._files.values()),
            deletions=tuple(self._deletions.values()),
            dropped=tuple(file for file in dropped if file.name not in expired),
        )
        return manifest, expired
