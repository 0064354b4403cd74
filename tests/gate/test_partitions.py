"""Sub-streams: each row by the CTI of its own partition, and one CTI for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import EventBatch, cti, from_elements
from recension.core.change_log import tables_of
from recension.core.errors import FormatError, RecensionError, StreamError
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.placement import PartitionColumns, Placement, join_placements, name_of
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import LATE, Checker, Policy
from recension.gate.partition_order import UNORDERED
from recension.gate.partition_rows import summarize
from recension.gate.partition_state import Heard
from recension.gate.partitions import Partitions
from recension.gate.repeats import REPEATED
from recension.testing.strategies import SCHEMA as ANY
from recension.testing.strategies import unruly_streams

SCHEMA = pa.schema([("v", pa.int64())])
Row = tuple[str, Element]


def insert(vs: int, ve: int = FOREVER, v: int = 1) -> Insert:
    return Insert({"v": v}, vs, ve)


class Source:
    """Partitions with their checker, as a gate has them."""

    def __init__(self, policy: Policy = "raise", **options: Any) -> None:
        self.partitions, self.checker, self._policy = Partitions(**options), Checker(policy), policy

    def push(
        self, rows: list[Row], now: int = 0, schema: pa.Schema = SCHEMA, **columns: Any
    ) -> list[Element]:
        """What is valid of some rows, and the source's CTI if it has advanced."""
        named = Placement.of_names([name for name, _ in rows])
        runs = columns.pop("runs", None)
        placement = Placement(
            named.names,
            named.code,
            tuple(np.array(column) for column in columns.get("order", ())),
            tuple(np.array(column) for column in columns.get("sequence", ())),
            *(() if runs is None else (Placement.of_names(runs).names, Placement.of_names(runs).code)),
        )
        return self.take(from_elements([element for _, element in rows], schema), placement, now)

    def take(self, batch: EventBatch, placement: Placement, now: int = 0, **options: Any) -> list[Element]:
        strict = self._policy == "raise"
        judged = self.partitions.judge(batch, placement, now, is_strict=strict, **options)
        before = self.partitions.cti
        valid = self.checker.check(judged.batch, origin=judged.origin, placed=judged.placed)
        self.partitions.admit(judged)
        self.checker.advance(self.partitions.cti)
        found = valid.to_elements()
        return found + ([Cti(self.partitions.cti)] if self.partitions.cti > before else [])


def test_the_cti_of_the_source_is_the_least() -> None:
    source = Source()
    # Without partitions the first CTI would make the insert at 3 late.
    assert source.push([("0", insert(12)), ("0", Cti(10)), ("1", insert(3)), ("1", Cti(5))])[-1] == Cti(5)
    assert source.push([("1", Cti(20))]) == [Cti(10)]
    assert source.push([("0", insert(10))]) == [insert(10)]
    assert source.partitions.held_back_by() == "0"
    assert [(p.name, p.cti, p.latest_start) for p in source.partitions.progress()] == [
        ("0", 10, 12),
        ("1", 20, 3),
    ]


def test_an_element_is_late_by_its_own_partition() -> None:
    source = Source()
    source.push([("0", Cti(10)), ("1", Cti(5))])
    assert source.push([("1", insert(7))]) == [insert(7)]
    with pytest.raises(StreamError, match=r"row 2: partition 0: breaks an earlier cti: insert \[7, ∞\)"):
        source.push([("1", insert(6)), ("0", insert(7))])
    dropping = Source("drop")
    dropping.push([("0", Cti(10)), ("1", Cti(5))])
    assert dropping.push([("0", insert(7)), ("1", insert(6))]) == [insert(6)]
    assert dropping.checker.by_partition[0][0] == LATE
    assert dropping.checker.by_partition[0][1].tolist() == [1, 0]


def test_a_new_partition_joins_at_the_cti_of_the_source() -> None:
    source = Source()
    source.push([("0", Cti(10))])
    with pytest.raises(StreamError, match="partition 1: breaks an earlier cti"):
        source.push([("1", insert(9))])
    assert source.push([("1", insert(10)), ("0", Cti(30))]) == [insert(10)]
    assert source.partitions.cti == 10
    assert source.push([("1", Cti(25))]) == [Cti(25)]


