"""Two trees are measured in turn and compared. Timings are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.harness import Result

from benchmarks import against, windows


def test_of_all_rounds_the_best_counts() -> None:
    found = against._best(Result("s", "m", 10, 5, [3.0, 2.0], [1.0, 2.0], 4.0, 9.0))
    assert (found.seconds, found.cpu_seconds, found.answer) == ([2.0], [1.0], 5)


def test_only_what_both_trees_have_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against.Tree, "names", lambda _, suite: ["W1, hopping", "W3, tumbling"])
    trees = against.Tree(tmp_path, tmp_path), against.Tree(tmp_path, tmp_path)
    found = list(against._measurements(windows.SUITE, trees, 500_000, None, "W"))
    # Of a measurement with larger sizes only, the smallest stands.
    assert found == [("W1, hopping", 200_000), ("W3, tumbling", 1_000_000)]
    assert list(against._measurements(windows.SUITE, trees, 500_000, None, "W3")) == found[1:]
    assert list(against._measurements(windows.SUITE, trees, 0, 1_000, "W3")) == [("W3, tumbling", 1_000)]


def test_a_suite_that_came_later_has_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = against.Tree(tmp_path, tmp_path)
    assert list(against._measurements(windows.SUITE, (tree, tree), 500_000, None, "")) == []
    assert capsys.readouterr().err == f"windows: not in {tmp_path}\n"


def test_what_is_no_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="gone: neither a folder nor a revision of this repository"):
        against._checkout("gone", tmp_path)
