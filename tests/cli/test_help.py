"""Help, completion, and signs of life."""

from __future__ import annotations

from pathlib import Path

import pytest

from recension.cli import main

COMMANDS = ["run", "explain", "history", "check", "diff", "generate", "modules", "demo", "calibrate", "bench"]


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_take_no_value(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Usage: recension" in told
    assert "bool" not in told


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
