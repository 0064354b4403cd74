"""Snapshots carry a checksum: they survive files, and damaged ones are refused in one sentence."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from tests.runners.damage import damaged

import recension as rc
from recension.core.events import Element
from recension.core.rowhash import checksum
from recension.runners.local import Session
from recension.runners.snapshot import SEAL, open_snapshot, seal_snapshot

SCHEMA = {"k": "string", "v": "int64", "f": "float64"}
s, t = (rc.source(name, SCHEMA) for name in "st")


def row(k: str | None, v: int | None, f: float | None = 0.5) -> dict[str, object]:
    return {"k": k, "v": v, "f": f}


FEED: list[Element] = [
    rc.Insert(row("a", 1), 0, 10),
    rc.Insert(row("b", None, float("nan")), 2),
    rc.Insert(row(None, 7, -0.0), 3, 30),
    rc.Retract(row("a", 1), 0, 10, 7),
    rc.Cti(4),
]
LATER: list[Element] = [
    rc.Insert(row("a", 2), 5, 20),
    rc.Retract(row("b", None, float("nan")), 2, rc.FOREVER, 9),
    rc.Retract(row(None, 7, -0.0), 3, 30, 12),
    rc.Cti(rc.FOREVER),
]


def started() -> Session:
    """Operators of many kinds over two sources."""
    summed = s.group_by("k").agg(n=rc.count(), m=rc.sum("v"), d=rc.stddev("f"), speculate="eager")
    return rc.session(
        sums=summed,
        joined=s.join(t, on="k", how="left").distinct(),
        windows=s.hopping(6, 3).agg(c=rc.collect("v"), x=rc.max("f")),
        merged=rc.merge(s.finalize(5), s.align(3)),
        applied=s.group_by("k").apply(lambda g: g.count_window(2).agg(n=rc.first("v"))),
    )


def fed() -> Session:
    session = started()
    session.push("s", FEED)
    session.push("t", FEED[:2])
    for name in QUERIES:
        session.read(name)
    return session


QUERIES = ("sums", "joined", "windows", "merged", "applied")


def rest(session: Session) -> list[str]:
    """What a session gives from here on, and what is true in the end."""
    session.push("t", [*LATER[:2], rc.Cti(rc.FOREVER)])
    session.push("s", LATER)
    told = [str(e) for name in QUERIES for e in session.read(name).elements()]
    return told + [str(e) for name in QUERIES for e in session.history(name).to_events()]


def _ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return pa.ipc.open_file(sink.getvalue()).read_all()


def _parquet(table: pa.Table) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2)
    return pq.read_table(io.BytesIO(sink.getvalue()))


def _feather(table: pa.Table) -> pa.Table:
    sink = io.BytesIO()
    pa.feather.write_feather(table, sink, chunksize=3)
    return pa.feather.read_table(io.BytesIO(sink.getvalue()))


def _sliced(table: pa.Table) -> pa.Table:
    """In the middle of others, with null bitmaps where there were none."""
    if not table.num_rows:
        return table
    return (
        pa.concat_tables([table.slice(0, 1), table, table.slice(0, 1)])
        .combine_chunks()
        .slice(1, table.num_rows)
    )


WAYS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "ipc": _ipc,
    "parquet": _parquet,
    "feather": _feather,
    "sliced": _sliced,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_snapshot_survives_a_file(way: Callable[[pa.Table], pa.Table]) -> None:
    session = fed()
    chunks, other = session.snapshot(), started()
    other.restore({name: way(table) for name, table in chunks.items()})
    assert rest(other) == rest(session)


COLUMNS = [
    pa.array([1, None, 3]),
    pa.array([0.0, None, 0.5], pa.float32()),
    pa.array(["a", None, "ccccccccccccccccc"]),
    pa.array([[0.0, 1.0], None, []], pa.list_(pa.float64())),
    pa.array(
        [{"x": 0.0, "y": None}, None, {"x": None, "y": [1.0]}],
        pa.struct([("x", pa.float64()), ("y", pa.list_(pa.float64()))]),
    ),
    pa.array(["a", None, "b"]).dictionary_encode(),
    pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    pa.array([True, None, False]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_checksum_notices_any_change_and_no_layout(column: pa.Array) -> None:
    table = pa.table({"c": column, "n": [1, 2, 3]})
    for way in WAYS.values():
        assert checksum(way(table)) == checksum(table)
    others = [
        table.rename_columns(["d", "n"]),
        table.select(["n", "c"]),
        table.slice(0, 2),
        table.take([1, 0, 2]),
        table.set_column(0, "c", column.take(pa.array([0, 0, 2]))),
        pa.concat_tables([table, table]),
        table.slice(0, 0),
        table.set_column(1, "n", pa.array([1, 2, 3], pa.int32())),
    ]
    assert len({checksum(other) for other in [table, *others]}) == len(others) + 1


def test_a_checksum_counts_bits() -> None:
    tables = [pa.table({"f": [[x]], "g": [y]}) for x in (0.0, -0.0) for y in (0.0, -0.0)]
    assert len({checksum(table) for table in tables}) == 4


def fuzz(rounds: int, seed: int) -> None:
    """Every damaged snapshot is refused with one of our errors, and the session is as it was."""
    dice, session = random.Random(seed), fed()
    chunks, other = session.snapshot(), started()
    for number in range(rounds):
        with pytest.raises(rc.RecensionError) as caught:
            other.restore(damaged(chunks, dice))
        assert "\n" not in str(caught.value), number
        assert type(caught.value) is rc.RecensionError
    other.restore(chunks)
    assert rest(other) == rest(session)


@pytest.mark.slow
def test_damaged_snapshots_are_refused() -> None:
    fuzz(30, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_many_damaged_snapshots_are_refused(seed: int) -> None:
    fuzz(400, seed)


def test_damage_to_an_unfinished_session_leaves_it_as_it_is() -> None:
    session, other = fed(), fed()
    chunks = session.snapshot()
    del chunks["operators/plan"]
    with pytest.raises(rc.RecensionError, match="is damaged: the table 'operators/plan' is missing"):
        session.restore(chunks)
    assert rest(session) == rest(other)


def test_snapshots_without_a_seal_or_of_another_format_are_refused() -> None:
    chunks = fed().snapshot()
    with pytest.raises(rc.RecensionError, match="the snapshot has no seal"):
        started().restore(open_snapshot(chunks))
    seal = chunks[SEAL]
    newer = seal.set_column(0, "format", pa.array([99] * seal.num_rows))
    with pytest.raises(rc.RecensionError, match="the snapshot has format 99, this version reads 1"):
        started().restore({**chunks, SEAL: newer})
    with pytest.raises(rc.RecensionError, match="a snapshot is a mapping"):
        started().restore([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: rc.session(a=s), "it has the query 'q' with k string.*, this session the query 'a'"),
        (lambda: rc.session(q=s.select("k")), "it has the query 'q' with k string, v int64"),
        (lambda: rc.session(q=s.union(t)), "it has nothing more|this session the source 't'"),
        (lambda: rc.session(q=s.distinct()), "another query"),
    ],
)
def test_a_snapshot_of_another_session_is_refused(other: Callable[[], Session], reason: str) -> None:
    session = rc.session(q=s)
    session.push("s", FEED)
    with pytest.raises(rc.RecensionError, match=f"the snapshot is of another query.*{reason}|{reason}"):
        other().restore(session.snapshot())


def test_a_restore_that_goes_wrong_half_way_leaves_no_session_to_go_on_with() -> None:
    """A sealed snapshot that this code cannot read: nobody knows how far it came."""
    session = fed()
    chunks = open_snapshot(session.snapshot())
    chunks["sources/s/progress"] = pa.table({"x": [1]})
    with pytest.raises(rc.RecensionError, match="the snapshot could not be restored: KeyError"):
        session.restore(seal_snapshot(chunks))
    with pytest.raises(rc.RecensionError, match="the session failed in restore"):
        session.read("sums")
    session.restore(fed().snapshot())
    assert rest(session) == rest(fed())
