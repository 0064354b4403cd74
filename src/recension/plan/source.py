"""Sources: where streams come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.validity import Policy
from recension.plan.node import Node
from recension.plan.properties import NOTHING_KNOWN, Properties


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A named input. ``start`` and ``end`` name the time columns of a plain table.

    ``external_ctis`` says that it carries such, and may hold retractions before what they retract. They are
    about the time from ``since`` on.
    """

    name: str
    columns: pa.Schema
    start: str | None = None
    end: str | None = None
    declared: Properties = NOTHING_KNOWN
    on_violation: Policy = "raise"
    external_ctis: bool = False
    since: int = 0

    ports: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise RecensionError("source: a source needs a name")
        if self.on_violation not in ("raise", "drop", "adjust"):
            raise RecensionError(
                f"source: on_violation is 'raise', 'drop' or 'adjust', not {self.on_violation!r}"
            )
        if self.end is not None and self.start is None:
            raise RecensionError(f"source: end={self.end!r} needs a start= column as well")
        if self.since and not self.external_ctis:
            raise RecensionError(
                "source: since= says where external CTIs begin, and needs external_ctis=True"
            )
        super().__post_init__()

    @property
    def label(self) -> str:
        times = [f"{which}={name}" for which, name in (("start", self.start), ("end", self.end)) if name]
        policy = [] if self.on_violation == "raise" else [f"on_violation={self.on_violation}"]
        since = f" since {self.since}" if self.since else ""
        external = [f"with external ctis{since}"] if self.external_ctis else []
        return " ".join(["source", self.name, *times, *policy, *external])

    def derive_schema(self) -> pa.Schema:
        return self.columns

    def derive_properties(self) -> Properties:
        """What its owner declares; nothing is known of data that has not come yet."""
        return self.declared
