"""A query whose numbers Prometheus could scrape, and what it would get: ``scraped.py FOLDER`` prints it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.short_sessions import short_session

import recension as rc

SERVLET = "spark__metrics__conf__*__sink__prometheusServlet__"
SETTINGS = {
    "spark__ui__enabled": "true",
    "spark__ui__port": "0",
    "spark__metrics__namespace": "shop",
    SERVLET + "class": "org.apache.spark.metrics.sink.PrometheusServlet",
    SERVLET + "path": "/metrics/prometheus",
}


def main() -> None:
    folder = Path(sys.argv[1])
    spark = rc.spark.session("local[2,4]", "scraped", **short_session(), **SETTINGS)
    spark.streams.addListener(rc.spark.Listener(gauges=spark))
    counts = rc.source("s", {"k": "int64"}).group_by("k").agg(n=rc.count(), speculate="eager")
    answers = rc.spark.stream(spark, counts, {"s": folder / "in"}, shards=1)
    once = {"availableNow": True}
    where: dict[str, Any] = {"changelog": folder / "log", "checkpoint": folder / "ck"}
    rc.spark.write(answers, **where, trigger=once, query_name="sites").awaitTermination()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    with urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/prometheus", timeout=20) as answer:
        print(answer.read().decode())
    spark.stop()


if __name__ == "__main__":
    main()
