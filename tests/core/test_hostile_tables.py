"""Tables and logs that name what is not theirs, or say what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.core.errors import FormatError
from recension.core.formats.changelog import FORMAT as CHANGELOG
from recension.core.formats.changelog import MARK
from recension.core.formats.files import is_plain_name, seal_of, to_sealed_json
from recension.core.formats.manifest import DELETIONS, FOLDER, FORMAT, manifest_path
from recension.gate.files import open_stream

_SEALS = ("schema_seal", "files__seal", "deletions__seal")
_EVENTS = pa.table({"_vs": [1, 2], "_ve": pa.array([5, None], pa.int64()), "x": ["a", "b"]})


def _table(path: Path, deleted: list[tuple[str, int]] | None = None, **changes: Any) -> Path:
    """A table of two events, with something else in its manifest."""
    folder = path / "table" / FOLDER
    folder.mkdir(parents=True)
    pq.write_table(_EVENTS, path / "outside.parquet")
    pq.write_table(_EVENTS.slice(0, 0), folder / "schema.parquet")
    pq.write_table(_EVENTS, folder / "data.parquet")
    rows = deleted or []
    pq.write_table(
        pa.table([[file for file, _ in rows], [row for _, row in rows]], DELETIONS), folder / "gone.parquet"
    )
    stored: dict[str, Any] = {
        "format": FORMAT, "previous": 6, "number": 7, "query": "q", "schema": "schema.parquet", "batch": 3,
        "cti": 4,
        "files": [{"name": "data.parquet", "rows": 2, "half_end": 5, "last_end": 9, "deleted": 0}],
        "deletions": [{"name": "gone.parquet", "rows": len(rows)}],
        "dropped": [{"name": "old.parquet", "at": 1.5}],
        "schema_seal": seal_of(folder / "schema.parquet"),
    }  # fmt: skip
    for entry in (*stored["files"], *stored["deletions"]):
        entry["seal"] = seal_of(folder / entry["name"])
    stored["files"][0]["deleted"] = sum(file == "data.parquet" for file, _ in rows)
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        target = stored[outer][0] if inner else stored
        target[inner or outer] = value
    manifest_path(path / "table", 7).write_text(to_sealed_json(stored))
    manifest_path(path / "table", 6).touch()  # the one before it: that it is there is enough
    return path / "table"


def _starts(path: Path) -> list[int]:
    return [vs for batch in open_stream(path) for vs in batch.vs.tolist()]


def test_the_table_is_read(tmp_path: Path) -> None:
    assert _starts(_table(tmp_path, [("data.parquet", 0), ("merged-away.parquet", 9)])) == [2]


_OUTSIDE = [
    "../../outside.parquet",
    "/etc/passwd",
    "",
    ".",
    "..",
    "a/b",
    "a\\b",
    "a\0b",
    None,
    3,
    ["data.parquet"],
]


@pytest.mark.parametrize("place", ["schema", "files__name", "deletions__name", "dropped__name"])
@pytest.mark.parametrize("name", _OUTSIDE)
def test_names_outside_of_the_table_are_refused(tmp_path: Path, place: str, name: Any) -> None:
    with pytest.raises(FormatError, match=r"a damaged manifest: .* is not the name of a file in its folder$"):
        open_stream(_table(tmp_path, **{place: name}))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name in ("number", "batch", "cti") for value in (True, 1.0, "1", None, 2**63)),
        *({name: value} for name in ("number", "files__rows", "files__deleted") for value in (-1, -7)),
        *(
            {f"files__{name}": value}
            for name in ("rows", "half_end", "last_end")
            for value in (1.0, "1", False)
        ),
        *({"dropped__at": value} for value in ("now", None, True, float("nan"))),
        *({"deletions__rows": value} for value in (-1, 0.0)),
        *({name: seal} for name in _SEALS for seal in (None, 3, "", "12", "٣:" + "0" * 32, ["3"])),
        {"recent": [[float("inf"), "c"]]},
        {"batch": -2},
        {"query": 1},
        {"files": [{"name": "data.parquet"}]},
        {"files": {}, "deletions": 3},
        {"files__unheard_of": 1},
        {"deletions__name": "data.parquet"},
    ],
)
def test_what_a_manifest_may_not_say(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="a damaged manifest") as caught:
        open_stream(_table(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_a_manifest_without_its_digest(tmp_path: Path) -> None:
    file = manifest_path(_table(tmp_path), 7)
    stored = json.loads(file.read_text())
    del stored["digest"]
    file.write_text(json.dumps(stored))
    with pytest.raises(FormatError, match=r"a damaged manifest$"):
        open_stream(tmp_path / "table")


@pytest.mark.parametrize(
    "changes", [{"files__rows": 3}, {"files__deleted": 0}, {"files__deleted": 2}, {"deletions__rows": 5}]
)
def test_counts_that_are_not_those_of_the_files(tmp_path: Path, changes: dict[str, int]) -> None:
    with pytest.raises(FormatError, match=r"\d rows( of it are deleted)?, where the manifest says \d$"):
        open_stream(_table(tmp_path, [("data.parquet", 0)], **changes))


_MARK = {"query": "q", "last": 3, "part": None, "recent": [], "format": CHANGELOG}


@pytest.mark.parametrize(
    "changes",
    [
        {"part": {"number": 3, "seal": 7}},
        {"part": {"number": 3, "seal": None}},
        {"part": {"number": float("inf"), "seal": "3:" + "0" * 32}},
        {"recent": [[float("inf"), "c"]]},
    ],
)
def test_what_a_mark_may_not_say(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / MARK).write_text(to_sealed_json(_MARK | changes))
    with pytest.raises(FormatError, match="damaged, or not the mark of a changelog"):
        open_stream(tmp_path)


def test_a_mark_without_its_digest(tmp_path: Path) -> None:
    (tmp_path / MARK).write_text(json.dumps(_MARK))
    with pytest.raises(FormatError, match="damaged, or not the mark of a changelog"):
        open_stream(tmp_path)


def test_a_manifest_under_the_number_of_another(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="the manifest of another commit, number 8"):
        open_stream(_table(tmp_path, number=8))


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, '{"format": 1}', "\xff"])
def test_manifests_that_are_none(tmp_path: Path, text: str) -> None:
    table = _table(tmp_path)
    manifest_path(table, 7).write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"000000000007\.json: "):
        open_stream(table)


@pytest.mark.parametrize("row", [-1, 2, 2**62])
def test_deletions_of_rows_that_are_not_there(tmp_path: Path, row: int) -> None:
    table = _table(tmp_path, [("data.parquet", 0), ("data.parquet", row)])
    with pytest.raises(FormatError, match="rows are deleted that it does not have"):
        open_stream(table)


def test_plain_names() -> None:
    assert is_plain_name("added-1f.parquet")
    assert is_plain_name("..parquet")
    assert not any(is_plain_name(name) for name in _OUTSIDE)


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "file:///t/..%2Foutside.jsonl"},
        {"path": "file:///t/%2Fetc%2Fpasswd"},
        {"path": "file:///t/.."},
        {"path": "file:///"},
        {"path": 5},
        {"path": "file://[/x"},
        {"action": "add"},
        [],
    ],
)
def test_a_log_of_spark_that_names_files_elsewhere(tmp_path: Path, entry: Any) -> None:
    (tmp_path / "outside.jsonl").write_text('{"_vs": 1}\n')
    (tmp_path / "t" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "t" / "_spark_metadata" / "0").write_text("v1\n" + json.dumps(entry))
    with pytest.raises(FormatError, match="not a log of Spark's file sink"):
        open_stream(tmp_path / "t")


def test_names_that_only_look_like_numbers_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "²").write_text("v1\n")
    with pytest.raises(FormatError, match="a directory without data files"):
        open_stream(tmp_path)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "real.jsonl").write_text('{"_vs": 1}\n')
    (tmp_path / "t" / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    assert _starts(tmp_path / "t") == [1]
