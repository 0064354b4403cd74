"""Alerts above a sequence and an absence, as a program that tests kill: ``patterns.py FOLDER``.

It reads the files of FOLDER/carts, pays and ships, one of each a micro-batch, and writes both sinks. Started
again, it goes on from its checkpoint; when all files are read it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.runners.spark.stream.driver import put, read
from tests.short_sessions import short_session

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Cti, Element
from recension.core.history import History

FILES = 6
SCHEMA = pa.schema([("user", pa.string())])
CARTS, PAYS, SHIPS = (rc.source(name, SCHEMA) for name in ("carts", "pays", "ships"))
PAID = rc.sequence({"cart": CARTS, "pay": PAYS}, within=20, on="user").select("user")
QUERY = rc.unless(PAID, SHIPS, within=30, on="user").shift(30).due(by=CARTS)


def told(number: int) -> dict[str, list[Element]]:
    """What comes in a micro-batch: 20 ticks, shipments up to two micro-batches late, some carts removed."""
    rng, since = np.random.default_rng([34, number]), 20 * number
    found: dict[str, list[Element]] = {}
    for name, delay, size in (("carts", 0, 60), ("pays", 0, 60), ("ships", 40, 40)):
        starts = rng.integers(max(0, since - delay), since + 20, size).tolist()
        users = rng.integers(0, 40, size).tolist()
        found[name] = [rc.Insert({"user": f"u{n}"}, at, at + 1) for n, at in zip(users, starts, strict=True)]
    last = [event for event in told(number - 1)["carts"] if isinstance(event, rc.Insert)] if number else []
    found["carts"] += [rc.Retract(event.payload, event.vs, event.ve, event.vs) for event in last[:6]]
    for rows in found.values():
        rows.append(Cti(since - 40) if since > 40 else Cti(0))
    return found


def write_inputs(folder: Path) -> list[History]:
    """Put the files there; what the local engine says after each of them."""
    local, histories = rc.session(QUERY), []
    for number in range(FILES):
        for name, rows in told(number).items():
            put(folder / name, number, from_elements(rows, SCHEMA))
            local.push(name, rows)
        histories.append(local.history())
    return histories


def start(spark: Any, folder: Path) -> Any:
    """Start the query, or go on with it."""
    inputs = {name: read(spark, folder / name) for name in ("carts", "pays", "ships")}
    return rc.spark.write(
        rc.spark.stream(spark, QUERY, inputs, shards=2),
        changelog=folder / "log",
        history=folder / "table",
        checkpoint=folder / "ck",
        trigger={"availableNow": True},
    )


if __name__ == "__main__":
    session = rc.spark.session("local[2,4]", "patterns", **short_session())
    start(session, Path(sys.argv[1])).awaitTermination()
    session.stop()
