"""Scripts of the peers that need no environment of their own agree; a wrong answer is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from benchmarks.peers import duckdb_sql, ours, polars_frames
from benchmarks.peers.__main__ import PEERS, WORKLOADS, _differences
from benchmarks.peers.data import write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("peers")
    write(place, 4000)
    return place


def _answer(answer: Callable[..., Any], workload: str, folder: Path, out: Path) -> Path:
    out.mkdir()
    pq.write_table(answer(workload, folder, out), out / "answer.parquet")
    return out


@pytest.mark.parametrize("workload", WORKLOADS)
def test_answers_are_those_of_duckdb(workload: str, folder: Path, tmp_path: Path) -> None:
    theirs = _answer(duckdb_sql.answer, workload, folder, tmp_path / "duckdb")
    for name, script in (("ours", ours.answer), ("polars", polars_frames.answer)):
        assert _differences(_answer(script, workload, folder, tmp_path / name), theirs, workload) == (0, 0)
    other = _answer(duckdb_sql.answer, "W3" if workload == "W1" else "W1", folder, tmp_path / "other")
    if workload != "W2":
        assert max(_differences(other, theirs, workload)) > 0


def test_every_script_is_there() -> None:
    for peer in PEERS:
        assert Path(ours.__file__).with_name(peer.script).exists()
