"""Small files that once crashed, hung or gave tracebacks: each is refused in one line, or read."""

from __future__ import annotations

import gzip
import json
import struct
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.core.classes import classify
from recension.core.difference import difference
from recension.core.errors import FormatError
from recension.core.formats import write_history
from recension.core.formats.files import validate_batch
from recension.core.formats.json_blocks import DEEPEST, MOST_CELLS, Block
from recension.core.formats.long_texts import LongTexts
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.values import values_of
from recension.gate.files import open_stream, read_history


def _history(path: Path) -> History:
    reader = open_stream(path)
    classify(reader)
    return reconstitute(reader, reader.schema)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _nested(depth: int) -> bytes:
    """An object that is so deep, itself included."""
    return b'{"_vs":1,"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def _arrow(column: pa.Array, *names: str) -> bytes:
    table = pa.table({"_vs": range(len(column)), **dict.fromkeys(names or ("x",), column)})
    sink = BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("depth", [DEEPEST + 1, 5_000, 10_000, 100_000])
def test_json_that_is_nested_too_deep(tmp_path: Path, depth: int) -> None:
    path = _written(tmp_path / "s.jsonl", b'{"_vs":1}\n\n' + _nested(depth) + b"\n")
    with pytest.raises(FormatError, match=r"s\.jsonl: row 2: nested more than 100 levels deep$"):
        open_stream(path)


def test_json_that_is_nested_just_deep_enough(tmp_path: Path) -> None:
    assert len(_history(_written(tmp_path / "s.jsonl", _nested(DEEPEST)))) == 1


@pytest.mark.parametrize(
    ("line", "is_objects"),
    [
        (b'{"a":1}', True),
        (b'  {"a":1} \r', True),
        (b'{"a":"]]]"}', True),
        (b'{"a":"\\"]","b":[1,{"c":"{"}]}', True),
        (b'{"a":"\\\\","b":[]}', True),
        (b'{"a":"]}","b":[', False),
        (b'{"a":[}', False),
        (b'{"a":["}', False),
        (b'{"a":"\\\\","b":[}', False),
        (b"null", False),
        (b"[1]", False),
    ],
)
def test_which_lines_arrow_may_see(line: bytes, is_objects: bool) -> None:
    """Arrow goes on in the next line where one leaves something open, as deep as there are lines."""
    for text in (line, line + b"\n", b"\n" + line + b"\n \n", b'{"a":[]}\n' + line + b"\n" + line):
        block = Block.parse(text, "f", 1)
        assert block.is_objects == is_objects
        assert block.size == len(block.lines())


def test_brackets_in_texts_are_not_depth(tmp_path: Path) -> None:
    text = b'{"_vs":1,"x":"' + b"[" * 500 + b'\\"' + b"{" * 500 + b'","y":[1]}\n'
    assert len(_history(_written(tmp_path / "s.jsonl", text * 3))) == 3
    hidden = b'{"_vs":1,"x":["' + b"]" * 500 + b'",' + b"[" * 300 + b"]" * 300 + b"]}\n"
    with pytest.raises(FormatError, match="nested"):
        open_stream(_written(tmp_path / "s.jsonl", hidden))


def test_lines_that_are_left_open_do_not_add_up(tmp_path: Path) -> None:
    path = _written(tmp_path / "s.jsonl", b'{"_vs":1,"x":"]}","y":[\n' * 5_000)
    with pytest.raises(FormatError, match="row 1: not JSON"):
        open_stream(path)


def test_a_block_of_many_names_is_cut() -> None:
    text = b"".join(b'{"c%d":1}\n' % i for i in range(20_000))
    parts = list(Block.parse(text, "f", 1).parts())
    assert b"".join(part.text for part in parts) == text
    assert [part.first_row for part in parts[1:]] == [p.first_row + p.size for p in parts[:-1]]
    assert all(part.size * part.text.count(b":") <= MOST_CELLS for part in parts)
    assert len(list(Block.parse(text, "f", 1).parts(columns=5))) == 1


def test_too_many_columns(tmp_path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(10_001))
    with pytest.raises(FormatError, match="10,002 columns; at most 10,000 can be read"):
        open_stream(_written(tmp_path / "s.csv", f"_vs,{names}\n".encode()))


