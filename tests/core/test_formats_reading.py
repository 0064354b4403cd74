"""What readers make of files: plain tables, text of all sorts, types asked for, policies, pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from recension.core.batch import EventBatch, concat, from_elements, inserts
from recension.core.errors import FormatError, RecensionError, StreamError
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.formats import write_stream
from recension.core.ticks import BEGINNING, FOREVER, instant
from recension.core.validity import LATE, STALE_CTI, UNKNOWN
from recension.gate.files import open_stream, read_history


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def elements(path: Path, **options: object) -> list[Element]:
    reader = open_stream(path, **options)  # type: ignore[arg-type]
    return [element for batch in reader for element in batch.to_elements()]


class TestPlainTables:
    def test_rows_are_inserts(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "_vs,_ve,k", "1,5,a", "2,,b")
        assert elements(path) == [Insert({"k": "a"}, 1, 5), Insert({"k": "b"}, 2)]
        assert open_stream(path).is_table

    def test_an_absent_end_is_forever(self, tmp_path: Path) -> None:
        assert elements(lines(tmp_path / "t.jsonl", {"_vs": 1, "k": "a"})) == [Insert({"k": "a"}, 1, FOREVER)]

    def test_own_columns_of_times(self, tmp_path: Path) -> None:
        table = pa.table({"from": [1, 2], "to": [5, None], "k": ["a", "b"]})
        pq.write_table(table, tmp_path / "t.parquet")
        found = elements(tmp_path / "t.parquet", start="from", end="to")
        assert found == [Insert({"k": "a"}, 1, 5), Insert({"k": "b"}, 2, FOREVER)]

    def test_a_start_alone_makes_points(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "ts,k", "1970-01-01T00:00:01Z,a", "1970-01-01 00:00:02Z,b")
        assert elements(path, start="ts") == [
            Insert({"k": "a"}, 1_000_000, 1_000_001),
            Insert({"k": "b"}, 2_000_000, 2_000_001),
        ]
        assert open_stream(path, start="ts").time_type == pa.timestamp("us", "UTC")

    def test_dates_are_times_too(self, tmp_path: Path) -> None:
        days = pa.array([19723, 19724], pa.date32())
        pq.write_table(pa.table({"day": days, "k": ["a", "b"]}), tmp_path / "t.parquet")
        reader = open_stream(tmp_path / "t.parquet", start="day")
        assert concat(list(reader)).vs.tolist() == [instant("2024-01-01"), instant("2024-01-02")]
        assert reader.time_type == pa.timestamp("us")

    def test_the_end_is_the_end(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "ts,k", f"{FOREVER},a")
        with pytest.raises(StreamError, match="row 1: an event that ends before it has begun"):
            elements(path, start="ts")


class TestText:
    @pytest.mark.parametrize(
        ("first", "second", "row", "reason"),
        [
            ("1970-01-01T00:00:01", 5, 2, "'5': ticks do not mix with timestamps without a zone"),
            (5, "1970-01-01T00:00:01Z", 2, "'1970-01-01T00:00:01Z': timestamps in UTC do not mix with ticks"),
            ("1970-01-01T00:00Z", "1970-01-02", 2, "'1970-01-02': timestamps without a zone do not mix"),
        ],
    )
    def test_times_of_two_kinds_do_not_mix(
        self, tmp_path: Path, first: str | int, second: str | int, row: int, reason: str
    ) -> None:
        rows = [{"_kind": "cti", "_vs": time} for time in (first, second)]
        cells = [f"cti,{time}" for time in (first, second)]
        for path in (
            lines(tmp_path / "s.jsonl", *rows),
            lines(tmp_path / "s.csv", "_kind,_vs", *cells),
        ):
            with pytest.raises(FormatError, match=f"row {row}: column _vs: {reason}"):
                elements(path)

    def test_a_start_and_an_end_are_of_one_kind(self, tmp_path: Path) -> None:
        cells = lines(tmp_path / "s.csv", "_vs,_ve,k", "1970-01-01T00:00:01,1970-01-01T01:00:05+01:00,1")
        with pytest.raises(FormatError, match=r"row 1: column _ve: .*in UTC do not mix"):
            elements(cells)
        columns = {"_vs": pa.array([1], pa.timestamp("us")), "_ve": pa.array([2], pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(columns), tmp_path / "s.parquet")
        with pytest.raises(FormatError, match=r"all timestamps of one kind, but _vs is .*, _ve is"):
            elements(tmp_path / "s.parquet")

    def test_times_without_a_timestamp_are_ticks_beside_timestamps(self, tmp_path: Path) -> None:
        ends = {"_vs": BEGINNING, "_ve": FOREVER}
        expected = [Insert({"k": 1}, BEGINNING), Insert({"k": 2}, 1_000_000, FOREVER - 1)]
        rows: list[dict[str, Any]] = [
            {**ends, "k": 1},
            {"_vs": "1970-01-01T00:00:01Z", "_ve": FOREVER - 1, "k": 2},
        ]
        for path in (
            lines(tmp_path / "s.jsonl", *rows),
            lines(tmp_path / "s.csv", "_vs,_ve,k", *(",".join(map(str, row.values())) for row in rows)),
        ):
            assert elements(path) == expected
            assert open_stream(path).time_type == pa.timestamp("us", "UTC")

    def test_a_column_is_what_all_its_rows_are(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recension.core.formats.json_lines._BLOCK", 64)
        monkeypatch.setattr("recension.core.formats.csv_files._BLOCK", 64)
        values = [None] * 8 + [1] * 8 + [2.5]
        rows = [{"_vs": i, "v": value} for i, value in enumerate(values)]
        for path in (
            lines(tmp_path / "t.jsonl", *rows),
            lines(
                tmp_path / "t.csv", "_vs,v", *(f"{i},{'' if v is None else v}" for i, v in enumerate(values))
            ),
        ):
            reader = open_stream(path)
            assert reader.schema == pa.schema([("v", pa.float64())])
            assert concat(list(reader)).payload.column("v").to_pylist() == values

    def test_texts_that_look_like_something_else(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.jsonl", {"_vs": 1, "d": "2024-01-01", "z": "007"})
        assert elements(path)[0].payload == {"d": "2024-01-01", "z": "007"}  # type: ignore[union-attr]
        path = lines(tmp_path / "t.csv", "_vs,zip,big,w", "1,007,18446744073709551615,x y")
        assert elements(path)[0].payload == {"zip": "007", "big": "18446744073709551615", "w": "x y"}  # type: ignore[union-attr]

    def test_big_integers_are_not_rounded(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.jsonl", {"_vs": 1, "v": 2**63}, {"_vs": 1, "v": 0.5})
        with pytest.raises(FormatError, match="row 1: column v: 9223372036854775808 is too large for int64"):
            open_stream(path)
        schema = pa.schema([("v", pa.uint64())])
        path = lines(tmp_path / "t.jsonl", {"_vs": 1, "v": 2**63})
        assert elements(path, schema=schema)[0].payload == {"v": 2**63}  # type: ignore[union-attr]

    def test_null_and_empty_are_two_things(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "_vs,s", '1,""', "2,")
        assert [e.payload["s"] for e in elements(path)] == ["", None]  # type: ignore[union-attr]

    def test_everything_quoted(self, tmp_path: Path) -> None:
        table = pa.table({"_kind": ["insert", "cti"], "_vs": ["1", "2"], "_ve": ["5", ""], "n": ["7", ""]})
        pcsv.write_csv(table, tmp_path / "s.csv", pcsv.WriteOptions(quoting_style="all_valid"))
        assert elements(tmp_path / "s.csv") == [Insert({"n": 7}, 1, 5), Cti(2)]

    def test_windows_line_ends_and_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbf_vs,s\r\n1,"a\r\nb"\r\n\r\n2,c\r\n')
        assert [e.payload["s"] for e in elements(tmp_path / "t.csv")] == ["a\r\nb", "c"]  # type: ignore[union-attr]

    def test_names_may_be_left_out_in_json(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recension.core.formats.json_lines._BLOCK", 40)
        rows = [
            {"_kind": "insert", "_vs": 1, "a": 1},
            {"_kind": "insert", "_vs": 1, "b": "x"},
            {"_kind": "retract", "_vs": 1, "_new_ve": 5, "a": 1},
            {"_kind": "external_cti", "_vs": 0, "_ve": 9, "_count": 3},
            {"_kind": "cti", "_vs": 6},
        ]
        path = lines(tmp_path / "s.jsonl", *rows)
        expected = [
            Insert({"a": 1, "b": None}, 1),
            Insert({"a": None, "b": "x"}, 1),
            Retract({"a": 1, "b": None}, 1, FOREVER, 5),
            ExternalCti(0, 9, 3),
            Cti(6),
        ]
        assert elements(path) == expected
        schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        assert elements(path, schema=schema) == expected


class TestDeclaredPayload:
    SCHEMA = pa.schema([("b", pa.float64()), ("a", pa.int16())])

    def test_columns_in_its_order_and_types(self, tmp_path: Path) -> None:
        table = pa.table({"_vs": [1], "a": [7], "b": [2], "c": ["not asked for"]})
        pq.write_table(table, tmp_path / "t.parquet")
        with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
            writer.write_table(table)
        lines(tmp_path / "t.csv", "_vs,a,b,c", "1,7,2,not asked for")
        lines(tmp_path / "t.jsonl", {"_vs": 1, "a": 7, "b": 2, "c": "not asked for"})
        for suffix in ("parquet", "arrow", "csv", "jsonl"):
            (batch,) = open_stream(tmp_path / f"t.{suffix}", schema=self.SCHEMA)
            assert batch.schema == self.SCHEMA
            assert batch.payload.to_pylist() == [{"b": 2.0, "a": 7}]

    def test_a_value_that_does_not_fit(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"_vs": [1, 2], "a": [7, 70_000], "b": [2.0, 2.0]}), tmp_path / "t.parquet")
        with pytest.raises(FormatError, match=r"t.parquet: row 2: column a: .*70000"):
            elements(tmp_path / "t.parquet", schema=self.SCHEMA)
        path = lines(tmp_path / "t.csv", "_vs,a,b", "1,7,2", "1,x,2")
        with pytest.raises(FormatError, match=r"t.csv: row 2: column a: .*'x'"):
            elements(path, schema=self.SCHEMA)

    def test_a_column_that_is_not_there(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "_vs,a", "1,7")
        with pytest.raises(FormatError, match=r"t.csv: no column b"):
            open_stream(path, schema=self.SCHEMA)

    @pytest.mark.parametrize("block", [30, 4 << 20])
    def test_a_column_that_no_row_of_json_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
    ) -> None:
        monkeypatch.setattr("recension.core.formats.json_lines._BLOCK", block)
        lines(tmp_path / "a.jsonl", {"_vs": 1, "a": 7, "b": 1})
        rows = [{"_vs": 1, "a": 7, "bb": {"b": "b"}}, {"_vs": 2, "a": 7, "c": '"b": \\ 1'}] * 5
        path = lines(tmp_path / "b.jsonl", *rows)
        for place in (path, tmp_path):
            with pytest.raises(
                FormatError, match=r"b\.jsonl: no column b \(did you mean 'bb'\?\); there are a, b"
            ):
                open_stream(place, schema=self.SCHEMA)
        late = {"_kind": "insert", "_vs": 1, "b": 1, "A": 7}
        path = lines(
            tmp_path / "b.jsonl", {"_kind": "cti", "_vs": 0}, {"_kind": "insert", "_vs": 1, "b": 1}, late
        )
        with pytest.raises(FormatError, match=r"b\.jsonl: no column a"):
            open_stream(path, schema=self.SCHEMA)

    def test_json_may_leave_out_a_column_of_nulls(self, tmp_path: Path) -> None:
        """Nothing in the file could be the column under another name."""
        path = lines(tmp_path / "t.jsonl", {"_vs": 1, "a": 7})
        assert elements(path, schema=self.SCHEMA) == [Insert({"b": None, "a": 7}, 1)]

    @pytest.mark.parametrize("last", ['"b": null', '"b" : 2', '"\\u0062": 2'])
    @pytest.mark.parametrize("block", [30, 4 << 20])
    def test_a_column_that_one_row_of_json_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, last: str
    ) -> None:
        monkeypatch.setattr("recension.core.formats.json_lines._BLOCK", block)
        rows = [{"_vs": 1, "a": 7}] * 5
        path = lines(tmp_path / "t.jsonl", *rows, f'{{"_vs": 1, {last}}}')
        values = concat(list(open_stream(path, schema=self.SCHEMA))).payload.column("b").to_pylist()
        assert values == [None] * 5 + [None if "null" in last else 2.0]

    @pytest.mark.parametrize("block", [30, 4 << 20])
    def test_json_without_payload_need_not_name_columns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
    ) -> None:
        monkeypatch.setattr("recension.core.formats.json_lines._BLOCK", block)
        assert elements(lines(tmp_path / "t.jsonl", ""), schema=self.SCHEMA) == []
        rows = [{"_kind": "external_cti", "_vs": 0, "_ve": 9, "_count": 3}, {"_kind": "cti", "_vs": 6}]
        expected = [ExternalCti(0, 9, 3), Cti(6)]
        assert elements(lines(tmp_path / "t.jsonl", *rows), schema=self.SCHEMA) == expected

    def test_reserved_names(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "t.csv", "_vs,a", "1,7")
        with pytest.raises(FormatError, match="payload column _vs: the name is reserved"):
            open_stream(path, schema=pa.schema([("_vs", pa.int64())]))


class TestPolicies:
    ROWS = (
        {"_kind": "insert", "_vs": 1, "_ve": 9, "k": "a"},
        {"_kind": "upsert", "_vs": 1, "_ve": 9, "k": "b"},
        {"_kind": "cti", "_vs": 5},
        {"_kind": "insert", "_vs": 3, "_ve": 8, "k": "c"},
        {"_kind": "insert", "_ve": 8, "k": "d"},
        {"_kind": "retract", "_vs": 6, "_ve": 7, "_new_ve": 8, "k": "e"},
        {"_kind": "cti", "_vs": 4},
        {"_kind": "close", "_ve": 7, "k": "f"},
    )

    def test_drop(self, tmp_path: Path) -> None:
        reader = open_stream(lines(tmp_path / "s.jsonl", *self.ROWS), on_violation="drop", batch_size=2)
        found = [element for batch in reader for element in batch.to_elements()]
        assert found == [Insert({"k": "a"}, 1, 9), Cti(5)]
        assert +reader.counts == {
            "unknown kind": 1,
            "no start": 1,
            LATE: 1,
            UNKNOWN: 1,
            STALE_CTI: 1,
            "closes an event that is not open, or whose end is final": 1,
        }
        assert {reason: batch.to_elements()[0].payload["k"] for reason, batch in reader.dropped} == {  # type: ignore[union-attr]
            LATE: "c",
            UNKNOWN: "e",
            "closes an event that is not open, or whose end is final": "f",
        }
        assert {reason: rows.column("k").to_pylist() for reason, rows in reader.unreadable} == {
            "unknown kind": ["b"],
            "no start": ["d"],
        }

    def test_adjust(self, tmp_path: Path) -> None:
        reader = open_stream(lines(tmp_path / "s.jsonl", *self.ROWS), on_violation="adjust")
        found = [element for batch in reader for element in batch.to_elements()]
        assert found == [Insert({"k": "a"}, 1, 9), Cti(5), Insert({"k": "c"}, 5, 8)]

    def test_the_counts_are_those_of_one_reading(self, tmp_path: Path) -> None:
        reader = open_stream(lines(tmp_path / "s.jsonl", *self.ROWS), on_violation="drop")
        assert list(reader)
        first = reader.counts
        assert list(reader)
        assert reader.counts == first

    def test_orphans_may_be_left_to_others(self, tmp_path: Path) -> None:
        path = lines(tmp_path / "s.jsonl", self.ROWS[5])
        assert elements(path, check_orphans=False) == [Retract({"k": "e"}, 6, 7, 8)]

    def test_a_wrong_policy(self, tmp_path: Path) -> None:
        with pytest.raises(RecensionError, match="on_violation is 'raise', 'drop' or 'adjust', not 'ignore'"):
            open_stream(lines(tmp_path / "s.jsonl", *self.ROWS), on_violation="ignore")  # type: ignore[arg-type]


def test_what_a_kind_does_not_use_is_not_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "_kind": ["insert", "cti", "cti"],
            "_vs": [1, 4, None],
            "_ve": [9, 7, 7],
            "_new_ve": [3, 3, 3],
            "_count": [2, 2, 2],
            "k": ["a", "b", "c"],
        }
    )
    pq.write_table(table, tmp_path / "s.parquet")
    (batch,) = open_stream(tmp_path / "s.parquet")
    expected = from_elements([Insert({"k": "a"}, 1, 9), Cti(4), Cti(FOREVER)], batch.schema)
    assert batch.to_elements() == expected.to_elements()
    assert batch.new_ve.tolist() == [FOREVER] * 3
    assert batch.count.tolist() == [0] * 3
    assert batch.payload.column("k").to_pylist() == ["a", None, None]


def test_timestamps_as_spark_writes_them(tmp_path: Path) -> None:
    far = pa.array([instant("9999-12-31T00:00:00")], pa.timestamp("us"))
    pq.write_table(
        pa.table({"_vs": far, "t": far}), tmp_path / "t.parquet", use_deprecated_int96_timestamps=True
    )
    (batch,) = open_stream(tmp_path / "t.parquet")
    assert batch.vs.tolist() == [instant("9999-12-31T00:00:00")]
    assert batch.schema == pa.schema([("t", pa.timestamp("us"))])
    assert batch.payload.column("t").equals(far)


def test_the_first_fault_is_the_one_reported(tmp_path: Path) -> None:
    rows = [
        {"_kind": "insert", "_vs": 5, "_ve": 4, "k": "a"},
        {"_kind": "close", "_vs": None, "_ve": 4, "k": "b"},
    ]
    with pytest.raises(StreamError, match="row 1: an event that ends"):
        elements(lines(tmp_path / "s.jsonl", *rows))
    with pytest.raises(StreamError, match="row 1: closes an event"):
        elements(lines(tmp_path / "s.jsonl", *rows[::-1]))


def test_a_stream_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a stream, not a history"):
        read_history(lines(tmp_path / "s.jsonl", {"_kind": "cti", "_vs": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_files_are_read_in_pieces(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file five times as long takes about the same memory.

    How many blocks Arrow reads ahead hangs on its threads, hence the wide bound; a file read whole would
    need five times as much.
    """
    for module in ("json_lines", "csv_files"):
        monkeypatch.setattr(f"recension.core.formats.{module}._BLOCK", 1 << 16)
    monkeypatch.setattr("recension.core.formats.parquet._ROW_GROUP", 1 << 14)
    # The check for orphans keeps some events as they came, up to a bound that these files would not reach.
    monkeypatch.setattr("recension.core.event_bag._MOST_BYTES", 1 << 18)
    peaks = []
    for pieces in (12, 60):
        path = tmp_path / f"{pieces}.{suffix}"
        write_stream(path, (piece(i * PIECE) for i in range(pieces)), SCHEMA)
        before, peak, rows = pa.total_allocated_bytes(), 0, 0
        for batch in open_stream(path, schema=SCHEMA, batch_size=PIECE):
            assert len(batch) <= PIECE
            rows += len(batch)
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert rows == pieces * PIECE
        peaks.append(peak)
    assert peaks[1] <= 2.5 * peaks[0]


PIECE, SCHEMA = 2_500, pa.schema([("n", pa.int64()), ("s", pa.string())])


def piece(start: int) -> EventBatch:
    numbers = np.arange(start, start + PIECE)
    return inserts(
        numbers,
        numbers + 10,
        pa.record_batch([pa.array(numbers), pa.array([f"{i:016}" for i in numbers])], schema=SCHEMA),
    )
