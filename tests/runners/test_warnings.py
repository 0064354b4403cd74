"""What a person should know of the data is said once, with numbers: in the log and in the metrics."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.core.batch import EventBatch, inserts
from recension.core.ticks import Ticks
from recension.operators import matching
from recension.runners import metrics
from recension.runners.local import Session

SCHEMA = {"k": "string", "x": "int64"}
s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(metrics, "ROWS_WITHOUT_CTI", 1_000)
    monkeypatch.setattr(matching, "ROWS", 1_000)
    caplog.set_level(logging.WARNING, "recension")


def batch(size: int, since: int = 0, keys: int = 10, rare: int = 0) -> EventBatch:
    """Rows of ``keys`` keys in turn; with ``rare``, one of that many rows has a key of its own."""
    at: Ticks = since + np.arange(size, dtype=np.int64)
    k = [f"rare {i}" if rare and i % rare == 0 else f"k{i % keys}" for i in at.tolist()]
    return inserts(at, at + 5, pa.record_batch({"k": pa.array(k), "x": pa.array(at)}))


def warned(session: Session) -> list[str]:
    return [warning for line in session.metrics() for warning in line.warnings]


def test_a_source_that_promises_nothing_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    session = rc.session(s.group_by("k").agg(n=rc.count()))
    for since in range(0, 5_000, 500):
        session.push("s", batch(500, since))
    (warning,) = warned(session)
    assert warning.startswith(
        "source s has sent 1,000 rows and no cti: nothing can become final, and 3,000 rows of state are held"
    )
    assert [record.message for record in caplog.records] == [warning]


@pytest.mark.parametrize("query", [s.group_by("k").agg(n=rc.count()), s.where(rc.col("x") > 5)])
def test_so_it_is_where_only_the_checks_remember(query: rc.Stream) -> None:
    session = rc.session(query)
    session.push("s", batch(3_000))
    assert len(warned(session)) == 1


def test_a_source_that_promises_is_not(caplog: pytest.LogCaptureFixture) -> None:
    session = rc.session(s.group_by("k").agg(n=rc.count()))
    session.push("s", batch(900))
    session.advance("s", 3)
    session.push("s", batch(3_000, 900))
    paced = rc.session(s.advance_time(10).group_by("k").agg(n=rc.count()))
    for since in range(0, 5_000, 500):
        paced.push("s", batch(500, since))
    assert not warned(session) + warned(paced)
    assert not caplog.records


def test_nor_is_one_that_will_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    query = s.group_by("k").agg(n=rc.count())
    rc.run(query, {"s": batch(3_000)}, close=True)
    table = pa.table({"ts": range(3_000), "k": ["a"] * 3_000, "x": range(3_000)})
    rc.run(rc.source("s", SCHEMA, start="ts").group_by("k").agg(n=rc.count()), {"s": table})
    assert not caplog.records
    assert warned_of(rc.run(query, {"s": batch(3_000)})) == 1


def warned_of(result: rc.Result) -> int:
    return sum(len(line.warnings) for line in result.metrics)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_join_with_nearly_all_rows_on_one_key_says_so(how: str) -> None:
    session = rc.session(s.join(t, on="k", how=how))  # type: ignore[arg-type]
    for since in range(0, 4_000, 400):
        session.push("s", batch(400, since, keys=1, rare=20))
        session.push("t", batch(400, since))
        session.advance("s", since + 400)
        session.advance("t", since + 400)
    (warning,) = warned(session)
    assert "95 % of the 1,200 rows that one side has taken in have k = 'k0': " in warning
    assert warning.startswith(session.metrics()[-1].name)


def test_a_join_with_many_keys_does_not() -> None:
    crossed = s.join(t, where=rc.col("x") == rc.col("x_right"))
    session = rc.session(s.join(t, on="k"), crossed)
    for since in range(0, 4_000, 400):
        for name in "st":
            session.push(name, batch(400, since, keys=3))
            session.advance(name, since + 400)
    assert not warned(session)
