"""The same verdict for rows that come as messages of a topic."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")

from tests.gate import ways
from tests.gate.cases import FAMILIES, Case, make_case
from tests.gate.ways import Verdict
from tests.runners.kafka.fake import FakeCluster, _cluster, open_service
from tests.runners.kafka.test_in_memory import make, tell

import recension as rc
from recension.testing.physical import Dice

__all__ = ["_cluster"]

# A table comes as a whole; the places of partitioned sources are those of the topic.
AS_MESSAGES = [family for family in FAMILIES if family not in ("table", "partitions")]


def by_messages(case: Case, folder: Path, cluster: FakeCluster) -> Verdict:
    """A message for each row."""
    make(cluster, **{"in": 1})
    for row in case.table().to_pylist():
        tell(cluster, "in", row)
    try:
        with open_service(case.query(), folder, inputs={"s": "in"}) as live:
            live.run("end")
            return ways.taken(ways.added(live.session.counts()), live.session.history())
    except rc.RecensionError as why:
        print("SAID", type(why), why)
        return ways.refused(why)


@pytest.mark.parametrize("family", AS_MESSAGES)
def test_messages_get_the_verdict_of_rows(family: str, cluster: FakeCluster, tmp_path: Path) -> None:
    for number in range(8):
        case = make_case(family, Dice(random.Random(f"{family} {number}").randbytes(128)))
        if case.is_timed:  # JSON has no timestamps
            continue
        found = by_messages(case, tmp_path / str(number), cluster)
        ways.compare("Kafka's messages", case, ways.row_by_row(case, tmp_path), found)
