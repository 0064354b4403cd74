"""A bound on the memory of a session: what it says, what it refuses, and that it is kept."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recension as rc

# Takes in live events, two a key, and says what of the process is resident. A limit on private memory makes
# the process fail that holds too much of it; pages of files do not count, the system can take them back.
_PROGRAM = """
import json, resource, sys
import numpy as np, pyarrow as pa
import recension as rc

memory, spill, events, private = json.loads(sys.argv[1])
bound = {"memory": memory, "spill": spill} if memory else {}
s = rc.source("s", {"k": "string", "v": "float64"})
query = s.group_by("k").agg(n=rc.count(), total=rc.sum("v"))
live = rc.session(query, batch_size=8192, history_limit=0, **bound)
draw, size = np.random.default_rng(0), 8192


def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) * 1024


def push(start):
    vs, keys = np.arange(start, start + size), np.char.mod("key-%09d", draw.integers(0, events // 2, size))
    rows = {"_kind": ["insert"] * size, "_vs": vs, "_ve": vs + events, "k": keys, "v": draw.random(size)}
    live.push("s", pa.table(rows))
    live.advance("s", start)
    return live.read().to_arrow()


push(0)
if private:
    limit = status("VmData") + private
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
before, answers, anonymous = status("RssAnon"), 0, []
for start in range(size, events, size):
    answers += push(start).num_rows
    anonymous.append(status("RssAnon") - before)
use = live.memory()
given = {"answers": answers, "anonymous": max(anonymous)}
if use:
    given |= {"resident": use.resident_bytes, "spilled": use.spilled_bytes}
print(json.dumps(given), flush=True)
if not private:
    sys.stdin.read()
"""

MB = 10**6


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _run(*arguments: object) -> tuple[int, dict[str, int], str]:
    out, errors = (process := _start(*arguments)).communicate()
    return process.returncode, json.loads(out) if out else {}, errors


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_bounded_session_goes_on_where_another_dies(tmp_path: Path) -> None:
    """About 400,000 live events of 200,000 keys: some 150 MB of state."""
    code, _, errors = _run(None, None, 400_000, 120 * MB)
    assert code != 0
    assert "emory" in errors or "llocate" in errors
    code, bounded, errors = _run("32MB", str(tmp_path), 400_000, 120 * MB)
    assert code == 0, errors
    assert "state has outgrown half of its memory of 32 MB" in errors
    assert errors.count("outgrown") == 1
    assert bounded["resident"] <= 32 * MB
    assert bounded["spilled"] > 80 * MB
    _, free, _ = _run(None, None, 400_000, 0)
    assert bounded["answers"] == free["answers"]
    assert bounded["anonymous"] < 32 * MB + 40 * MB < free["anonymous"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    process = _start("16MB", str(tmp_path), 100_000, 0)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["spilled"] > 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(tmp_path.iterdir()) == []


def _grown(live: rc.Session, start: int, size: int) -> None:
    keys = (f"key number {number} " * 100 for number in range(start, start + size))
    live.push("s", [rc.Insert({"k": key}, start, start + 10**6) for key in keys])


def _small_session(spill: Path, monkeypatch: pytest.MonkeyPatch) -> rc.Session:
    monkeypatch.setattr("recension.core.memory_pool.LEAST_LIMIT", 0)
    query = rc.source("s", {"k": "string"}).group_by("k").agg(n=rc.count(), speculate="eager")
    return rc.session(query, memory="8MB", spill=spill)


def test_what_is_in_files_is_in_the_metrics_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = _small_session(tmp_path, monkeypatch)
    _grown(live, 0, 10)
    use = live.memory()
    assert use is not None
    assert (use.limit, use.spilled_bytes) == (8 * MB, 0)
    for start in range(10, 10_000, 2000):
        _grown(live, start, 2000)
    use = live.memory()
    assert use is not None
    assert use.spilled_bytes > 1 * MB
    warnings = [warning for line in live.metrics() for warning in line.warnings]
    assert len(warnings) == 1
    assert f"files in {tmp_path}" in warnings[0]
    assert [record.message for record in caplog.records] == warnings


def test_a_full_disk_fails_the_session_and_a_snapshot_restores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = _small_session(tmp_path, monkeypatch)
    _grown(live, 0, 10)
    live.read()
    saved = live.snapshot()

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(rc.RecensionError, match="No space left on device"):
            _grown(live, 10, 8000)
        with pytest.raises(rc.RecensionError, match=r"the session failed in push \(state cannot be written"):
            live.read()
    live.restore(saved)
    _grown(live, 10, 8000)
    assert live.history().to_arrow().num_rows == 8010


def test_a_session_without_a_bound_has_none(tmp_path: Path) -> None:
    source = rc.source("s", {"k": "string"})
    assert rc.session(source).memory() is None
    refused: list[tuple[dict[str, Any], str]] = [
        ({"spill": tmp_path}, "needs memory= as well"),
        ({"memory": "1MB"}, "at least 16MB"),
        ({"memory": "lots"}, '"512MB" or "2GiB"'),
        ({"memory": "1GB", "spill": tmp_path / "missing"}, "no directory"),
    ]
    for given, message in refused:
        with pytest.raises(rc.RecensionError, match=message):
            rc.session(source, **given)
