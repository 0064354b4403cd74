"""A service in a process of its own, to be killed.

python -m tests.runners.kafka.serving ADDRESS IN OUT FOLDER
"""

from __future__ import annotations

import sys
from typing import Any

import recension as rc

SCHEMA = {"k": "string", "v": "int64"}
OUTPUT = {"k": "string", "n": "int64", "total": "int64"}


def query() -> rc.Stream:
    feed = rc.source("feed", SCHEMA, partition="partition", order="offset")
    return feed.group_by("k").agg(n=rc.count(), total=rc.sum("v"), speculate="eager")


def open_service(address: str, topic: str, out: str, folder: str, **options: Any) -> rc.kafka.Service:
    outputs = rc.kafka.OutputTopic(out, key="k")
    session = rc.session(query())
    return rc.kafka.service(
        session, address, inputs={"feed": topic}, outputs=outputs, folder=folder, **options
    )


if __name__ == "__main__":
    with open_service(*sys.argv[1:], snapshot_every="300ms", wait="20ms", batch_size=50) as live:
        print("open", flush=True)
        live.run()
