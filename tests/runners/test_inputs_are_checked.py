"""What comes in is checked or refused: empty tables are tables, columns are there by name, values fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.cli import main
from recension.core.batch import from_elements
from recension.gate.files import open_stream, read_history
from recension.testing import assert_equivalent

left = rc.source("l", {"k": "int64"})
right = rc.source("r", {"k": "int64"})
THREE = pa.table({"_vs": [0, 2, 4], "_ve": [9, 9, 9], "k": [1, 2, 3]})
NONE = THREE.slice(0, 0)


class Foreign:
    """A frame of a library that nobody here knows: it speaks Arrow, with its own layout of texts."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "no chunks": lambda table: pa.Table.from_batches(table.to_batches(), table.schema),
    "batch": lambda table: pa.RecordBatch.from_pylist(table.to_pylist(), table.schema),
    "pandas": lambda table: table.to_pandas(),
    "foreign": Foreign,
}
JOINS = {
    "anti": (left.join(right, on="k", how="anti"), 3),
    "left": (left.join(right.with_columns(x=rc.lit(1)), on="k", how="left"), 3),
    "union": (left.union(right).agg(n=rc.count()), 3),
    "strong": (left.union(right).consistency(rc.STRONG), 3),
    "semi": (left.join(right, on="k", how="semi"), 0),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("query", "size"), JOINS.values(), ids=JOINS)
def test_an_empty_plain_table_is_closed(query: rc.Stream, size: int, form: Callable[[pa.Table], Any]) -> None:
    out = rc.run(query, {"l": form(THREE), "r": form(NONE)}, batch_size=2)
    assert len(out.history()) == size
    assert out.elements()[-1] == rc.Cti(rc.FOREVER)


@pytest.mark.parametrize("empty", [[], from_elements([], right.schema)], ids=["list", "batch"])
def test_no_elements_are_not_a_table(empty: object) -> None:
    query, _ = JOINS["anti"]
    assert rc.Cti(rc.FOREVER) not in rc.run(query, {"l": THREE, "r": empty}).elements()
    assert rc.run(query, {"l": THREE, "r": empty}, close=True).elements()[-1] == rc.Cti(rc.FOREVER)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("r.csv", pa.csv.write_csv),
        ("r.parquet", pq.write_table),
        ("r.arrow", pa.feather.write_feather),
    ],
)
def test_an_empty_file_of_a_plain_table_is_closed(
    name: str, write: Callable[[pa.Table, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(NONE, tmp_path / name)
    pq.write_table(THREE, tmp_path / "l.parquet")
    (tmp_path / "q.py").write_text(
        "import recension as rc\n"
        "l, r = (rc.source(name, {'k': 'int64'}) for name in 'lr')\n"
        "query = l.join(r, on='k', how='anti')\n"
    )
    arguments = ["run", "q.py", "-i", "l=l.parquet", "-i", f"r={name}", "--history", "h.parquet"]
    assert main(arguments) == 0
    assert len(read_history(tmp_path / "h.parquet")) == 3


people = rc.source("people", {"user": "string", "size": "int64"})
MISSPELT = pa.table({"_vs": [1], "_ve": [2], "usr": ["ann"], "size": [1]})


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_misspelt_column_is_refused_with_the_nearest_name(form: Callable[[pa.Table], Any]) -> None:
    reason = r"people: no column user \(did you mean 'usr'\?\); there are usr, size"
    with pytest.raises(rc.FormatError, match=reason):
        rc.run(people, {"people": form(MISSPELT)})
    with pytest.raises(rc.FormatError, match=reason):
        rc.session(people).push("people", form(MISSPELT))
    with pytest.raises(rc.FormatError, match=reason):
        rc.session(people).push("people", form(MISSPELT.slice(0, 0)))


def test_a_misspelt_column_of_a_file_is_refused_with_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(MISSPELT, tmp_path / "s.parquet")
    (tmp_path / "q.py").write_text(
        "import recension as rc\nquery = rc.source('s', {'user': 'string', 'size': 'int64'})\n"
    )
    assert main(["run", "q.py", "-i", "s=s.parquet"]) == 2
    assert "no column user (did you mean 'usr'?)" in capsys.readouterr().err


def test_columns_that_no_source_asks_for_are_ignored() -> None:
    table = MISSPELT.append_column("user", pa.array(["ann"]))
    assert rc.run(people, {"people": table}).history().schema.names == ["user", "size"]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"user": "ann"}, r"people: row 2: no value for column 'size', only for user: write None"),
        ({"user": "ann", "sze": 1}, r"people: row 2: no column 'sze' \(did you mean 'size'\?\)"),
        ({"user": 3, "size": 1}, r"people: row 2: column 'user' is string, not 3: Expected bytes"),
        ({"user": "ann", "size": "x"}, r"people: row 2: column 'size' is int64, not 'x': "),
        ({"user": "ann", "size": 2**63}, r"people: row 2: column 'size' is int64, not 9223372036854775808: "),
    ],
)
def test_values_that_do_not_fit_are_named_by_source_row_and_column(
    payload: dict[str, Any], reason: str
) -> None:
    session = rc.session(people)
    with pytest.raises(rc.StreamError, match=reason):
        session.push("people", [rc.Insert({"user": "bob", "size": None}, 0, 1), rc.Insert(payload, 1, 2)])
    assert session.rows_seen("people") == 0


