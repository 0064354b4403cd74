"""Who may be inside a session: one thread at a time, once, and nobody after an error in a step.

Operators change their state in place. Two threads would interleave their changes, a function of the query
that calls the session would find it half way through a step, and after an error some operators know of an
element that others do not. All three are refused, and the message says what to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from recension.core.errors import RecensionError

S = TypeVar("S", bound="Guarded")
P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """Stands at the door of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: tuple[int, str] | None = None
        self._failure: str | None = None

    @contextmanager
    def inside(self, method: str, *, even_failed: bool = False) -> Iterator[None]:
        """Nobody else is in while this runs."""
        if not self._lock.acquire(blocking=False):
            raise RecensionError(self._refusal(method))
        try:
            if self._failure is not None and not even_failed:
                raise RecensionError(self._failure)
            self._inside = threading.get_ident(), method
            yield
        finally:
            self._inside = None
            self._lock.release()

    def _refusal(self, method: str) -> str:
        thread, other = self._inside or (0, "a method")
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
    def step(self) -> Iterator[None]:
        """State is changed in place: any error in here, an interrupt too, leaves it in pieces."""
        try:
            yield
        except BaseException as why:
            method = self._inside[1] if self._inside else "a step"
            reason = (str(why).splitlines() or [""])[0]
            told = reason if isinstance(why, RecensionError) else f"{type(why).__name__}: {reason}"
            self._failure = (
                f"the session failed in {method} ({told}) and cannot go on: restore "
                "its last snapshot, into this session or a new one"
            )
            raise

    def mend(self) -> None:
        """The state is whole again."""
        self._failure = None


class Guarded:
    """What has a guard."""

    def __init__(self) -> None:
        self._guard = Guard()


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that only one thread may be in, of a session that has not failed."""

    @wraps(method)
    def entered(session: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with session._guard.inside(method.__name__):
            return method(session, *args, **kwargs)

    return entered