@pytest.mark.parametrize("row", ['{{"_vs":1,"c{}":1}}\n', '{{"_vs":1,"x":{{"c{}":[1]}}}}\n'])
def test_each_row_names_a_column_of_its_own(tmp_path: Path, row: str) -> None:
    """A cell for every column in every row would be many times the file."""
    path = _written(tmp_path / "s.jsonl", "".join(row.format(i) for i in range(9_500)).encode())
    with pytest.raises(FormatError, match=r"[\d,]+ different column names in the first [\d,]+ rows"):
        open_stream(path)


def test_wide_rows(tmp_path: Path) -> None:
    """Thousands of columns, of which each row has hundreds."""
    rows = [{"_vs": i} | {f"c{n}": n for n in range(2_500) if not (n + i) % 8} for i in range(1_700)]
    path = _written(tmp_path / "s.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    assert len(open_stream(path).schema) == 2_500


def test_too_many_names_inside_of_objects(tmp_path: Path) -> None:
    row = {"_vs": 1, "p": [{f"k{i}": 1 for i in range(10_001)}]}
    path = _written(tmp_path / "s.jsonl", json.dumps(row).encode())
    with pytest.raises(FormatError, match=r"columns, those inside of objects counted; at most 10,000"):
        open_stream(path)


def test_columns_that_only_later_blocks_have(tmp_path: Path) -> None:
    """Blocks with the columns of those before are parsed as they are expected to be; others are not."""
    row = b'{"_vs":1,"x":1,"pad":"' + b"p" * 1000 + b'"}\n'
    late = b'{"_vs":2,"x":1.5,"new":["a"]}\n'
    history = _history(_written(tmp_path / "s.jsonl", row * 9_000 + late))
    assert history.schema.field("x").type == pa.float64()
    assert history.payload["new"].to_pylist()[-1] == ["a"]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("name.jsonl", b'{"_vs":1,"\xff":1}\n', "row 1: not JSON: not UTF-8"),
        ("half.jsonl", b'{"_vs":1,"\\ud800":1}\n', "half of a surrogate pair"),
        ("inner.jsonl", b'{"_vs":1,"x":{"\\ud800":1}}\n', "half of a surrogate pair"),
        ("value.jsonl", b'{"_vs":1,"x":"\\ud800"}\n', 'row 1: column x: "\\\\ud800"'),
        ("time.jsonl", b'{"_vs":"\\ud800"}\n', "row 1: column _vs"),
        ("twins.jsonl", b'{"_vs":1,"x":1,"x":2}\n', "'x' is there twice"),
        ("number.jsonl", b'{"_vs":1,"x":' + b"1" * 5000 + b"}\n", "row 1: not JSON"),
        ("ragged.csv", b"_vs,x\n1,2\n1,\xff,3\n", "row 2: 3 columns where the header has 2"),
        ("cell.csv", b"_vs,x\n1,\xff\n", "row 1: invalid UTF8 data"),
        ("twins.csv", b"_vs,,\n1,2,3\n", "is there twice"),
        ("header.csv", b"_vs,\xff\n1,2\n", "the header is not UTF-8"),
        ("long.csv", b'"' + b"x" * 200_000 + b"\n1,2\n", "the header: field larger than"),
        ("row.csv", b"_vs,x\n1," + b"y" * (9 << 20) + b"\n2,z\n", "a row of more than 4 MiB"),
        ("quote.csv", b'_vs,x"y"\n1,2\n', None),
        ("blank.csv", b"\n\n_vs,x\n1,2\n", None),
        ("header.csv", b"_vs,_ve,k", None),
        ("header.csv.gz", gzip.compress(b'\xef\xbb\xbf\n_vs,"_ve",k'), None),
        ("open.csv", b'_vs,"k', "cannot infer number of columns"),
        ("bom.jsonl", b'\xef\xbb\xbf{"_vs":1}\n', None),
        ("nothing.jsonl", b"\n \r\n\t\n", None),
        ("mac.csv", b"_vs,x\r1,2\r", None),
        ("nul.csv", b"_vs,x\n1,a\0b\n", None),
    ],
)
def test_odd_text(tmp_path: Path, name: str, data: bytes, reason: str | None) -> None:
    path = _written(tmp_path / name, data)
    if reason is None:
        _history(path)
        return
    with pytest.raises(FormatError, match=reason) as caught:
        _history(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_offsets_that_go_backwards_are_refused(tmp_path: Path) -> None:
    """``check`` called it valid, ``history`` ended with a segmentation fault."""
    sound = _arrow(pa.array(["alpha", "beta", "gamma"]))
    offsets = struct.pack("<4i", 0, 5, 9, 14)
    for damaged in ((0, 9, 5, 14), (0, -5, 9, 14), (0, 5, 9, 2**30), (2**31 - 1, 5, 9, 14)):
        assert sound.count(offsets) == 1
        path = _written(tmp_path / "s.arrow", sound.replace(offsets, struct.pack("<4i", *damaged)))
        with pytest.raises(FormatError, match=r"s\.arrow: "):
            _history(path)


def test_indices_outside_of_their_dictionary_are_refused(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 77], pa.int16()), pa.array([str(i) for i in range(99)])
    )
    data = _arrow(column).replace(struct.pack("<3h", 0, 1, 77), struct.pack("<3h", 0, 1, 777))
    with pytest.raises(FormatError, match=r"column x: .*777"):
        _history(_written(tmp_path / "s.arrow", data))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.list_(pa.string()), pa.string_view()])
