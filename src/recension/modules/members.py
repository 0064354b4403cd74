"""What a module gets: the payloads, or the events, of one window.

Both can be read as a sequence of rows, and as columns:

    sum(p["v"] for p in payloads)        payloads["v"].sum()

Members are ordered by (vs, payload, ve). The end comes last, so that the order does not depend on ends that a
module must not see: final members keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy.typing as npt
import pyarrow as pa

from recension.core.events import Event, Payload
from recension.core.ticks import Ticks


class Window(NamedTuple):
    """The interval ``[start, end)``: the window's descriptor."""

    start: int
    end: int


class SharedColumns:
    """Columns that several windows share; each takes a slice."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._plain: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """A column's slice; what a null does to the type of an array does not reach other slices."""
        if name not in self._plain:
            column = self.batch.column(name)
            if column.null_count:
                part: npt.NDArray[Any] = column.slice(start, stop - start).to_numpy(zero_copy_only=False)
                return part
            self._plain[name] = _make_readonly(column.to_numpy(zero_copy_only=False))
        return self._plain[name][start:stop]


class Payloads(Sequence[Payload]):
    """The payloads of a window: rows as mappings; ``payloads["v"]`` is a column as a NumPy array.

    >>> some = Payloads.of(pa.record_batch({"v": [1.0, 4.0]}))
    >>> len(some), [p["v"] for p in some], some["v"].tolist()
    (2, [1.0, 4.0], [1.0, 4.0])
    """

    __slots__ = ("__dict__", "_size", "_start", "_table")

    def __init__(self, table: SharedColumns, start: int, stop: int) -> None:
        self._table, self._start, self._size = table, start, stop - start

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Payloads:
        """All rows of a batch."""
        return Payloads(SharedColumns(batch), 0, batch.num_rows)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: str) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: str | int | slice) -> Any:
        if isinstance(at, str):
            return self._table.array(at, self._start, self._start + self._size)
        return self._rows[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return repr(self._rows)

    @property
    def names(self) -> list[str]:
        """The columns there are."""
        return list(self._table.batch.schema.names)

    def to_arrow(self) -> pa.RecordBatch:
        """The payloads as an Arrow batch."""
        return self._table.batch.slice(self._start, self._size)

    def to_list(self) -> list[Payload]:
        """The payloads as mappings."""
        rows = self.to_arrow().to_pylist()
        return rows if self._table.batch.num_columns else [{} for _ in range(self._size)]

    @cached_property
    def _rows(self) -> list[Any]:
        return self.to_list()


class Events(Payloads):
    """The events of a window, clipped as the query says: ``.vs`` and ``.ve`` are arrays of their lifetimes.

    >>> import numpy as np
    >>> table = SharedColumns(pa.record_batch({"v": [1.0, 4.0]}))
    >>> some = Events(table, 0, 2, np.array([0, 3]), np.array([5, 9]))
    >>> (some["v"] * (some.ve - some.vs)).sum(), [e.ve - e.vs for e in some]
    (np.float64(29.0), [5, 6])
    """

    __slots__ = ("ve", "vs")

    def __init__(self, table: SharedColumns, start: int, stop: int, vs: Ticks, ve: Ticks) -> None:
        super().__init__(table, start, stop)
        self.vs, self.ve = _make_readonly(vs[:]), _make_readonly(ve[:])

    @cached_property
    def _rows(self) -> list[Any]:
        lifetimes = zip(self.to_list(), self.vs.tolist(), self.ve.tolist(), strict=True)
        return [Event(payload, vs, ve) for payload, vs, ve in lifetimes]


def _make_readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array that other windows see too, and that nobody may change in place."""
    array.flags.writeable = False
    return array
