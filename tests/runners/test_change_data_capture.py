"""Change data capture judged by a small database: what a log says in the end is what the database holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import FormatError, RecensionError

SCHEMA = {"shard": "string", "id": "int64", "state": "string", "amount": "float64"}


@dataclass
class Database:
    """One table and its log, as Debezium writes it: keys may be updated, clocks may stand and go back."""

    name: str
    random: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    clock: int = 1_000

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.clock += self.random.choice([0, 0, 1, 2, -1])
            getattr(self, self.random.choice(["insert", "insert", "update", "update", "delete", "move"]))()

    def insert(self) -> None:
        free = [i for i in range(8) if i not in self.rows]
        if free:
            i = self.random.choice(free)
            self.rows[i] = self._row(i)
            self._write("c", None, self.rows[i])

    def update(self) -> None:
        if self.rows:
            i = self.random.choice(list(self.rows))
            # Without the replica identity FULL the log has no row from before.
            before, self.rows[i] = self.random.choice([None, self.rows[i]]), self._row(i)
            self._write("u", before, self.rows[i])

    def delete(self) -> None:
        if self.rows:
            gone = self.rows.pop(self.random.choice(list(self.rows)))
            self._write("d", gone | {"state": None, "amount": None}, None)

    def move(self) -> None:
        """The key of a row is updated: one change in the log."""
        free = [i for i in range(8) if i not in self.rows]
        if self.rows and free:
            before = self.rows.pop(self.random.choice(list(self.rows)))
            i = self.random.choice(free)
            self.rows[i] = self._row(i)
            self._write("u", before, self.rows[i])

    def _row(self, i: int) -> dict[str, Any]:
        state = self.random.choice(["new", "paid", "sent"])
        return {"shard": self.name, "id": i, "state": state, "amount": float(self.random.randrange(3))}

    def _write(self, op: str, before: Any, after: Any) -> None:
        at = {"ts_ms": self.clock, "lsn": 100 + 7 * len(self.log)}
        self.log.append({"op": op, "before": before, "after": after, "source": at})


def received(databases: list[Database], luck: random.Random) -> list[dict[str, Any]]:
    """The logs interleaved at random, with repeats and disorder."""
    logs, mixed = [list(d.log) for d in databases], []
    while any(logs):
        mixed.append(luck.choice([log for log in logs if log]).pop(0))
    mixed += luck.choices(mixed, k=len(mixed) // 3)
    order = sorted(range(len(mixed)), key=lambda i: i + luck.randrange(25))
    return [mixed[i] for i in order]


def contents(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((r["shard"], r["id"], r["state"], r["amount"]) for r in rows)


@pytest.mark.parametrize("seed", range(6))
def test_what_the_log_says_in_the_end_is_what_the_databases_hold(seed: int) -> None:
    luck = random.Random(seed)
    databases = [Database(name, luck) for name in ("eu", "us", "asia")]
    for database in databases:
        database.work(60)
    messages = received(databases, luck)
    orders = rc.debezium("orders", SCHEMA, key=["shard", "id"])
    session = rc.session(orders.stream)
    while messages:
        size = luck.choice([1, 10, 60])
        part, messages = messages[:size], messages[size:]
        session.push("orders", orders.rows(part))
        if luck.random() < 0.2:
            state, session = session.snapshot(), rc.session(orders.stream)
            session.restore(state)
    now = [event.payload for event in session.history().to_events() if event.ve == rc.FOREVER]
    assert contents(now) == contents(row for d in databases for row in d.rows.values())
    for database in databases:
        check_past(database, session.history())


def check_past(database: Database, history: rc.History) -> None:
    """At any time a key has the row of its last change whose time, or one before it, has come."""
    changes: dict[int, list[tuple[int, Any]]] = {}
    for entry in database.log:
        before, after, time = entry["before"], entry["after"], entry["source"]["ts_ms"]
        if before is not None and (after is None or after["id"] != before["id"]):
            changes.setdefault(before["id"], []).append((time, None))
        if after is not None:
            changes.setdefault(after["id"], []).append((time, after))
    for time in range(995, 1_060, 4):
        expected = []
        for entries in changes.values():
            latest, row = 0, None
            for at, after in entries:
                latest = max(latest, at)
                row = after if latest <= time else row
            expected += [row] if row is not None else []
        there = 1_000 * time
        shown = [
            e.payload for e in history.to_events() if e.vs <= there and (e.ve == rc.FOREVER or there < e.ve)
        ]
        assert contents(r for r in shown if r["shard"] == database.name) == contents(expected)


def test_the_log_rules_where_the_clock_goes_back() -> None:
    orders = rc.debezium("orders", {"id": "int64", "state": "string"}, key="id")
    log = [
        {
            "payload": {
                "op": "r",
                "before": None,
                "after": {"id": 1, "state": "a"},
                "source": {"lsn": 1, "ts_ms": 10},
            }
        },
        {
            "payload": {
                "op": "u",
                "before": None,
                "after": {"id": 1, "state": "b"},
                "source": {"lsn": 2, "ts_ms": 9},
            }
        },
        {"payload": None},
    ]
    (event,) = rc.run(orders.stream, {"orders": orders.rows(log)}).history().to_events()
    assert (event.payload["state"], event.vs) == ("b", 10_000)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"op": "t", "before": None, "after": None}, "row 1: op 't' is not the change of a row"),
        ({"op": "d", "before": None, "after": None}, "op 'd' without 'before'"),
        ({"op": "c", "before": None, "after": {"id": 1}}, "no column state"),
    ],
)
def test_what_no_row_can_be_made_of_is_refused(message: dict[str, Any], reason: str) -> None:
    orders = rc.debezium("orders", {"id": "int64", "state": "string"}, key="id")
    with pytest.raises(FormatError, match=reason):
        orders.rows([{**message, "source": {"lsn": 1, "ts_ms": 1}}])


def test_a_change_feed_of_delta() -> None:
    """Commit 2 updates a row, 3 gives it another key, 4 overwrites the other row, 5 deletes."""
    orders = rc.delta_changes("orders", {"id": "int64", "state": "string"}, key="id")
    feed = [
        (1, "new", "insert", 1),
        (2, "new", "insert", 1),
        (1, "new", "update_preimage", 2),
        (1, "paid", "update_postimage", 2),
        (1, "paid", "update_preimage", 3),
        (7, "paid", "update_postimage", 3),
        (2, "sent", "insert", 4),
        (2, "new", "delete", 4),
        (7, "paid", "delete", 5),
    ]
    table = pa.table(
        {
            "id": [row[0] for row in feed],
            "state": [row[1] for row in feed],
            "_change_type": [row[2] for row in feed],
            "_commit_version": [row[3] for row in feed],
            "_commit_timestamp": pa.array([row[3] for row in feed], pa.timestamp("us", "UTC")),
        }
    )
    found = rc.run(orders.stream, {"orders": orders.rows(table)}).history()
    seen = [(e.payload["id"], e.payload["state"], int(e.vs)) for e in found.to_events()]
    assert sorted(seen) == [(1, "new", 1), (1, "paid", 2), (2, "new", 1), (2, "sent", 4), (7, "paid", 3)]
    assert [e.payload["state"] for e in found.to_events() if e.ve == rc.FOREVER] == ["sent"]
    with pytest.raises(FormatError, match="row 1: _change_type 'x' is not known"):
        orders.rows(table.slice(0, 1).set_column(2, "_change_type", pa.array(["x"])))


def test_tables_of_slowly_changing_dimensions_come_in_and_go_out() -> None:
    sites = rc.scd2("sites", {"site": "string", "tier": "int64"}, key="site")
    table = pa.table(
        {
            "site": ["CERN", "CERN", "FNAL"],
            "tier": [1, 0, 1],
            "valid_from": [3, 8, 5],
            "valid_to": pa.array([8, 9_999, None], pa.int64()),
            "is_current": [False, True, True],
        }
    )
    result = rc.run(sites.stream, {"sites": sites.rows(table)})
    out = rc.to_scd2(result, key="site")
    assert out.column_names == table.column_names
    assert (
        out.to_pylist() == table.set_column(3, "valid_to", pa.array([8, None, None], pa.int64())).to_pylist()
    )
    with pytest.raises(RecensionError, match="the payload has a column 'tier' already"):
        rc.to_scd2(result, key="site", current="tier")


def test_names_that_are_taken_are_refused() -> None:
    with pytest.raises(RecensionError, match="rename it"):
        rc.debezium("s", {"id": "int64", "log_time": "int64"}, key="id")
    with pytest.raises(RecensionError, match="rename it"):
        rc.scd2("s", {"id": "int64", "row_from": "int64"}, key="id")
