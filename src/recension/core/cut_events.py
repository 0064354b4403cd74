"""How far back the stream tells the ends of events that were cut off at a CTI and can still be corrected.

An event whose end is told before the CTI is shown until the CTI, and is final once a later one comes. So only
those cut off at the last CTI matter: of these the least end told is kept, be it corrected since or not.
"""

from __future__ import annotations

import pyarrow as pa

from recension.core.ticks import BEGINNING, FOREVER, Ticks


class CutEvents:
    """The last CTI at which events were cut off, and the least end they were told with."""

    def __init__(self) -> None:
        self._cti, self._least = BEGINNING, FOREVER

    def note(self, told: Ticks, cti: Ticks) -> None:
        """Events were told to end at ``told``, and are shown until ``cti``."""
        if not len(cti):
            return
        last = int(cti.max())
        if last > self._cti:
            self._cti, self._least = last, FOREVER
        if last == self._cti:
            self._least = min(self._least, int(told[cti == last].min()))

    def settled(self, cti: int) -> int:
        """A time such that no event that was told to end before it can be corrected, when this is the CTI."""
        return min(cti, self._least) if cti <= self._cti < FOREVER else cti

    def snapshot(self) -> pa.Table:
        """Both, as a table of one row."""
        return pa.table({"cti": [self._cti], "least": [self._least]})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        self._cti, self._least = table["cti"][0].as_py(), table["least"][0].as_py()
