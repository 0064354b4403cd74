"""Change data capture judged by a small database: what a log says in the end is what the database holds."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import FormatError, RecensionError, StreamError

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


def message(op: str, before: Any, after: Any, lsn: Any, ms: int = 1) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": ms}}


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("form", [lambda m: m, json.dumps, lambda m: json.dumps(m).encode()])
def test_tombstones_say_nothing_and_messages_may_leave_out_what_is_null(form: Any, wraps: bool) -> None:
    orders = rc.debezium("orders", {"id": "int64", "state": "string"}, key="id")
    row = {"id": 1, "state": "new"}
    created = {k: v for k, v in message("c", None, row, 1).items() if k != "before"}
    deleted = {k: v for k, v in message("d", row, None, 2, 5).items() if k != "after"}
    log = [None, created, deleted, None]
    sent = [{"payload": one} if wraps else one for one in log]
    for data in (sent, [None, *map(form, sent)]):
        (event,) = rc.run(orders.stream, {"orders": orders.rows(data)}).history().to_events()
        assert (event.payload, event.vs, event.ve) == (row, 1_000, 5_000)
    (event,) = rc.run(orders.stream, {"orders": orders.rows([form(created)])}).history().to_events()
    assert event.ve == rc.FOREVER


def test_a_row_of_a_log_does_not_come_back_after_its_delete() -> None:
    orders = rc.debezium("orders", {"id": "int64", "state": "string"}, key="id", on_violation="drop")
    session, row = rc.session(orders.stream), {"id": 1, "state": "new"}
    session.push("orders", orders.rows([message("c", None, row, 3, 1), message("d", row, None, 5, 5)]))
    session.advance("orders", "1970-01-01T00:00:00.010Z")
    session.push("orders", orders.rows([message("u", None, row | {"state": "paid"}, 4, 12)]))
    assert [(e.vs, e.ve) for e in session.history().to_events()] == [(1_000, 5_000)]


def test_an_empty_poll_is_an_empty_table() -> None:
    schema = {"id": "int64", "state": "string"}
    log = [rc.debezium("s", schema, key="id"), rc.delta_changes("s", schema, key="id")]
    table = rc.scd2("s", schema, key="id", version="seq")
    row = {"id": 1, "state": "new"}
    some = [
        [message("c", None, row, 1)],
        [row | {"_change_type": "insert", "_commit_version": 1, "_commit_timestamp": datetime.now(UTC)}],
        [row | {"valid_from": datetime.now(UTC), "valid_to": None, "is_current": True, "seq": 1}],
    ]
    for feed, data in zip([*log, table], some, strict=True):
        session = rc.session(feed.stream)
        for given in ([], data, [], pa.table({}), data):
            session.push("s", feed.rows(given))
        assert feed.rows([]).column_names == feed.rows(data).column_names
        assert [e.payload for e in session.history().to_events()] == [row]
    for feed in log:
        assert feed.rows([]).schema == feed.rows(some[log.index(feed)]).schema
    assert log[0].rows([None]).num_rows == log[0].rows([{"payload": None}]).num_rows == 0


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([message("c", None, {"id": 1, "state": "a"}, 1), "{"], "s: row 2: a message that is no JSON"),
        ([message("c", None, {"id": 1, "state": "a"}, 1), 3], "s: row 2: 3 is no message"),
        ([{}], "s: row 1: {} is no message"),
        ([message("c", None, {"id": 1, "state": "a"}, "0/16")], r"row 1: source.lsn '0/16' .* with version="),
        (
            [message("c", None, {"id": 1, "state": "a"}, 1), message("c", None, 7, 1)],
            "s: row 2: column after",
        ),
        ([message("c", None, {"id": 1, "state": "a"}, 1, 2**62)], "source.ts_ms is more than a time"),
    ],
)
def test_messages_that_cannot_be_read_are_refused_in_one_line(messages: list[Any], reason: str) -> None:
    orders = rc.debezium("s", {"id": "int64", "state": "string"}, key="id")
    with pytest.raises(FormatError, match=reason) as caught:
        orders.rows(messages)
    assert "\n" not in str(caught.value)


def test_a_change_without_a_type_is_refused() -> None:
    orders = rc.delta_changes("s", {"id": "int64"}, key="id")
    row = {"id": 1, "_change_type": None, "_commit_version": 1, "_commit_timestamp": datetime.now(UTC)}
    with pytest.raises(FormatError, match="s: row 1: _change_type None is not known"):
        orders.rows([row])


def test_rows_of_a_dimension_without_duration_hold_nothing() -> None:
    sites = rc.scd2("sites", {"site": "string", "tier": "int64"}, key="site")
    first = {"site": "CERN", "tier": 1, "valid_from": 3, "valid_to": 3, "is_current": False}
    then = {"site": "CERN", "tier": 0, "valid_from": 4, "valid_to": None, "is_current": True}
    (event,) = rc.run(sites.stream, {"sites": sites.rows([first, then])}).history().to_events()
    assert (event.payload["tier"], event.vs) == (0, 4)
    with pytest.raises(
        StreamError, match=r"sites: an event that ends .*: site 'CERN', valid_from 3, until 1;"
    ):
        rc.run(sites.stream, {"sites": sites.rows([first | {"valid_to": 1}])})


def test_what_is_no_history_is_no_dimension() -> None:
    with pytest.raises(RecensionError, match=r"to_scd2 takes a History.*, not a list"):
        rc.to_scd2([1], key="id")
    with pytest.raises(RecensionError, match="to_scd2 takes a history: no column _vs"):
        rc.to_scd2(pa.table({"id": [1]}), key="id")


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


def test_a_change_feed_without_a_key_closes_before_it_opens() -> None:
    """Within a commit, whatever the order of its rows; equal rows are a bag; pushes go on from each other."""
    feed = rc.delta_changes("s", {"v": "int64"})

    def change(kind: str, v: int, commit: int) -> dict[str, Any]:
        at = datetime(2024, 1, 1, 0, 0, commit, tzinfo=UTC)
        return {"_change_type": kind, "v": v, "_commit_version": commit, "_commit_timestamp": at}

    live = rc.session(feed.stream)
    live.push("s", feed.rows([]))
    live.push("s", feed.rows([change("insert", 1, 1), change("insert", 1, 1), change("insert", 2, 1)]))
    live.push("s", feed.rows([change("update_postimage", 3, 2), change("update_preimage", 2, 2)]))
    live.push("s", feed.rows([change("delete", 1, 3)]))
    rows = live.history().to_arrow().to_pylist()
    found = [(row["_vs"].second, row["_ve"] and row["_ve"].second, row["v"]) for row in rows]
    assert sorted(found, key=str) == [(1, 2, 2), (1, 3, 1), (1, None, 1), (2, None, 3)]
    with pytest.raises(FormatError, match="_change_type 'upsert' is not known"):
        feed.rows([change("upsert", 1, 4)])


@pytest.mark.parametrize("sizes", [[4], [1, 1, 1, 1], [2, 2], [3, 1]])
def test_each_delete_of_a_change_feed_without_a_key_ends_another_row(sizes: list[int]) -> None:
    """Of equal rows: inserts at 9 and 10, deletes at 12 and 14; a third has nothing to delete."""
    feed = rc.delta_changes("s", {"v": "int64"})
    log = [("insert", 9), ("insert", 10), ("delete", 12), ("delete", 14)]
    rows = [
        {
            "v": 1,
            "_change_type": kind,
            "_commit_version": at,
            "_commit_timestamp": datetime.fromtimestamp(at, UTC),
        }
        for kind, at in log
    ]
    live = rc.session(feed.stream)
    for size in sizes:
        live.push("s", feed.rows(rows[:size]))
        rows = rows[size:]
        state, live = live.snapshot(), rc.session(feed.stream)
        live.restore(state)
    found = live.history().to_arrow().to_pylist()
    assert sorted((row["_vs"].second, row["_ve"].second) for row in found) == [(9, 14), (10, 12)]
    again = {"v": 1, "_change_type": "delete", "_commit_version": 15}
    with pytest.raises(StreamError, match=r"s: row \d+: closes an event that is not open"):
        live.push("s", feed.rows([again | {"_commit_timestamp": datetime.fromtimestamp(15, UTC)}]))


def test_every_message_has_its_own_form() -> None:
    """Envelopes by themselves and beside their schema, in one batch, as a list, as text and as a table."""
    orders = rc.debezium("s", {"id": "int64", "state": "string"}, key="id")
    log = [message("c", None, {"id": i, "state": "new"}, i, i) for i in (1, 2, 3)]
    log += [message("d", {"id": 1, "state": "new"}, None, 4, 4), message("d", {"id": 2}, None, 5, 5)]
    for wrapped in ([1, 3], [0, 2, 4], [0], [4]):
        mixed: list[Any] = [{"schema": {}, "payload": m} if i in wrapped else m for i, m in enumerate(log)]
        mixed.insert(2, {"payload": None})
        tabular = pa.Table.from_pylist(
            [dict.fromkeys(("op", "before", "after", "source", "payload")) | m for m in mixed]
        )
        for data in (mixed, [json.dumps(m) for m in mixed], tabular):
            found = rc.run(orders.stream, {"s": orders.rows(data)}).history().to_events()
            assert sorted((e.payload["id"], e.vs, e.ve) for e in found) == [
                (1, 1_000, 4_000),
                (2, 2_000, 5_000),
                (3, 3_000, rc.FOREVER),
            ]


@pytest.mark.parametrize("makes", [list, pa.Table.from_pylist])
@pytest.mark.parametrize("bad", [{"id": 7}, message("x", None, {"id": 1, "state": "a"}, 2) | {"op": None}])
def test_a_message_that_says_no_change_is_refused_among_others(makes: Any, bad: dict[str, Any]) -> None:
    orders = rc.debezium("s", {"id": "int64", "state": "string"}, key="id")
    good = message("c", {"id": 1, "state": "a"}, {"id": 1, "state": "a"}, 1)
    if makes is not list and "op" not in bad:
        bad = {"payload": good | bad | {"op": None}}
    with pytest.raises(FormatError, match="row 2: a message without op is no change of a row"):
        orders.rows(makes([good | {"payload": None} if makes is not list else good, bad]))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_of_a_dimension_that_was_never_true_changes_nothing(order: Any, together: bool) -> None:
    sites = rc.scd2("sites", {"site": "string", "tier": "int64"}, key="site", deleted="gone")
    row = {"site": "CERN", "valid_from": 3, "gone": False}
    rows = [
        row | {"tier": 1, "valid_to": 8, "is_current": False},
        row | {"tier": 0, "valid_to": 3, "is_current": False},
    ]
    live, came = rc.session(sites.stream), [rows[at] for at in order]
    for part in [came] if together else [[one] for one in came]:
        live.push("sites", sites.rows(part))
    (event,) = live.history().to_events()
    assert (event.payload["tier"], event.vs, event.ve) == (1, 3, 8)
    live.push("sites", sites.rows([rows[1] | {"gone": True}]))
    assert not live.history().to_events()
