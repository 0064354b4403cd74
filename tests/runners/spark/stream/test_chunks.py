"""State in chunks: what changed is written, what is at hand is not read, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.stream.rehearsal import Memory, Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.errors import RecensionError
from recension.core.events import Element
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.chunks import HEAD, Head, load, load_since, read_head, save

ROWS = 120_000


@pytest.fixture(autouse=True)
def _no_engines_of_others() -> Iterator[None]:
    processor._parked.clear()
    yield
    processor._parked.clear()


class Counted(Memory):
    """A store that counts what passes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.puts, self.gets = 0, 0

    def put(self, name: str, value: bytes) -> None:
        self.puts += 1
        super().put(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        self.gets += 1
        return super().get(name, default)


def _events(rows: int, first: int, seed: int = 0) -> pa.Table:
    """Rows as operators keep them, in order of start, with texts of any length and some missing."""
    rng = np.random.default_rng(seed)
    words = np.array(["", "a", "some words", "a much longer text than the others", None], dtype=object)
    return pa.table(
        {
            "vs": np.sort(first + rng.integers(0, 10 * rows, rows)),
            "ve": rng.integers(10**9, 2 * 10**9, rows),
            "text": pa.array(words[rng.integers(0, 5, rows)], pa.string()),
        }
    )


def _stored(store: Memory, known: dict[str, pa.Table] | None = None) -> dict[str, pa.Table]:
    head = read_head(store)
    assert head is not None
    return load_since(store, head, known, 0) if known else load(store, head)


def _assert_same(found: dict[str, pa.Table], expected: dict[str, pa.Table]) -> None:
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert found[name].equals(table), name


TABLES = {
    "large": _events(ROWS, 0),
    "small": pa.table({"a": [1, None], "b": ["x", None]}),
    "empty": _events(ROWS, 0).slice(0, 0),
    "no numbers": pa.table({"text": ["some words"] * 40_000}),
    "one value": pa.table({"n": np.full(200_000, 7)}),
    "nested": pa.table({"l": pa.array([[i, None] for i in range(5000)], pa.list_(pa.int64()))}),
}


def test_what_was_stored_comes_back() -> None:
    store = Memory()
    save(store, TABLES, None, "me", 0)
    _assert_same(_stored(store), TABLES)
    _assert_same(_stored(store, TABLES), TABLES)


def test_the_same_again_writes_only_the_head() -> None:
    store = Counted()
    head, _ = save(store, TABLES, None, "me", 0)
    again = {name: pa.concat_tables([table.slice(0, 7), table.slice(7)]) for name, table in TABLES.items()}
    store.puts = 0
    later, written = save(store, again, head, "me", 1)
    assert written == 0
    assert store.puts == 1 + len(head.chunks()), "what the first version wrote is written again, once"
    store.puts = 0
    save(store, again, later, "me", 2)
    assert store.puts == 1


def test_few_changed_rows_change_few_chunks_while_the_state_moves_on() -> None:
    """Rows leave in front and come at the end; the size of a row varies, and must not move the cuts."""
    store, table, head = Counted(), _events(ROWS, 0), None
    for number in range(30):
        head, written = save(store, {"t": table}, head, "me", number)
        if number:
            fresh = len(head.last_written())
            assert fresh <= 5, f"micro-batch {number} wrote {fresh} of {len(store)} chunks"
            assert written < table.nbytes / 4
        table = pa.concat_tables([table.slice(400), _events(500, 10 * ROWS + 10**4 * number, number)])
    assert head is not None
    assert set(store) == head.names() | {HEAD}
    assert len(head.chunks()) > 8


def test_a_change_in_the_middle_changes_its_chunk() -> None:
    store, table = Counted(), _events(ROWS, 0)
    head, _ = save(store, {"t": table}, None, "me", 0)
    middle = ROWS // 2
    changed = pa.concat_tables([table.slice(0, middle), table.slice(middle + 1)])
    later, _ = save(store, {"t": changed}, head, "me", 1)
    assert len(later.last_written()) <= 3
    _assert_same(_stored(store), {"t": changed})


def test_a_stale_engine_reads_only_what_changed() -> None:
    store, table = Counted(), _events(ROWS, 0)
    old, _ = save(store, {"t": table}, None, "me", 0)
    newer = pa.concat_tables([table, _events(300, 20 * ROWS)])
    save(store, {"t": newer}, old, "me", 1)
    store.gets = 0
    _assert_same(_stored(store, {"t": table}), {"t": newer})
    assert store.gets <= 4
    store.gets = 0
    _assert_same(_stored(store), {"t": newer})
    assert store.gets > 6


def test_a_table_that_shrinks_leaves_nothing_behind() -> None:
    store = Memory()
    head: Head | None = None
    for number, rows in enumerate([ROWS, 10, 0]):
        head, _ = save(store, {"t": _events(ROWS, 0).slice(0, rows)}, head, "me", number)
        assert head is not None
        assert set(store) == head.names() | {HEAD}
    head, _ = save(store, {"t": _events(0, 0)}, head, "me", 3)
    assert set(store) == head.names() | {HEAD}
    assert sum(map(len, store.values())) < 3_000


def test_another_format_is_refused_whatever_it_holds() -> None:
    store = Memory()
    save(store, {}, None, "me", 0)
    store[HEAD] = json.dumps({"format": 99, "of": "a later version"}).encode()
    with pytest.raises(RecensionError, match="state has format 99, this version reads 3: start it with"):
        read_head(store)


def test_state_is_bounded_by_ctis() -> None:
    """Over many micro-batches: what is stored is as much as the last promise leaves open."""
    source = rc.source("s", {"k": "int64"})
    query = source.group_by("k").agg(n=rc.count()).group_by("n").agg(keys=rc.count())
    rehearsal, sizes = Rehearsal([query.plan], 2), []
    for number in range(120):
        start = number * 100
        rows: list[Element] = [rc.Insert({"k": k % 11}, start + k, start + k + 30) for k in range(100)]
        batch = from_elements([*rows, rc.Cti(start + 95)], source.schema)
        rehearsal.turn({"s": [batch]})
        sizes.append(sum(len(value) for store in rehearsal.stores.values() for value in store.values()))
    assert max(sizes[60:]) <= 1.5 * max(sizes[:60])
