"""Types that are guessed from text keep apart what is written differently."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from recension.core.errors import FormatError, StreamError
from recension.core.formats import csv_files, json_lines
from recension.core.formats.text import guess_type
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream

_LONG = 2**53 + 1
_STREAM = "_kind,_vs,_ve,_new_ve,x\ninsert,1,9,,{}\nretract,1,9,1,{}\ninsert,2,9,,0.5\n"


def _values(path: Path) -> list[object]:
    reader = open_stream(path)
    values: list[object] = reconstitute(reader, reader.schema).payload["x"].to_pylist()
    return values


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(_LONG), "0.5"], pa.string()),
        ([str(-_LONG), "0.5"], pa.string()),
        ([str(2**53), "0.5"], pa.float64()),
        ([str(_LONG), "5"], pa.int64()),
        (["9" * 19, "5"], pa.string()),
        (["true", "1"], pa.string()),
        (["true", "TRUE"], pa.string()),
        (["true", "false"], pa.bool_()),
        (["0x1F", "31"], pa.string()),
        (["+31", "31"], pa.string()),
        (["1e3", "-0.5", "7"], pa.float64()),
    ],
)
def test_guesses(cells: list[str], kind: pa.DataType) -> None:
    assert guess_type(pa.array(cells)) == kind


def test_a_retraction_of_the_neighbour_of_a_long_integer(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(_STREAM.format(_LONG, _LONG - 1))
    with pytest.raises(StreamError, match="row 2: retracts an event that is not there"):
        _values(path)


def test_integers_and_floats_in_different_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", 64)
    path = tmp_path / "s.csv"
    path.write_text("_vs,x\n" + f"1,{_LONG}\n" * 20 + "1,0.5\n" * 20)
    assert set(_values(path)) == {str(_LONG), "0.5"}


def _json(*values: object) -> str:
    return "".join(f'{{"_vs":1,"x":{value}}}\n' for value in values)


@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"y":{}}}', '[{{"y":{}}}]'])
@pytest.mark.parametrize("block", [1 << 20, 16])
def test_json_has_no_text_to_fall_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, block: int
) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK", block)
    path = tmp_path / "s.jsonl"
    for numbers in [(_LONG, 0.5), (0.5, _LONG), (-_LONG, 1, 0.5)]:
        path.write_text(_json(*(form.format(number) for number in numbers)))
        with pytest.raises(FormatError, match="column x: "):
            _values(path)
    for sound in [(2**53, 0.5), (_LONG, 5), (0.1234567890123456789, 0.5)]:
        path.write_text(_json(*(form.format(number) for number in sound)))
        assert len(_values(path)) == len(sound)


@pytest.mark.parametrize(
    ("ending", "header", "row"), [("csv", "_vs,x\n", "1,{}\n"), ("jsonl", "", _json("{}"))]
)
def test_integers_and_floats_in_different_files(tmp_path: Path, ending: str, header: str, row: str) -> None:
    for name, value in [("a", _LONG), ("b", 0.5)]:
        (tmp_path / f"{name}.{ending}").write_text(header + row.replace("{}", str(value)))
    with pytest.raises(FormatError, match=rf"a\.{ending}: row 1: column x: .*9007199254740993"):
        _values(tmp_path)