def test_text_that_is_not_utf8(tmp_path: Path, kind: pa.DataType) -> None:
    values = [["naïve"], ["x" * 9]] if pa.types.is_list(kind) else ["naïve", "x" * 9]
    data = _arrow(pa.array(values, kind))
    assert "ï".encode() in data
    with pytest.raises(FormatError, match=r"column x: .*UTF8"):
        _history(_written(tmp_path / "s.arrow", data.replace("ï".encode(), b"\xff\xff")))


def test_text_in_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    pq.write_table(pa.table({"_vs": [1], "x": ["naïve"]}), tmp_path / "s.parquet", compression="none")
    data = (tmp_path / "s.parquet").read_bytes().replace("ï".encode(), b"\xff\xff")
    with pytest.raises(FormatError, match=r"column x: .*UTF8"):
        _history(_written(tmp_path / "s.parquet", data))


def test_a_page_whose_checksum_is_wrong(tmp_path: Path) -> None:
    table = pa.table({"_vs": [1], "x": ["alphabet"]})
    pq.write_table(
        table, tmp_path / "s.parquet", write_page_checksum=True, compression="none", write_statistics=False
    )
    data = (tmp_path / "s.parquet").read_bytes().replace(b"alphabet", b"alphabot")
    with pytest.raises(FormatError, match=r"(?i)crc"):
        _history(_written(tmp_path / "s.parquet", data))


