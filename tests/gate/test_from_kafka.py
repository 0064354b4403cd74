"""The same verdict for rows that come as messages of a topic."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from tests.gate import verdicts, ways
from tests.gate.cases import Case
from tests.gate.families import FAMILIES, make_case
from tests.gate.verdicts import Verdict
from tests.runners.kafka.fake import FakeCluster, _cluster, open_service
from tests.runners.kafka.test_in_memory import make, tell

import recension as rc
from recension.core.formats.decode import NO_COUNT, NO_START, OPEN_WITH_END, UNKNOWN_KIND
from recension.testing.physical import Dice

__all__ = ["_cluster"]

# A table comes as a whole; partitions, orders and sequences are those of the topic and of its headers.
ELSEWHERE = ("table", "partitions", "paced", "numbered", "written")
AS_MESSAGES = [family for family in FAMILIES if family not in ELSEWHERE]
UNREADABLE = (UNKNOWN_KIND, NO_START, OPEN_WITH_END, NO_COUNT)


def by_messages(case: Case, folder: Path, cluster: FakeCluster) -> Verdict:
    """A message for each row."""
    make(cluster, **{"in": 1})
    for row in case.table().to_pylist():
        tell(cluster, "in", row)
    try:
        with open_service(case.query(), folder, inputs={"s": "in"}) as live:
            live.run("end")
            # The service counts messages that give no rows.
            counts = verdicts.added(live.session.counts()) + verdicts.added(live.counts)
            return verdicts.taken(counts, live.session.history())
    except rc.RecensionError as why:
        # A row's place is its offset here.
        offset = str(why).removeprefix("topic in, partition 0, offset ").partition(":")[0]
        return replace(verdicts.refused(why), row=int(offset) + 1)


@pytest.mark.parametrize("family", AS_MESSAGES)
def test_messages_get_the_verdict_of_rows(family: str, cluster: FakeCluster, tmp_path: Path) -> None:
    for number in range(8):
        case = make_case(family, Dice(random.Random(f"{family} {number}").randbytes(128)))
        # JSON has no timestamps, and a message without a kind is an insert.
        if case.is_timed or any(row.get("_kind", "") is None for row in case.rows):
            continue
        found = by_messages(case, tmp_path / str(number), cluster)
        ways.compare("Kafka's messages", case, as_messages(ways.row_by_row(case, tmp_path)), found)


def as_messages(expected: Verdict) -> Verdict:
    """A row of which no element can be made is a message like any other that cannot be read."""
    counts = Counter[str]()
    for reason, number in expected.counts.items():
        counts["a message that cannot be read" if reason in UNREADABLE else reason] += number
    return replace(expected, counts=counts)
