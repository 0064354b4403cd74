"""The worker processes of a session.

They are forked, so that a query needs not be sent: functions written anywhere, lambdas too, are there. A
worker ends when it is told to, when the session is gone, or when the process that forked it is.

Assumes     messages are answered in order; at most `MOST_AT_ONCE` wait for their answers.
Guarantees  an error in a worker is raised here as it is; one that has died is an error, never a wait.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

import pyarrow as pa

from recension.core.errors import RecensionError, describe_error
from recension.runners.workers.parcels import Parcel

# While workers compute one answer, the session prepares what comes next.
MOST_AT_ONCE: Final = 2
START_WITHIN = 30.0
_PATIENCE: Final = 5.0
# How often an idle worker looks whether its parent is still there, in seconds.
_LOOK: Final = 2.0
_END: Final = b""
_STARTED: Final = b"started"


class WorkerError(Exception):
    """Where an error arose in a worker; the cause of the error that is raised here."""


class _Seat(NamedTuple):
    """What the session and one worker share."""

    requests: list[Parcel]
    answers: list[Parcel]


class Crew:
    """Processes that each have an object, and call its methods."""

    def __init__(self, make: Callable[[int], Any], size: int) -> None:
        """``make(number)`` gives the object of a worker, and is called there."""
        if "fork" not in multiprocessing.get_all_start_methods():
            raise RecensionError(
                "workers need a system that can fork processes, such as Linux: leave them out"
            )
        if multiprocessing.current_process().daemon:
            raise RecensionError("a process of a multiprocessing pool cannot have workers: leave them out")
        self._shared = _parcels()
        self._seats = [_Seat(_parcels(), _parcels()) for _ in range(size)]
        self._posted = self._answered = 0
        self._waiting: list[set[int]] = []
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._end = weakref.finalize(self, _stop, os.getpid(), self._pipes, self._processes, self._parcels())
        self._fork(make)

    def _fork(self, make: Callable[[int], Any]) -> None:
        context = multiprocessing.get_context("fork")
        for number, seat in enumerate(self._seats):
            ours, theirs = context.Pipe()
            earlier = [*self._pipes, ours]
            arguments = (make, number, theirs, self._shared, seat, earlier, os.getpid())
            process = context.Process(target=_serve, args=arguments, daemon=True, name=f"recension-{number}")
            # What is not written yet would be written twice.
            sys.stdout.flush()
            sys.stderr.flush()
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._require_start()

    def _require_start(self) -> None:
        """Whoever is forked while another thread holds a lock of Arrow never starts: that is an error."""
        end = time.monotonic() + START_WITHIN
        for number, pipe in enumerate(self._pipes):
            if not pipe.poll(max(0.0, end - time.monotonic())):
                for process in self._processes:
                    process.kill()
                self.stop()
                raise RecensionError(
                    f"worker {number} did not start within {START_WITHIN:g} s: a process cannot be forked "
                    "while another of its threads is at work in Arrow; open the session before such threads"
                )
            try:
                pipe.recv_bytes()
            except (EOFError, OSError):
                raise self._death(number) from None

    def _parcels(self) -> list[Parcel]:
        return [*self._shared, *(parcel for seat in self._seats for parcels in seat for parcel in parcels)]

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self._processes]

    @property
    def unanswered(self) -> int:
        """How many messages wait for their answers."""
        return self._posted - self._answered

    @property
    def is_full(self) -> bool:
        """Must an answer be collected before the next message?"""
        return self.unanswered >= MOST_AT_ONCE

    def post(
        self,
        method: str,
        shared: Sequence[Any] = (),
        own: Sequence[Any] | None = None,
        *,
        is_borrowed: bool = False,
    ) -> None:
        """Let every worker call a method with arguments that all share, and with one of its own.

        With ``own``, a worker for which it has None is left out. Shared arguments that are borrowed are
        overwritten after the call: the method must copy what it keeps.
        """
        assert not self.is_full
        place = self._posted % MOST_AT_ONCE
        extent = self._shared[place].write(shared)
        called = set(range(len(self))) if own is None else {n for n, it in enumerate(own) if it is not None}
        self._waiting.append(called)
        self._posted += 1
        for number in called:
            mine = None if own is None else self._seats[number].requests[place].write(own[number])
            try:
                self._pipes[number].send_bytes(pickle.dumps((method, place, extent, mine, is_borrowed)))
            except OSError:
                raise self._death(number) from None

    def collect(self) -> dict[int, Any]:
        """The answers to the oldest message that waits for them, by worker; or the first error."""
        place = self._answered % MOST_AT_ONCE
        self._answered += 1
        answers, error = dict[int, Any](), None
        for number in sorted(self._waiting.pop(0)):
            is_error, extent = self._receive(number)
            answer = self._seats[number].answers[place].read(extent)
            if is_error:
                error = error or answer
            answers[number] = answer
        if error is not None:
            why, trace = error
            raise why from WorkerError(trace)
        return answers

    def _receive(self, number: int) -> Any:
        pipe, process = self._pipes[number], self._processes[number]
        try:
            ready = wait([pipe, process.sentinel])
            if pipe in ready or pipe.poll():
                return pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            pass
        raise self._death(number)

    def _death(self, number: int) -> RecensionError:
        process = self._processes[number]
        process.join(_PATIENCE)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        return RecensionError(f"worker {number} of {len(self)}, process {process.pid}, {how}{hint}")

    def stop(self) -> None:
        """End all processes."""
        self._end()


def _parcels() -> list[Parcel]:
    return [Parcel() for _ in range(MOST_AT_ONCE)]


def _stop(owner: int, pipes: list[Connection], processes: list[Any], parcels: list[Parcel]) -> None:
    """End processes: they are asked to, and killed if they do not. Those of a parent are none of ours."""
    if os.getpid() != owner:
        return
    for pipe in pipes:
        with suppress(OSError):  # it has ended
            pipe.send_bytes(_END)
    for pipe, process in zip(pipes, processes, strict=True):
        process.join(_PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()
        pipe.close()
    for parcel in parcels:
        parcel.close()


def _serve(
    make: Callable[[int], Any],
    number: int,
    pipe: Connection,
    shared: list[Parcel],
    seat: _Seat,
    earlier: list[Connection],
    parent: int,
) -> None:
    """The life of a worker."""
    # An interrupt from the keyboard reaches all processes; the session decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The session says what its operators warn of.
    logging.getLogger("recension").disabled = True
    gc.freeze()
    for other in earlier:
        other.close()
    served = _Served(make, number)
    # Where another thread was at work in Arrow, its pool of threads does not work here: better found now.
    pa.table({"a": [1]}).group_by("a").aggregate([])
    pipe.send_bytes(_STARTED)
    while (message := _next_message(pipe, parent)) != _END:
        method, place, extent, mine, is_borrowed = pickle.loads(message)
        arguments = list(shared[place].read(extent, is_borrowed=is_borrowed))
        if mine is not None:
            arguments.append(seat.requests[place].read(mine))
        is_error, answer = served.call(method, arguments)
        del arguments
        pipe.send_bytes(pickle.dumps((is_error, seat.answers[place].write(answer))))
        del answer


def _next_message(pipe: Connection, parent: int) -> bytes:
    """The next message; that of the end if nobody is there to send one."""
    try:
        while not pipe.poll(_LOOK):
            if os.getppid() != parent:
                return _END
        return pipe.recv_bytes()
    except (EOFError, OSError):
        return _END


class _Served:
    """The object of a worker, made when it is called first: errors have somewhere to go then."""

    def __init__(self, make: Callable[[int], Any], number: int) -> None:
        self._make, self._number, self._object = make, number, None

    def call(self, method: str, arguments: Sequence[Any]) -> tuple[bool, Any]:
        """What a method gives; or the error in it, as can be sent, and where it arose."""
        try:
            if self._object is None:
                self._object = self._make(self._number)
            return False, getattr(self._object, method)(*arguments)
        except BaseException as why:
            return True, (_portable_error(why), "".join(traceback.format_exception(why)))


def _portable_error(why: BaseException) -> BaseException:
    """The error itself if it can be sent, else one that says the same."""
    try:
        copied = pickle.loads(pickle.dumps(why))
        if isinstance(why, RecensionError) and str(copied) == str(why):
            return why
    except Exception:
        pass
    return RecensionError(str(why) if isinstance(why, RecensionError) else describe_error(why))
