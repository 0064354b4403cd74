"""Who may be inside a session: one thread at a time, once, and nobody after an error in a step.

Operators change their state in place. Two threads would interleave their changes, a function of the query
that calls the session would find it half way through a step, and after an error some operators know of an
element that others do not. All three are refused, and the message says what to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from recension.core.errors import RecensionError, describe_error, first_line
from recension.core.memory_pool import MemoryPool

S = TypeVar("S", bound="LockedSession")
P = ParamSpec("P")
R = TypeVar("R")


class SessionLock:
    """Lets one thread at a time into a session, and remembers whether the session has failed."""

    def __init__(self, pool: MemoryPool | None) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._holder: tuple[int, str] | None = None
        self._failure: str | None = None

    def hold(self, method: str, *, even_failed: bool = False) -> Held:
        """Nobody else is inside while this runs, with the session's memory; ``method`` is for messages."""
        return Held(self, method, even_failed)

    def enter(self, method: str, even_failed: bool) -> AbstractContextManager[None] | None:
        """Let this thread in, or refuse it; gives the session's memory, if it has any of its own."""
        if not self._lock.acquire(blocking=False):
            raise RecensionError(self._describe_conflict(method))
        if self._failure is not None and not even_failed:
            self._lock.release()
            raise RecensionError(self._failure)
        self._holder = threading.get_ident(), method
        return None if self._pool is None else self._pool.use()

    def leave(self) -> None:
        """The thread that was inside goes."""
        self._holder = None
        self._lock.release()

    def _describe_conflict(self, method: str) -> str:
        thread, other = self._holder or (0, "a method")
        if thread == threading.get_ident():
            return (
                f"{method} was called from within {other} of the same session: a function of a query must "
                "not use the session that runs it"
            )
        return (
            f"a session belongs to one thread at a time: {method} was called while another thread was in "
            f"{other}; put a lock of your own around the calls, or let one thread make them all"
        )

    @contextmanager
    def fail_on_error(self) -> Iterator[None]:
        """State is changed in place: any error in here, an interrupt too, fails the session."""
        try:
            yield
        except BaseException as why:
            self.note_error(why)
            raise

    def note_error(self, why: BaseException) -> None:
        """A step has ended with this error: the session has failed."""
        method = self._holder[1] if self._holder else "a step"
        reason = first_line(why) if isinstance(why, RecensionError) else describe_error(why)
        self._failure = (
            f"the session failed in {method} ({reason}) and cannot go on: restore "
            "its last snapshot, into this session or a new one"
        )

    def clear_failure(self) -> None:
        """The state is whole again."""
        self._failure = None


class Held:
    """A thread inside a session, for as long as a ``with`` block: a generator would take longer."""

    __slots__ = ("_even_failed", "_lock", "_memory", "_method")

    def __init__(self, lock: SessionLock, method: str, even_failed: bool) -> None:
        self._lock, self._method, self._even_failed = lock, method, even_failed

    def __enter__(self) -> None:
        self._memory = self._lock.enter(self._method, self._even_failed)
        if self._memory is not None:
            try:
                self._memory.__enter__()
            except BaseException:
                self._lock.leave()
                raise

    def __exit__(self, *error: Any) -> None:
        try:
            if self._memory is not None:
                self._memory.__exit__(*error)
        finally:
            self._lock.leave()


class LockedSession:
    """The part of a session that `run_exclusively` needs."""

    def __init__(self, pool: MemoryPool | None = None) -> None:
        self._lock = SessionLock(pool)


def run_exclusively(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that only one thread may be in, of a session that has not failed."""

    @wraps(method)
    def call_alone(session: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with session._lock.hold(method.__name__):
            return method(session, *args, **kwargs)

    return call_alone
