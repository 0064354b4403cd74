"""Help, completion, and signs of life."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from recension.cli import load_commands, main
from recension.cli.root import _COMMANDS

COMMANDS = [
    *("run", "explain", "history", "check", "diff", "generate", "modules", "demo", "calibrate", "bench"),
    "repair",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_take_no_value(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Usage: recension" in told
    assert "bool" not in told


def test_the_list_of_commands_is_that_of_their_modules(capsys: pytest.CaptureFixture[str]) -> None:
    """It is written before they are loaded."""
    own: Any = typer.main.get_command(load_commands())
    assert sorted(own.commands) == sorted(_COMMANDS)
    for name, command in own.commands.items():
        assert " ".join(command.help.split("\n\n")[0].split()) == _COMMANDS[name][1]
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f" {name} " in told for name in own.commands)


def test_help_loads_no_engine() -> None:
    program = (
        "import sys; from recension.cli import main; main(['--help']); main(['hlep']); "
        "sys.exit(str([m for m in ('numpy', 'pyarrow', 'recension.core.batch') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
    assert "No such command 'hlep'" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(
    shell: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    assert main(["--show-completion"]) == 0
    assert f"_RECENSION_COMPLETE=complete_{shell}" in capfd.readouterr().out


def test_what_the_shell_is_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and options by name; of paths nothing, so that the shell completes them itself."""
    monkeypatch.setenv("_RECENSION_COMPLETE", "complete_bash")
    for typed, word, told in (
        ("recension ge", 1, {"generate"}),
        ("recension run --on", 2, {"--on-violation"}),
        ("recension run --on-violation a", 3, {"adjust"}),
        ("recension run q", 2, set[str]()),
        ("recension history s.csv --output x", 4, set[str]()),
    ):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(word))
        assert main([]) == 0
        assert set(capfd.readouterr().out.split()) == told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sign"),
    [
        (["history", "s.parquet"], "reading s.parquet: 2,000 elements"),
        (["check", "s.parquet"], "reading s.parquet: 2,000 elements"),
        (["diff", "s.parquet", "s.parquet"], "reading s.parquet: 2,000 elements"),
        (["run", "q.py", "-i", "s=s.parquet", "-o", "o.csv"], "batches read"),
        (["generate", "-o", "t.csv", "--size", "2000"], "t: 2,000 elements"),
        (["calibrate", "--quick", "-o", "c.json"], "measuring extents"),
    ],
)
def test_signs_of_life_on_a_terminal_only(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sign: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("recension.cli.progress._PATIENCE", -1)
    query = 'import recension as rc\nquery = rc.source("s", {"value": "int64", "text": "string"})\n'
    (tmp_path / "q.py").write_text(query)
    assert main(["generate", "-o", "s.parquet", "--size", "2000"]) == 0
    assert capfd.readouterr().err == ""
    assert main(arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(arguments) == 0
    on_terminal, shown = capfd.readouterr()
    assert sign in shown
    if arguments[0] != "calibrate":
        assert on_terminal == out