def test_a_frame_with_two_columns_of_one_name_is_refused_in_one_line() -> None:
    frame = pd.DataFrame([[1, 2, "ann", "bob", 1]], columns=["_vs", "_ve", "user", "user", "size"])
    for take in (lambda: rc.run(people, {"people": frame}), lambda: rc.History.from_pandas(frame)):
        with pytest.raises(rc.RecensionError, match=r"^\w+: column user is there twice$"):
            take()


def test_a_frame_that_arrow_cannot_read_is_refused_in_one_line() -> None:
    frame = pd.DataFrame({"_vs": [1, 2], "_ve": [2, 3], "user": ["ann", 3], "size": [1, 2]})
    with pytest.raises(rc.RecensionError, match="people: row 2: column user: 3 is not of the type of"):
        rc.run(people, {"people": frame})
    with pytest.raises(rc.RecensionError, match="people: row 2: column user: 3 is not of the type of"):
        rc.session(people).push("people", frame)


def test_a_wrong_name_is_repeated() -> None:
    with pytest.raises(rc.RecensionError, match=r"no source 'poeple' \(did you mean 'people'\?\)"):
        rc.run(people, {"poeple": []})
    two = rc.session(a=people, b=people.where(rc.col("size") > 1))
    with pytest.raises(rc.RecensionError, match=r"runs a, b: say which query, for example read\('a'\)"):
        two.read()
    with pytest.raises(rc.RecensionError, match=r"no query 'c'; the session runs a, b"):
        two.history("c")


READ = rc.source("s", {"x": "float64"})
OTHER_TYPES: list[tuple[str, dict[str, Any], str]] = [
    ("a missing column", {"y": [1.0]}, "no column x; there are y"),
    ("texts", {"x": ["a"]}, "column x: "),
    ("truths", {"x": [True]}, "column x: "),
    ("times", {"x": pa.array([5], pa.timestamp("us"))}, "column x: "),
    ("lists", {"x": [[1.0]]}, "column x: "),
    ("a dictionary", {"x": pa.array(["a"]).dictionary_encode()}, "column x: "),
]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(("columns", "reason"), [c[1:] for c in OTHER_TYPES], ids=[c[0] for c in OTHER_TYPES])
def test_an_open_file_is_compared_with_the_source(
    columns: dict[str, Any], reason: str, form: str, tmp_path: Path
) -> None:
    path = stored(tmp_path, pa.table({"_vs": [1], "_ve": [5], **columns}), form)
    with pytest.raises(rc.RecensionError, match=f"{path}: .*{reason}") as caught:
        rc.run(READ.distinct(), {"s": open_stream(path)})
    assert "\n" not in str(caught.value)
    with pytest.raises(rc.RecensionError, match=f"{path}: .*{reason}"):
        rc.why(READ, {"s": open_stream(path)}, {"x": 1.0}, at=1)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_numbers_of_an_open_file_are_those_of_the_source(form: str, tmp_path: Path) -> None:
    """Integers for floats: they join and are distinct as floats, whatever columns the file has besides."""
    table = pa.table({"more": ["m"] * 2, "_vs": [1, 1], "_ve": [5, 5], "x": [1, 2]})
    path = stored(tmp_path, table, form)
    both = READ.union(rc.source("r", {"x": "float64"}))
    floats = [rc.Insert({"x": 1.0}, 1, 5), rc.Cti(9)]
    out = rc.run(both.distinct(), {"s": open_stream(path), "r": floats})
    assert_equivalent(out, [rc.Event({"x": 1.0}, 1, 5), rc.Event({"x": 2.0}, 1, 5)])
    out = rc.run(READ.join(rc.source("r", {"x": "float64"}), on="x"), {"s": open_stream(path), "r": floats})
    assert_equivalent(out, [rc.Event({"x": 1.0}, 1, 5)])


def test_a_guessed_type_gives_way_to_that_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("_vs,_ve,x\n1,5,1\n")
    out = rc.run(READ, {"s": open_stream(tmp_path / "s.csv")})
    assert out.schema.field("x").type == pa.float64()
    assert [event.payload["x"] for event in out.history().to_events()] == [1.0]


def stored(folder: Path, table: pa.Table, form: str) -> Path:
    path = folder / f"s.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        pa.feather.write_feather(table, str(path), compression="uncompressed")
    return path
