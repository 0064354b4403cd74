"""A query from topic to topic as a program of its own, for tests that kill it.

``pipeline.py FOLDER SERVERS TOPIC ANSWERS`` runs until FOLDER/stop is there, takes what has come by then, and
ends. Started again, it goes on from its checkpoint.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from scripts.kafka_jars import jars
from tests.runners.spark.kafka.topics import NUMBERED, PLACES, query
from tests.short_sessions import short_session

import recension as rc
from recension.testing.generator.settings import SCHEMA

FEED = rc.source("feed", SCHEMA, **PLACES, **NUMBERED)


def main() -> None:
    folder, (servers, topic, into) = Path(sys.argv[1]), sys.argv[2:]
    spark = rc.spark.session(
        "local[2]",
        "scenario",
        **short_session(spark__jars=",".join(str(jar) for jar in jars("connector"))),
    )
    given = rc.spark.read_kafka(spark, FEED, servers, topic, options={"maxOffsetsPerTrigger": "2000"})
    answers = rc.spark.stream(spark, query(FEED), {"feed": given}, shards=2)
    running = rc.spark.write_kafka(answers, servers, into, key="k", checkpoint=folder / "checkpoint")
    while not (folder / "stop").exists():
        if running.exception() is not None or not running.isActive:
            raise SystemExit(f"the query ended: {rc.spark.reason_of(running)}")
        time.sleep(0.1)
    running.processAllAvailable()
    running.stop()
    spark.stop()


if __name__ == "__main__":
    main()
