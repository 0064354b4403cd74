"""What is shown for each window, kept to be taken back: by the window's place on its axis.

A window is found by its group and by where it begins; it is dropped when it is closed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.rowhash import Hashes
from recension.operators.base import Chunks
from recension.operators.modules.answers import Rows
from recension.operators.modules.window_index import WindowList
from recension.operators.state.live_events import LiveEvents


class KeptOutput:
    """Rows by window."""

    def __init__(self, schema: pa.Schema) -> None:
        self._held = LiveEvents(schema, ("start", "end"))

    def __len__(self) -> int:
        return self._held.live()

    def take(self, windows: WindowList, group: Hashes) -> Rows:
        """The rows of these windows, which are no longer kept."""
        asked, at = self._held.overlapping(group, windows.low, windows.low + 1)
        own = np.flatnonzero(self._held.column("vs", at) == windows.low[asked])
        asked, at = asked[own], at[own]
        start, end = (self._held.column(name, at) for name in ("start", "end"))
        rows = Rows(asked, start, end, self._held.payload(at))
        self._held.remove(at)
        return rows

    def put(self, windows: WindowList, group: Hashes, rows: Rows) -> None:
        """Keep the rows of these windows, but of those that are closed already."""
        owner = rows.owner
        open_ = np.flatnonzero(windows.high[owner] > self._held.frontier)
        at: Index = owner[open_]
        payload = rows.payload.take(pa.array(open_)) if rows.payload.num_columns else rows.payload
        tag = np.zeros(len(at), np.uint64)
        lifetime = {"start": rows.vs[open_], "end": rows.ve[open_]}
        self._held.insert(group[at], windows.low[at], windows.high[at], tag, payload, **lifetime)

    def forget(self, closed: int) -> None:
        """Windows that end on the axis by then are closed."""
        self._held.expire(closed)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._held.nbytes()

    def to_chunks(self) -> Chunks:
        """The rows as named Arrow tables."""
        return self._held.chunks("shown")

    def load(self, chunks: Chunks) -> None:
        """Become what `to_chunks` gave."""
        self._held.load("shown", chunks)
