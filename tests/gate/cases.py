"""Random rows for a source, valid and not: what every way in must judge alike.

A case is what a source declares and the rows that come to it, each a dictionary of columns. `families.py`
draws them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

import recension as rc
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER

Row: TypeAlias = dict[str, Any]

PAYLOAD: Final = {"k": "string", "v": "int64"}
_TYPES: Final = {"string": pa.string(), "int64": pa.int64(), "bool": pa.bool_()}
_TIMES: Final = ("_vs", "_ve", "_new_ve", "ts", "until")
STREAM: Final = {"_kind": "string", "_vs": "int64", "_ve": "int64", "_new_ve": "int64", "_count": "int64"}


_ABOVE: Final[dict[str, Callable[[rc.Stream], rc.Stream]]] = {
    "": lambda source: source,
    ".finalize()": lambda source: source.finalize(),
    ".advance_time(2)": lambda source: source.advance_time(2),
}


@dataclass(frozen=True)
class Case:
    """A source ``s`` and its rows."""

    options: dict[str, Any]
    """What `rc.source` is given besides the name and the columns."""
    columns: dict[str, str]
    """The columns of the rows, those of the payload included."""
    rows: list[Row] = field(default_factory=list)
    payload: dict[str, str] = field(default_factory=lambda: dict(PAYLOAD))
    make: str = "source"
    above: str = ""
    """A step on it, as it is written in Python."""
    is_timed: bool = False
    """Are its times timestamps?"""
    may_be_cut: bool = True
    """May they come in pieces? Within a push rows are put in order, between two pushes they are not."""

    @property
    def policy(self) -> str:
        """What happens to rows that may not be there."""
        policy: str = self.options.get("on_violation", "raise")
        return policy

    @property
    def place_columns(self) -> list[str]:
        """The columns that say where a row stands, which are no part of it."""
        return [name for option in ("partition", "order", "sequence") if (name := self.options.get(option))]

    @property
    def _said(self) -> dict[str, Any]:
        """What the source is given besides its name and columns."""
        return self.options | ({"times": "timestamp[us, UTC]"} if self.is_timed else {})

    def source(self, name: str = "s") -> rc.Stream:
        """The source alone."""
        return getattr(rc, self.make)(name, self.payload, **self._said)  # type: ignore[no-any-return]

    def query(self, name: str = "s") -> rc.Stream:
        """A query whose answer is what was taken in."""
        return _ABOVE[self.above](self.source(name))

    def program(self) -> str:
        """The same as a query file."""
        options = "".join(f", {name}={value!r}" for name, value in self._said.items())
        return (
            "import recension as rc\nfrom recension import Properties\n"
            f"query = rc.{self.make}('s', {self.payload!r}{options}){self.above}\n"
        )

    @property
    def schema(self) -> pa.Schema:
        """The types of the columns of the rows."""
        times = {name: pa.timestamp("us", "UTC") for name in _TIMES if self.is_timed}
        return pa.schema([(name, times.get(name, _TYPES[kind])) for name, kind in self.columns.items()])

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Some of the rows."""
        return pa.Table.from_pylist(self.rows[start:stop], self.schema)

    def elements(self) -> list[Element] | None:
        """The rows as elements; None if some are none, or if columns say more of them."""
        if self.make == "table" or self.is_timed or {*self.columns} - {*STREAM, *self.payload}:
            return None
        found = [element_of(row, [*self.payload]) for row in self.rows]
        return None if None in found else found  # type: ignore[return-value]


def element_of(row: Row, names: list[str]) -> Element | None:
    """A row of a stream as an element; None if it is none."""
    payload, (vs, ve) = {name: row.get(name) for name in names}, (row.get("_vs"), row.get("_ve"))
    ve = FOREVER if ve is None else ve
    match row.get("_kind", "insert"), vs:
        case "cti", _:
            return Cti(FOREVER if vs is None else vs)
        case _, None:
            return None
        case "insert", _:
            return Insert(payload, vs, ve)
        case "retract", _:
            return Retract(payload, vs, ve, FOREVER if row.get("_new_ve") is None else row["_new_ve"])
        case "external_cti", _ if row.get("_count") is not None:
            return ExternalCti(vs, ve, row["_count"])
    return None


def row_of(element: Element) -> Row:
    """An element as a row of a stream."""
    match element:
        case Cti(t):
            return {"_kind": "cti", "_vs": None if t == FOREVER else t}
        case ExternalCti(vs, ve, count):
            return {"_kind": "external_cti", "_vs": vs, "_ve": ve, "_count": count}
    lifetime = {"_vs": element.vs, "_ve": None if element.ve == FOREVER else element.ve}
    if isinstance(element, Insert):
        return {"_kind": "insert", **lifetime, **element.payload}
    new = None if element.new_ve == FOREVER else element.new_ve
    return {"_kind": "retract", **lifetime, "_new_ve": new, **element.payload}