def test_names_in_a_schema_that_are_not_utf8(tmp_path: Path) -> None:
    kind = pa.struct([("inner", pa.timestamp("us", "Europe/Paris"))])
    data = _arrow(pa.array([None], kind))
    for word in (b"inner", b"Europe/Paris"):
        with pytest.raises(FormatError, match="not UTF-8"):
            open_stream(_written(tmp_path / "s.arrow", data.replace(word, b"\xff" * len(word))))
    with pytest.raises(FormatError, match="the time zone 'Europe/Pariz' is not known"):
        open_stream(_written(tmp_path / "s.arrow", data.replace(b"Europe/Paris", b"Europe/Pariz")))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval())),
        pa.array([[["a"]]], pa.list_(pa.list_view(pa.string()))),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
        pa.nulls(1, pa.decimal128(9, 66)),
    ],
    ids=["interval", "intervals", "list views", "views", "twins", "scale"],
)
def test_types_that_are_refused_by_name(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(FormatError, match=r"s\.arrow: column x: .*(is not supported|has a field twice)$"):
        open_stream(_written(tmp_path / "s.arrow", _arrow(column)))


@pytest.mark.parametrize(
    "column",
    [
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 2, pa.binary(16))),
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]] * 2, pa.list_(pa.int32(), 2))
        ),
    ],
    ids=["uuid", "tensor"],
)
def test_extension_types_are_compared_by_what_they_hold(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table(
        {"_kind": ["insert", "retract"], "_vs": [1, 1], "_ve": [9, 9], "_new_ve": [9, 5], "x": column}
    )
    with pa.ipc.new_file(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    history = _history(tmp_path / "s.arrow")
    assert history.ve.tolist() == [5]
    write_history(tmp_path / "h.arrow", history)
    assert len(read_history(tmp_path / "h.arrow")) == 1


def test_what_python_has_no_value_for_is_shown_as_text(tmp_path: Path) -> None:
    far = pa.array([2**60], pa.timestamp("us"))
    assert values_of(far) == ["timestamp[us] 1152921504606846976"]
    row = pa.array([[{"a": 2**60}]], pa.list_(pa.struct([("a", pa.timestamp("us"))])))
    assert values_of(row) == ["a value of list<item: struct<a: timestamp[us]>>"]


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz", "ndjson.gz", "json.GZ"])
def test_gzip(tmp_path: Path, ending: str) -> None:
    plain = tmp_path / ending.split(".")[0]
    rows = {"csv": b"_vs,x\n1,2\n3,oops\n"}.get(
        ending.split(".")[0], b'{"_vs":1,"x":2}\n{"_vs":3,"x":"oops"}\n'
    )
    path = tmp_path / f"{plain.name}.{ending}"
    path.write_bytes(gzip.compress(rows[:9]) + gzip.compress(rows[9:]))
    with pytest.raises(FormatError, match="row 2: column x"):
        list(open_stream(path, schema=pa.schema([("x", pa.int64())])))
    history = History.from_arrow(pa.table({"_vs": [1], "_ve": [None], "x": ["a"]}))
    write_history(path, history)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert _history(path).payload["x"].to_pylist() == ["a"]


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz"])
def test_damaged_gzip(tmp_path: Path, ending: str) -> None:
    rows = {"csv.gz": b"_vs,x\n" + b"1,2\n" * 500}.get(ending, b'{"_vs":1,"x":2}\n' * 500)
    packed = gzip.compress(rows, mtime=0)
    for damaged in (
        packed[:-9],
        packed[:5],
        b"not gzip",
        packed[:12] + b"\xff\xff" + packed[14:],
        packed[:-5] + b"\0" * 5,
    ):
        with pytest.raises(FormatError, match=ending):
            _history(_written(tmp_path / f"s.{ending}", damaged))


def test_other_formats_are_not_packed_by_gzip(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match="parquet has its own compression and cannot be in gzip: decompress it"
    ):
        open_stream(_written(tmp_path / "s.parquet.gz", b"x"))


def test_a_line_without_end(tmp_path: Path) -> None:
    """However far a packed file unpacks, only so much of it is held."""
    packed = gzip.compress(b" " * (80 << 20), 1)
    with pytest.raises(FormatError, match="a line of more than 64 MiB"):
        open_stream(_written(tmp_path / "s.jsonl.gz", packed))


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_an_empty_plain_table_is_a_table(tmp_path: Path, ending: str) -> None:
    history = History.from_arrow(pa.table({"_vs": [1], "_ve": [2], "x": ["a"]})).filter(np.zeros(1, np.bool_))
    write_history(tmp_path / f"s.{ending}", history)
    reader = open_stream(tmp_path / f"s.{ending}")
    assert reader.is_table
    assert list(reader) == []


def test_formulas_are_written_as_they_are_unless_asked(tmp_path: Path) -> None:
    cells = ["=1+1", "+1", "-1", "@x", "\tx", "plain", "a=b", ""]
    history = History.from_arrow(pa.table({"_vs": range(8), "_ve": [9] * 8, "=x": cells, "n": [-1] * 8}))
    write_history(tmp_path / "h.csv", history)
    assert read_history(tmp_path / "h.csv").payload["=x"].to_pylist() == cells
    write_history(tmp_path / "h.csv", history, escape_formulas=True)
    again = read_history(tmp_path / "h.csv").payload
    assert again["'=x"].to_pylist() == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "plain", "a=b", ""]
    assert again["n"].to_pylist() == [-1] * 8


def test_a_declared_payload_leaves_the_rest_to_the_whole_first_block(tmp_path: Path) -> None:
    """However small the parts are in which it is parsed."""
    row = b'{"_kind":"cti","_vs":null,"x":null}\n'
    late = b'{"_kind":"cti","_vs":"2024-01-01T00:00:00Z","x":null}\n'
    path = _written(tmp_path / "s.jsonl", row * 20_000 + late)
    assert pa.types.is_timestamp(open_stream(path, schema=pa.schema([("x", pa.int64())])).time_type)


def test_offsets_that_are_no_whole_number_of_words() -> None:
    buffers = [None, pa.py_buffer(b"\0\0\0\0\5\0\0\0\0"), pa.py_buffer(b"alpha")]
    column = pa.Array.from_buffers(pa.string(), 1, buffers)
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    assert validate_batch(batch).column(0).to_pylist() == ["alpha"]


def test_nulls_below_a_field_that_may_not_be_null(tmp_path: Path) -> None:
    """A null list of fixed size has items, which are null whatever their field says."""
    kind = pa.list_(pa.field("item", pa.float32(), nullable=False), 3)
    history = _history(_written(tmp_path / "s.arrow", _arrow(pa.array([None, [1.0, 2.0, 3.0]], kind))))
    assert not difference(history, _history(tmp_path / "s.arrow"))


FORMS = ["a dictionary", "a text", "arrow"]


def _repeated(form: str, size: int, rows: int, folder: Path, *, group: int | None = None) -> Path:
    """A file of some kilobytes in which one text of a dictionary stands in every row."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    table = pa.table({"_vs": range(rows), "k": column})
    if form == "arrow":
        path = folder / "long.arrow"
        with pa.ipc.new_file(str(path), table.schema) as arrow:
            arrow.write_table(table)
        return path
    path = folder / "long.parquet"
    stored = form == "a dictionary"
    with pq.ParquetWriter(path, table.schema, write_statistics=False, store_schema=stored) as parquet:
        parquet.write_table(table, group)
    assert path.stat().st_size < 200_000
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_long_text_in_every_row_is_read_in_small_parts(form: str, tmp_path: Path) -> None:
    """A file with 200 MB of text: never in memory at once."""
    path = _repeated(form, 1 << 20, 200, tmp_path)
    batches = islice(open_stream(path), 3)
    seen = [(len(batch), batch.payload.nbytes, set(batch.payload["k"].to_pylist())) for batch in batches]
    assert len(seen) == 3
    assert all(size < 50 and taken < 50_000_000 for size, taken, _ in seen)
    assert all(texts == {"x" * (1 << 20)} for *_, texts in seen)


@pytest.mark.parametrize("form", FORMS)
def test_long_texts_that_no_memory_would_hold_are_refused(form: str, tmp_path: Path) -> None:
    """20,000 rows of 1 MB each: 20 GB, however the file is read."""
    path = _repeated(form, 1 << 20, 20_000, tmp_path)
    says = r"long\.\w+: column k: 20,000 rows repeat the long texts of a dictionary and take 21\.0 GB: keep"
    before = pa.total_allocated_bytes()
    with pytest.raises(FormatError, match=says):
        list(open_stream(path))
    with pytest.raises(FormatError, match=says):
        rc.run(rc.source("s", {"k": "string"}), {"s": path})
    assert pa.total_allocated_bytes() - before < 50_000_000


def test_long_texts_are_counted_over_row_groups(tmp_path: Path) -> None:
    """Each row group has 48 MB of text, and a dictionary of its own."""
    path = _repeated("a dictionary", 40_000, 20_000, tmp_path, group=1200)
    taken: list[int] = []
    with pytest.raises(FormatError, match=r"rows repeat the long texts of a dictionary and take 0\.\d GB"):
        taken.extend(batch.payload.nbytes for batch in open_stream(path))
    assert len(taken) > 5
    assert max(taken) < 80_000_000


def test_a_table_that_repeats_long_texts_is_refused_when_it_is_pushed() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), pa.array(["x" * (1 << 20)]))
    table, session = pa.table({"_vs": range(5000), "k": column}), rc.session(rc.source("s", {"k": "string"}))
    with pytest.raises(FormatError, match=r"s: column k: 5,000 rows repeat the long texts"):
        session.push("s", table)
    session.push("s", table.slice(0, 100))
    assert len(session.history().to_events()) == 100


def test_texts_of_a_usual_length_may_stand_in_any_number_of_rows() -> None:
    """4 KB in each of 200,000 rows, which are 800 MB, are read: what counts is what a row takes."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.int32)), pa.array(["x" * 4096]))
    texts = LongTexts(["k"], "s")
    for _ in range(4):
        parts = list(texts.slices(pa.record_batch([column], ["k"])))
        assert sum(map(len, parts)) == 50_000
