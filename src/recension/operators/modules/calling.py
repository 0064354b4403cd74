"""Calling a user's code: whatever goes wrong is told with the module, the window and its payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from recension.core.errors import ModuleError
from recension.modules.failures import failure, said
from recension.modules.members import Payloads, Window
from recension.modules.repetition import NotDeterministicError, twice

Given: TypeAlias = Payloads | Callable[[], Payloads]
"""What a module was given; or where to find it, if it is needed for an error only."""


class Caller:
    """Calls one module; ``verify`` makes every call twice and compares."""

    def __init__(self, name: str, *, verify: bool) -> None:
        self.name, self.verify = name, verify

    def call(self, fn: Callable[[], Any], window: Window, given: Given) -> Any:
        """What the module's code gives."""
        return self.guarded((lambda: twice(fn)) if self.verify else fn, window, given)

    def guarded(self, fn: Callable[[], Any], window: Window, given: Given, verb: str = "") -> Any:
        """The same once, whatever is verified; ``verb`` names the method if it is not `compute`."""
        try:
            return fn()
        except NotDeterministicError as why:
            raise self.failure(f"{verb}{why}", window, given) from None
        except Exception as why:
            raise self.failure(f"{verb}{said(why)}", window, given) from why

    def failure(self, reason: str, window: Window, given: Given) -> ModuleError:
        """An error in one line."""
        return failure(self.name, reason, window, given() if callable(given) else given)
