"""The page "Add a front end" of CONTRIBUTING.md, followed: its code is taken from the page and run."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.architecture.test_add_an_operator import ROOT

import recension as rc
from recension.api.wording import method_names, said_as
from recension.cli import main
from recension.cli.query_file import FRONT_ENDS
from recension.gate.files import read_history
from recension.testing import assert_equivalent

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Add a front end")[1]
PAGE = PAGE.split("\n## ")[0]
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SOURCES = ROOT / "src" / "recension"
LEASES = pa.table(
    {"_vs": [1, 2, 3], "_ve": [5, 6, 7], "user": ["ann", "bob", "ann"], "bytes": [200.0, 20.0, 300.0]}
)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The front end is there, and its folder has rows."""
    (tmp_path / "steps.py").write_text(CODE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("steps", tmp_path / "steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(FRONT_ENDS, ".steps", module.read_steps)
    monkeypatch.chdir(tmp_path)
    pq.write_table(LEASES, tmp_path / "leases.parquet")
    return module


def written(*lines: str) -> str:
    Path("q.steps").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "q.steps"


OF_RUNNERS = {"skew"}  # an argument of rc.spark.stream, which is no step of a query
FROM = "from leases user string bytes float64"


@pytest.mark.usefixtures("steps")
def test_the_command_runs_and_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    query = written(FROM, "above bytes 100", "count user")
    assert main(["run", query, "-i", "leases=leases.parquet", "--history", "h.parquet"]) == 0
    expected = [rc.Event({"user": "ann", "n": n}, vs, ve) for n, vs, ve in ((1, 1, 3), (2, 3, 5), (1, 5, 7))]
    assert_equivalent(read_history("h.parquet"), expected)
    assert main(["explain", query]) == 0
    assert "where bytes > 100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "keep usr",
            "KEEP: there is no column 'usr' (did you mean 'user'?); the columns are user (string), ",
        ),
        ("above user 3", "ABOVE: cannot compute user > 3"),
        ("count usr", "COUNT: there is no column 'usr'"),
        ("every 0", "EVERY: "),
        ("sort user", "SORT: there is no such step; there are from, above, keep, every, count"),
    ],
)
@pytest.mark.usefixtures("steps")
def test_errors_speak_of_the_step(step: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", written(FROM, step)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"recension: q.steps, line 2: {said}"), told
    assert told.count("\n") == 1
    assert not [name for name in ("select", "where:", "group_by", "rc.") if name in told], told


def test_the_innermost_clause_says_it_and_leaves_the_python_out() -> None:
    leases = rc.source("leases", {"user": "string"})
    with pytest.raises(rc.SchemaError) as why, said_as("FROM"), said_as("SELECT", at="3:8"):
        leases.agg(answer="user")
    with pytest.raises(rc.SchemaError) as python:
        leases.agg(answer=3)  # type: ignore[arg-type]
    assert str(python.value) == "agg: 3 is not an aggregate; use rc.count(), rc.sum('column'), ..."
    with pytest.raises(rc.SchemaError) as sql, said_as("FROM"), said_as("SELECT", at="3:8"):
        leases.agg(answer=3)  # type: ignore[arg-type]
    assert str(sql.value) == "3:8: SELECT: 3 is not an aggregate"
    assert str(why.value).startswith("3:8: SELECT: ")
    with pytest.raises(rc.SchemaError) as join, said_as("JOIN", at="3:8"):
        leases.join(leases)
    assert str(join.value) == "3:8: JOIN: nothing says which events match"
    with pytest.raises(rc.SchemaError) as cross, said_as("CROSS JOIN", at="3:8"):
        leases.join(leases, on="user", how="cross")
    assert str(cross.value) == "3:8: CROSS JOIN: every pair matches"


def test_an_error_in_data_keeps_its_place() -> None:
    with pytest.raises(rc.StreamError) as why, said_as("FROM"):
        raise rc.StreamError("_vs is null", file="join", row=3)
    assert str(why.value) == "FROM: join: row 3: _vs is null"


def front_ends() -> set[Path]:
    """The packages that read queries; the command itself reads Python."""
    packages = {read.__module__.split(".")[1] for read in FRONT_ENDS.values()}
    return {SOURCES / name for name in packages - {"cli"}}


def imported(code: str) -> set[str]:
    """The modules of the library that code imports."""
    nodes = list(ast.walk(ast.parse(code)))
    found = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "recension"}


def test_a_front_end_knows_what_users_call_and_nothing_below() -> None:
    codes = [
        CODE,
        *(file.read_text(encoding="utf-8") for place in front_ends() for file in place.rglob("*.py")),
    ]
    own = {f"recension.{place.name}" for place in front_ends()}
    for code in codes:
        for name in imported(code):
            is_known = (
                name == "recension" or name.startswith("recension.api") or name == "recension.core.errors"
            )
            assert is_known or any(name.startswith(package) for package in own), name


def test_methods_are_named_in_messages_by_the_names_users_call() -> None:
    """Or a front end could not replace them: whatever a message of a step begins with is a method."""
    begun: set[str] = set()
    for folder in ("api", "plan"):
        for file in (SOURCES / folder).rglob("*.py"):
            raised = (
                n for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Raise)
            )
            for text in filter(None, map(first_text, raised)):
                begun |= set(re.findall(r"^([a-z_]+)(?:\([^)]*\))?: ", text))
    assert len(begun) > 20
    assert begun - method_names() - OF_RUNNERS == set()


def first_text(raised: ast.Raise) -> str:
    """How the message of an error begins."""
    call = raised.exc
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    part = given.values[0] if isinstance(given, ast.JoinedStr) and given.values else given
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""
