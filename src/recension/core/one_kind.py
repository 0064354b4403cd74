"""The one kind of time that a session, a run or a stream has: who brings another is refused by name."""

from __future__ import annotations

import pyarrow as pa

from recension.core.errors import TimeError
from recension.core.time_kind import TimeKind, advice, in_words, merged


class OneKind:
    """The kind that all the times of a session, a run or a stream share; remembers who was the first."""

    def __init__(self) -> None:
        self.seen: TimeKind = None
        self._named: TimeKind = None
        self._first = ""

    @property
    def kind(self) -> TimeKind:
        """The kind of all times; its zone is that of the data, whatever zone other times are named in."""
        return self._named if self.seen is None else self.seen

    def require(self, kind: TimeKind, where: str) -> None:
        """Refuse times of a kind that does not mix with what there is; ``where`` says whose they are."""
        known = self.kind
        if known is None or kind is None:
            return
        try:
            merged(known, kind)
        except TimeError:
            raise TimeError(
                f"{where}: the times are {in_words(kind)}, but those of {self._first} are {in_words(known)}; "
                f"{advice(known, kind)}"
            ) from None

    def note(self, kind: TimeKind, where: str) -> None:
        """The same, and remember that data has them."""
        self._remember(kind, where)
        self.seen = merged(self.seen, kind)

    def name(self, kind: TimeKind, where: str) -> None:
        """The same for a time that is no data, but named beside it."""
        self._remember(kind, where)
        self._named = merged(self._named, kind)

    def _remember(self, kind: TimeKind, where: str) -> None:
        self.require(kind, where)
        if kind is not None:
            self._first = self._first or where

    def copy(self) -> OneKind:
        """The same knowledge, to be added to on trial."""
        other = OneKind()
        other.seen, other._named, other._first = self.seen, self._named, self._first
        return other

    def snapshot(self) -> pa.Table:
        """The kinds, as the types of columns of nothing, and who was the first."""
        kinds = [pa.null() if kind is None else kind for kind in (self.seen, self._named)]
        return pa.table(
            {"first": [self._first], "seen": pa.nulls(1, kinds[0]), "named": pa.nulls(1, kinds[1])}
        )

    def restore(self, table: pa.Table) -> None:
        """Remember what the snapshot remembers."""
        kinds = [table.schema.field(name).type for name in ("seen", "named")]
        self.seen, self._named = (None if pa.types.is_null(kind) else kind for kind in kinds)
        self._first = table["first"][0].as_py()


class KnownKind(OneKind):
    """The kind of times that were checked elsewhere: plain ticks stand for it."""

    def __init__(self, kind: TimeKind) -> None:
        super().__init__()
        self.seen = kind

    def require(self, kind: TimeKind, where: str) -> None:
        """Everything has been checked."""

    def note(self, kind: TimeKind, where: str) -> None:
        """Everything is known."""

    def name(self, kind: TimeKind, where: str) -> None:
        """Everything is known."""

    def copy(self) -> OneKind:
        """Nothing can be added to it."""
        return self

    def restore(self, table: pa.Table) -> None:
        """What is known now counts."""