def test_a_retraction_finds_its_event_in_its_own_partition() -> None:
    source = Source()
    source.push([("0", insert(1)), ("1", insert(1))])
    source.push([("0", Retract({"v": 1}, 1, FOREVER, 5))])
    with pytest.raises(
        StreamError, match="partition 0: retracts an event that is not in it, but in partition 1: retract"
    ):
        source.push([("0", Retract({"v": 1}, 1, FOREVER, 6))])
    with pytest.raises(StreamError, match=r"partition 2: .* not in it, but in partition 3"):
        source.push([("3", insert(2)), ("2", Retract({"v": 1}, 2, FOREVER, 6))])
    with pytest.raises(StreamError, match="partition 2: retracts an event that is not there"):
        source.push([("2", Retract({"v": 9}, 2, FOREVER, 6))])
    assert source.partitions.names == ("0", "1")


def test_rows_are_put_in_order_within_their_partitions() -> None:
    rows: list[Row] = [("0", Cti(9)), ("1", insert(4)), ("0", insert(3)), ("1", insert(2))]
    given_back = Source().push(rows, order=[[2, 7, 1, 6]])
    assert given_back == [insert(3), insert(2), insert(4)]


def test_order_rises_across_pushes() -> None:
    source = Source()
    source.push([("0", insert(1)), ("1", insert(1))], order=[[5, 9]])
    source.push([("0", insert(1))], order=[[6]])
    with pytest.raises(StreamError, match=r"row 2: partition 0: does not come after .*: order 6 twice"):
        source.push([("1", insert(1)), ("0", insert(1))], order=[[10, 6]])
    with pytest.raises(StreamError, match="order 7 twice"):
        source.push([("0", insert(1)), ("0", insert(2))], order=[[7, 7]])
    source.push([("1", insert(1))], order=[[10]])
    dropping = Source("drop")
    dropping.push([("0", insert(1))], order=[[5]])
    assert dropping.push([("0", insert(2)), ("0", insert(3)), ("0", insert(4))], order=[[5, 6, 6]]) == [
        insert(3)
    ]
    assert dropping.partitions.progress()[0].dropped == {UNORDERED: 2}


def test_several_columns_order() -> None:
    source = Source()
    source.push([("0", insert(1))], order=[[1], [9]])
    source.push([("0", insert(1))], order=[[2], [0]])
    with pytest.raises(StreamError, match="order 2/0 twice"):
        source.push([("0", insert(1))], order=[[2], [0]])


def test_what_is_idle_does_not_count() -> None:
    source = Source(idle=100)
    source.push([("0", Cti(10)), ("1", Cti(5))], now=1_000)
    source.push([("0", Cti(50))], now=1_090)
    assert source.partitions.cti == 5
    assert source.partitions.tick(1_099) == 5
    assert source.partitions.tick(1_100) == 50
    assert [p.is_idle for p in source.partitions.progress()] == [False, True]
    # It wakes: what it has before the source's CTI is late, and it counts again.
    with pytest.raises(StreamError, match="partition 1: breaks an earlier cti"):
        source.push([("1", insert(40))], now=1_101)
    assert source.push([("1", insert(50)), ("0", Cti(60))], now=1_101) == [insert(50)]
    assert source.partitions.cti == 50
    # Once all are idle the furthest decides.
    assert source.partitions.tick(9_000) == 60
    # A clock that is put back moves nothing.
    assert source.partitions.tick(10) == 60


def test_what_has_ended_holds_nobody_back() -> None:
    source = Source(idle=100)
    source.push([("0", Cti(FOREVER)), ("1", Cti(5))])
    assert source.partitions.cti == 5
    assert source.partitions.tick(1_000) == 5, "an idle partition is not one that has ended"
    assert source.push([("1", Cti(FOREVER))], now=1_000) == [Cti(FOREVER)]


def test_so_many_must_speak_first() -> None:
    source = Source(expected=2, idle=100)
    source.partitions.begin(0)
    source.push([("0", Cti(10))], now=99)
    assert source.partitions.cti == BEGINNING
    assert source.partitions.held_back_by() == "1 more to speak"
    assert source.partitions.tick(100) == 10
    other = Source(expected=2)
    other.push([("0", Cti(FOREVER))], now=5)
    assert other.partitions.cti == BEGINNING
    assert other.push([("1", insert(3)), ("1", Cti(7))]) == [insert(3), Cti(7)]


