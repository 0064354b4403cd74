"""Why off Parquet files: of a large one only the parts are read that an answer reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.cli import main
from recension.cli.inputs import with_policy
from recension.core.errors import RecensionError
from recension.core.formats.parquet import ParquetRows
from recension.gate.files import open_stream
from recension.lineage import Why, explain_answer
from recension.lineage.inputs import FileInput, read_inputs

SCHEMA = pa.schema([("user", pa.string()), ("site", pa.string())])
leases = rc.source("leases", SCHEMA)
COUNTS = leases.group_by("site").agg(n=rc.count(), speculate="eager")
CONTROL = [("_kind", pa.string()), ("_vs", pa.int64()), ("_ve", pa.int64()), ("_new_ve", pa.int64())]


def row(kind: str, vs: int, ve: int | None = None, new_ve: int | None = None, **payload: str) -> Any:
    return {"_kind": kind, "_vs": vs, "_ve": ve, "_new_ve": new_ve, "user": None, "site": None} | payload


def day(rows: int = 400) -> list[Any]:
    """Leases at 20 sites; one in ten is made longer, and there are CTIs, some of which do not advance."""
    found = []
    for n in range(rows):
        payload: Any = {"user": f"u{n}", "site": f"site{n % 20}"}
        found.append(row("insert", n, n + 30, **payload))
        if n % 10 == 0:
            found.append(row("retract", n, n + 30, n + 40, **payload))
        if n % 25 == 0:
            found += [row("cti", n), row("cti", n - 1)]
    return found


def write(folder: Path, rows: list[Any], files: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    size = -(-len(rows) // files)
    for number in range(files):
        table = pa.Table.from_pylist(
            rows[number * size : (number + 1) * size], pa.schema([*CONTROL, *SCHEMA])
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=50)
    return folder


def explain(path: Path, small: int, at: int = 207, query: rc.Stream = COUNTS) -> Why:
    inputs = {"leases": open_stream(path, schema=SCHEMA)}
    return explain_answer(query.plan, inputs, {"site": "site7"}, at, small=small)


def test_a_part_says_the_same_as_the_whole_down_to_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "day", day())
    assert str(explain(path, 0)) == str(explain(path, 10_000))
    assert "final after leases, row 259: cti 225" in str(explain(path, 0))


def test_only_row_groups_that_have_a_wanted_row_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "day", day(2000))
    read: list[int] = []
    real = ParquetRows.batches_with

    def counted(self: ParquetRows, *about: Any) -> Any:
        for first, batch in real(self, *about):
            read.append(len(batch))
            yield first, batch

    monkeypatch.setattr(ParquetRows, "batches_with", counted)
    found = explain(path, 0)
    assert len(found.events()) == 2
    assert 0 < sum(read) <= 300, "of 2,360 rows"


def test_a_fault_of_the_asked_key_names_its_file_and_row_and_others_do_not_matter(tmp_path: Path) -> None:
    rows = day()
    rows.insert(230, row("retract", 190, 204, 205, user="nobody", site="site8"))
    path = write(tmp_path / "other", rows)
    assert explain(path, 0).answer.payload["n"] == 2
    with pytest.raises(RecensionError, match="retracts an event that is not there"):
        explain(path, 10_000)
    rows[230] = row("retract", 190, 204, 205, user="nobody", site="site7")
    with pytest.raises(RecensionError, match=r"0\.parquet: row 231: retracts an event that is not there"):
        explain(write(tmp_path / "own", rows), 0)


def test_what_opens_and_closes_is_read_whole(tmp_path: Path) -> None:
    rows = [
        row("open", 200, user="eve", site="site7"),
        *day(),
        row("close", 200, 500, user="eve", site="site7"),
    ]
    path = write(tmp_path / "day", rows)
    found = explain(path, 0)
    assert found.answer.payload["n"] == 3
    assert str(found) == str(explain(path, 10_000))


@pytest.mark.parametrize("policy", ["drop", "adjust"])
def test_where_elements_may_be_dropped_all_are_read(tmp_path: Path, policy: Any) -> None:
    path = write(tmp_path / "day", day())
    plan = with_policy(COUNTS.plan, policy)
    (found,) = read_inputs(plan, {"leases": open_stream(path, schema=SCHEMA)}, small=0).values()
    assert not isinstance(found, FileInput)


def test_the_command_takes_a_recording_in_the_place_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, path = tmp_path / "query.py", write(tmp_path / "day", day(50))
    query.write_text(
        "import recension as rc\n"
        "leases = rc.source('leases', {'user': 'string', 'site': 'string'})\n"
        "query = leases.group_by('site').agg(n=rc.count(), speculate='eager')\n"
    )
    record = ["--record", str(tmp_path / "seen")]
    assert (
        main(["run", str(query), "-i", f"leases={path}", "--output", str(tmp_path / "o.csv"), *record]) == 0
    )
    ask = ["--where", "site=site7", "--at", "30"]
    assert main(["why", str(query), "-i", f"leases={tmp_path / 'seen'}", *ask]) == 0
    assert "2 leases alive in [27, 37): u7, u27" in capsys.readouterr().out
    short = rc.session(COUNTS)
    short.push("leases", [rc.Insert({"user": "u", "site": "s"}, 0, 1)])
    with rc.record(short, tmp_path / "late"):
        pass
    assert main(["why", str(query), "-i", f"leases={tmp_path / 'late'}", *ask]) == 2
    assert "what came before is not in it" in capsys.readouterr().err
    with rc.record(rc.session(COUNTS), tmp_path / "answers", edges=["query"]):
        pass
    assert main(["why", str(query), "-i", f"leases={tmp_path / 'answers'}", *ask]) == 2
    assert "the recording has query" in capsys.readouterr().err
