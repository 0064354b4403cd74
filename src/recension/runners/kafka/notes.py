"""What a service keeps beside the state of its session: its topics, and how far each was read and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.runners.kafka.journal import Ranges, TopicPartition

_PLACES: Final = ("offsets", "written")


@dataclass
class Notes:
    """What a service keeps with the state of its session."""

    run: str
    cluster: str
    topics: dict[str, str]
    widths: dict[str, int]
    """The number of partitions of each output topic when the service began: where rows go depends on it."""
    batch: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    """The number of partitions of each input topic when the service began: all must speak before a CTI."""
    known: list[str] = field(default_factory=list)
    """The sources of which messages were read."""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """The ids of input and output topics, as far as the broker tells them."""
    written: dict[TopicPartition, int] = field(default_factory=dict)
    """The ends of the output topics when this was kept: later batches of the run stand behind them."""

    def advance(self, ranges: Ranges) -> None:
        """A batch has been taken in."""
        self.batch += 1
        self.offsets |= {place: end for place, (_, end) in ranges.items()}

    def to_table(self) -> pa.Table:
        places = {name: [[*at, offset] for at, offset in getattr(self, name).items()] for name in _PLACES}
        stored = {**self.__dict__, **places}
        return pa.table({"notes": [json.dumps(stored)]})

    @staticmethod
    def from_table(table: pa.Table) -> Notes:
        stored = json.loads(table["notes"][0].as_py())
        for name in _PLACES:
            listed = stored.get(name, ())
            stored[name] = {(topic, partition): offset for topic, partition, offset in listed}
        stored["counts"] = {source: Counter(counts) for source, counts in stored["counts"].items()}
        return Notes(**stored)

    def require_same(self, cluster: str, topics: Mapping[str, str], widths: Mapping[str, int]) -> None:
        """Refuse a folder of a service over other topics, or elsewhere."""
        if cluster != self.cluster:
            raise RecensionError(
                f"the folder is of a service at the cluster {self.cluster}, and this is {cluster}: offsets "
                "of one mean nothing at another; start with a new folder"
            )
        for source in {**self.topics, **topics}:
            if (was := self.topics.get(source)) != (now := topics.get(source)):
                raise RecensionError(
                    f"the folder is of a service whose source {source!r} reads the topic {was!r}, not "
                    f"{now!r}: start with a new folder"
                )
        for name, width in widths.items():
            self.widths.setdefault(name, width)
            if width < self.widths[name]:
                raise RecensionError(
                    f"topic {name} has {width} partitions, and had {self.widths[name]}: it was made anew; "
                    "start with a new folder"
                )

    def require_ids(self, ids: Mapping[str, str]) -> None:
        """Refuse other topics of the same names."""
        for name, one in ids.items():
            if self.ids.setdefault(name, one) != one:
                raise RecensionError(
                    f"topic {name} was deleted and made anew: its id is {one}, and was {self.ids[name]}; "
                    "offsets and numbers of the old one mean nothing in it: start with a new folder"
                )