def test_a_promise_for_all_counts_for_those_to_come() -> None:
    source = Source(expected=3)
    nothing, nowhere = from_elements([], SCHEMA), Placement((), np.zeros(0, np.int64))
    assert source.take(nothing, nowhere, promise=20) == [Cti(20)]
    with pytest.raises(StreamError, match="partition 0: breaks an earlier cti"):
        source.push([("0", insert(19))])
    assert source.push([("0", Cti(30))]) == []
    assert source.partitions.cti_of("0") == 30
    assert source.take(nothing, nowhere, promise=FOREVER) == [Cti(FOREVER)]


def test_with_a_delay_the_least_of_the_latest_starts_decides() -> None:
    source = Source(delay=3)
    assert source.push([("0", insert(100)), ("1", insert(20)), ("1", insert(9))])[-1] == Cti(17)
    assert source.push([("1", insert(60))])[-1] == Cti(57)


def test_repeats_are_skipped() -> None:
    source = Source()
    three: list[Row] = [("0", insert(1)), ("0", insert(2)), ("0", Cti(5))]
    source.push(three, sequence=[[0, 0, 0], [0, 1, 2]], runs=["a"] * 3)
    # The producer crashed and sends its batch again, with what had not been written.
    assert source.push([*three, ("0", insert(7))], sequence=[[0] * 4, [0, 1, 2, 3]], runs=["a"] * 4) == [
        insert(7)
    ]
    # Another run begins at 0 again.
    assert source.push([("0", insert(7))], sequence=[[0], [0]], runs=["b"]) == [insert(7)]
    # Another partition has sequences of its own.
    assert source.push([("1", insert(7))], sequence=[[0], [0]], runs=["a"]) == [insert(7)]
    # Within one push: twice the same, and one that was overtaken.
    again = source.push([("0", insert(7 + i)) for i in range(4)], sequence=[[1, 2, 2, 1]], runs=["c"] * 4)
    assert again == [insert(7), insert(8)]
    assert [p.dropped for p in source.partitions.progress()] == [{REPEATED: 5}, {}]


def test_a_repeat_is_skipped_before_order_is_judged() -> None:
    source = Source()
    source.push([("0", insert(1)), ("0", insert(2))], order=[[5, 6]], sequence=[[1, 2]])
    assert source.push([("0", insert(2)), ("0", insert(3))], order=[[6, 7]], sequence=[[2, 3]]) == [insert(3)]


def test_columns_name_the_places() -> None:
    table = pa.table({"r": ["eu", "us", "eu"], "p": pa.array([1, 1, 2], pa.int32()), "o": [3, 2, 1]})
    placement = PartitionColumns(("r", "p"), ("o",)).read(table)
    assert [placement.names[code] for code in placement.code] == ["eu/1", "us/1", "eu/2"]
    assert placement.order[0].tolist() == [3, 2, 1]
    assert name_of(("a/b", "c")) == "a\\/b/c" != name_of(("a", "b/c"))
    with pytest.raises(FormatError, match=r"f: row 5: p is null, the partition of the row"):
        PartitionColumns(("p",)).read(pa.table({"p": [1, None]}), "f", 4)
    with pytest.raises(FormatError, match=r"o is null, the order of the row"):
        PartitionColumns(("p",), ("o",)).read(pa.table({"p": [1], "o": pa.array([None], pa.int64())}))
    with pytest.raises(FormatError, match=r"no column part \(did you mean 'parts'\?\), .* as its partition"):
        PartitionColumns(("part",)).read(pa.table({"parts": [1]}))
    with pytest.raises(FormatError, match="column o is string; order is a whole number"):
        PartitionColumns(("p",), ("o",)).read(pa.table({"p": [1], "o": ["x"]}))
    with pytest.raises(FormatError, match="column p is double; a name is a text"):
        PartitionColumns(("p",)).read(pa.table({"p": [1.0]}))
    with pytest.raises(RecensionError, match=r"not 1\.5"):
        name_of(1.5)


