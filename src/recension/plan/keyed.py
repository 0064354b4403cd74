"""Keyed sources: rows that have keys and versions, and the steps that make a stream of them.

    RowSource ── rows as they come ──> RestateByKey or ChangesByKey ── inserts and retractions ──>

A row is an insert, but the rows are no stream: one may begin before a CTI. Nothing but the step above reads
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from recension.core.errors import RecensionError, SchemaError
from recension.core.formats.change_feeds import Envelopes
from recension.core.validity import Policy
from recension.plan.expressions import require_columns
from recension.plan.node import FilterRule, Needs, Node, columns_named, same_names
from recension.plan.properties import Properties
from recension.plan.source import Source
from recension.plan.structure import Structure


@dataclass(frozen=True, eq=False)
class RowSource(Source):
    """The rows of a keyed source. Neither their intervals nor CTIs are checked: what is made of them is.

    ``envelopes`` says how what a database sends is read, where the rows do not come as such.
    """

    envelopes: Envelopes | None = None

    are_rows = True

    @cached_property
    def structure(self) -> Structure:
        """Without how rows are read: a snapshot is of what they say."""
        return tuple(part for part in super().structure if part[0] != "envelopes")


def envelopes_of(source: Source) -> Envelopes | None:
    """How what a database sends to a source is read, if it says so."""
    return source.envelopes if isinstance(source, RowSource) else None


@dataclass(frozen=True, eq=False)
class ByKey(Node):
    """Rows of keys as a stream; ``columns`` are those of its payload.

    Of the other columns of a row, ``version`` says which row of a key counts, and ``deleted`` whether it
    takes something back.
    """

    input: Node
    columns: pa.Schema
    key: tuple[str, ...]
    version: str | None = None
    deleted: str | None = None

    passes_external_ctis = False
    # A level of consistency stands above it: below there is no stream yet.
    is_before_state = True
    advances_time = True
    ignores_ctis = False
    named_times = ()

    @property
    def policy(self) -> Policy:
        """What happens to rows that may not be there: as its source says."""
        return self.input.on_violation if isinstance(self.input, Source) else "raise"

    @property
    def needs_arrival(self) -> bool:
        """Does it depend on the order of arrival?"""
        return self.version is None

    def derive_schema(self) -> pa.Schema:
        if not self.key:
            raise SchemaError(f"{self.verb}: key= names at least one column")
        require_columns(self.key, self.columns, f"{self.verb}(key=)")
        if self.version is not None:
            _require_version(self.version, self.input.schema, self.verb)
        if self.deleted is not None and not pa.types.is_boolean(self.input.schema.field(self.deleted).type):
            kind = self.input.schema.field(self.deleted).type
            raise SchemaError(f"{self.verb}: deleted={self.deleted!r} is a column of type {kind}, not bool")
        return self.columns

    @property
    def verb(self) -> str:
        """The function that makes it, for errors."""
        raise NotImplementedError

    def derive_properties(self) -> Properties:
        """No two events of a key begin together."""
        return Properties(has_key=True)

    def needs(self) -> Needs:
        """The rows of a key together."""
        return (columns_named(self.key),)

    def kept_columns(self) -> Mapping[str, str]:
        return same_names(self.columns)

    # Content is compared whole.
    columns_read = Node.all_columns

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """None: a row that is filtered out would not end or replace the one before it."""
        return (None,)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        (below,) = inputs
        columns = pa.schema([*(below.schema.field(name) for name in keys), *self.columns])
        return replace(self, input=below, columns=columns, key=(*keys, *self.key))

    def _describe(self) -> str:
        said = (("version", self.version), ("deleted", self.deleted))
        return ", ".join(["by " + ", ".join(self.key), *(f"{name} {of}" for name, of in said if of)])


@dataclass(frozen=True, eq=False)
class RestateByKey(ByKey):
    """Of each key the record that the row of its highest version states, until ``forget`` after its end."""

    forget: int | None = None

    verb = "source"

    @property
    def label(self) -> str:
        forget = "" if self.forget is None else f", forget after {self.forget}"
        return f"records {self._describe()}{forget}"


@dataclass(frozen=True, eq=False)
class ChangesByKey(ByKey):
    """Each row until the next of its key: by (start, version), or in the order of versions alone."""

    order: Literal["start", "version"] = "start"

    verb = "changes"

    def __post_init__(self) -> None:
        if self.order not in ("start", "version"):
            raise RecensionError(f"changes: order is 'start' or 'version', not {self.order!r}")
        if self.order == "version" and self.version is None:
            raise RecensionError("changes: order='version' needs a version= column")
        super().__post_init__()

    @property
    def label(self) -> str:
        return f"changes {self._describe()}{', in the order of versions' if self.order == 'version' else ''}"


def _require_version(name: str, schema: pa.Schema, verb: str) -> None:
    kind = schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        raise SchemaError(
            f"{verb}: version={name!r} is a column of type {kind}; a version is a whole number, a "
            "timestamp or a date (text would be compared letter by letter)"
        )
