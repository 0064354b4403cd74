"""A process that answers one request after another, each within a time: JSON lines over its stdin and stdout.

What takes long to start (a JVM) starts once; what takes too long to answer is ended, and started anew for the
next request. Only the standard library: `serve` runs in every peer's environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

Answer = dict[str, Any]
FAILED = "failed"
_LENGTH = 300


def serve(prepare: Callable[[], Callable[[Answer], Answer]]) -> None:
    """Prepare, then answer every request; an exception is an answer too, and its traceback goes to stderr."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # What libraries and the processes that they start print would stand between the replies.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A process that is killed must not take with it what it has printed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    answer = prepare()
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as why:
            traceback.print_exc()
            found = {FAILED: reason(str(why))}
        print(json.dumps(found), file=replies, flush=True)


def reason(text: str) -> str:
    """The line that says why: of Java's stack traces the innermost cause, otherwise the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines[:1])[-1].removeprefix("Caused by: ")[:_LENGTH]


def run_within(command: list[str], environment: dict[str, str], seconds: float | None) -> Answer:
    """What the last line says that a process prints; or, under `FAILED`, why there is none."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return {FAILED: f"over {seconds:.0f} s"}
    finally:
        _end(process)
    if process.returncode:
        lines = errors.strip().splitlines()
        return {FAILED: lines[-1][:_LENGTH] if lines else f"failed (exit code {process.returncode})"}
    found: Answer = json.loads(printed.strip().splitlines()[-1])
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """And all that it started, if it has not ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Worker:
    """The process, which starts with the first request."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._process: subprocess.Popen[str] | None = None
        self._replies = Queue[str]()

    def ask(self, request: Answer, seconds: float) -> Answer:
        """The answer; or, under `FAILED`, why there is none."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            reply = self._replies.get(timeout=seconds)
        except Empty:
            self.close()
            return {FAILED: f"over {seconds:.0f} s"}
        except BrokenPipeError:
            reply = ""
        if not reply:
            self.close()
            return {FAILED: f"the process ended: {self._log}"}
        found: Answer = json.loads(reply)
        return found

    def close(self) -> None:
        """End the process and all that it started."""
        if self._process is not None:
            _end(self._process)
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # of a request that nobody has read
                self._process.stdin.close()
            self._process = None

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        # The last line of a process that has ended is empty.
        self._replies = replies = Queue[str]()
        lines = self._process.stdout
        assert lines is not None
        threading.Thread(target=_pass_on, args=(lines, replies), daemon=True).start()


def _pass_on(lines: Any, replies: Queue[str]) -> None:
    for line in lines:
        replies.put(line)
    replies.put("")