def test_an_order_of_timestamps_is_in_one_unit() -> None:
    """A file may have seconds where an earlier one had nanoseconds."""
    kinds = [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.date32(), pa.date64()]
    day = pa.array([86_400_000_000_000], pa.timestamp("ns"))
    for kind in kinds:
        naive = day if not getattr(kind, "tz", None) else day.cast(pa.timestamp("ns", "UTC"))
        assert PartitionColumns((), ("o",)).read(pa.table({"o": naive.cast(kind)})).order[0] == [
            86_400 * 10**9
        ]
    far = pa.array([2**40], pa.timestamp("s"))
    with pytest.raises(FormatError, match="one of its numbers is too great"):
        PartitionColumns((), ("o",)).read(pa.table({"o": far}))


def test_rows_without_a_sequence_are_no_repeats() -> None:
    table = pa.table({"run": ["a", None, "a"], "n": pa.array([4, None, 4])})
    placement = PartitionColumns(run="run", sequence=("n",)).read(table)
    source = Source()
    batch = from_elements([insert(1), insert(2), insert(3)], SCHEMA)
    assert source.take(batch, placement) == [insert(1), insert(2)]


def test_a_shard_hears_of_partitions_whose_rows_went_elsewhere() -> None:
    shard = Source(delay=0)
    shard.push([("0", insert(5)), ("1", insert(9))], order=[[1, 1]])
    elsewhere = from_elements([insert(30), insert(40), insert(20)], SCHEMA)
    places = Placement(("2", "0"), np.array([0, 0, 1]), (np.array([8, 7, 3]),))
    mine = from_elements([insert(50)], SCHEMA)
    heard = pa.concat_tables(
        [
            summarize(elsewhere, places),
            summarize(mine, Placement(("1",), np.zeros(1, np.int64), (np.array([2]),))),
        ]
    )
    own = Placement(("1",), np.zeros(1, np.int64), (np.array([2]),))
    assert shard.take(mine, own, heard=Heard(heard)) == [insert(50), Cti(20)]
    assert {p.name: p.latest_start for p in shard.partitions.progress()} == {"0": 20, "1": 50, "2": 40}
    with pytest.raises(StreamError, match="order 8 twice"):
        shard.push([("2", insert(50))], order=[[8]])


def test_placements_join() -> None:
    one = Placement(("a", "b"), np.array([0, 1]), (np.array([1, 2]),))
    two = Placement(("b", "c"), np.array([0, 1]), (np.array([3, 4]),))
    both = join_placements([one, two])
    assert [both.names[code] for code in both.code] == ["a", "b", "b", "c"]
    assert both.order[0].tolist() == [1, 2, 3, 4]


@given(st.data(), st.sampled_from(["drop", "adjust"]))
def test_each_partition_is_judged_as_a_stream_of_its_own(data: st.DataObject, policy: Policy) -> None:
    """As a checker for each, which hears the source's CTI before every push."""
    streams = {name: data.draw(unruly_streams(ANY)) for name in ("0", "1", "2")}
    source, alone = Source(policy), {name: Checker(policy) for name in streams}
    reached = dict.fromkeys(streams, BEGINNING)
    while any(streams.values()):
        push: list[Row] = []
        for _ in range(data.draw(st.integers(1, 6))):
            name = data.draw(st.sampled_from([name for name, left in streams.items() if left] or ["0"]))
            if streams[name]:
                push.append((name, streams[name].pop(0)))
        least = source.partitions.cti
        found = source.push(push, schema=ANY)
        expected = []
        for name, checker in alone.items():
            if any(own == name for own, _ in push):
                reached.setdefault(name, least)
                checker.check(cti(least, ANY))
                own = [element for of, element in push if of == name]
                expected += checker.check(from_elements(own, ANY)).to_elements()
                reached[name] = max(
                    reached[name], least, *(e.t for e in own if isinstance(e, Cti)), BEGINNING
                )
        known = set(source.partitions.names)
        assert source.partitions.cti == max(least, min(reached[name] for name in known))
        assert sorted(map(str, (e for e in found if not isinstance(e, Cti)))) == sorted(
            map(str, (e for e in expected if not isinstance(e, Cti)))
        )
        if data.draw(st.booleans()):
            fresh = Source(policy)
            fresh.partitions.restore(source.partitions.snapshot())
            fresh.checker.restore(tables_of(source.checker.snapshot()))
            source = fresh
