"""Payload rows known by number, kept as they came, block by block, each row copied once.

Big payloads are what a merge spends its memory on: blocks are never united, only dropped when the rows that
are still wanted are gathered into a new one. Small ones are, or there would be too many.
"""

from __future__ import annotations

from recension.operators.state.row_store import RowStore

_SMALL = 1024
_MANY = 32


class Payloads(RowStore):
    """A store that copies as little as it can."""

    def _kept_before(self, size: int) -> int:
        blocks, total = len(self._sizes), len(self) + size
        if blocks >= _MANY and total < _MANY * _SMALL:
            return 0
        return blocks - bool(blocks and self._sizes[-1] + size <= _SMALL)

    def _before_taking(self, rows: int) -> None:
        """Nothing is united."""
