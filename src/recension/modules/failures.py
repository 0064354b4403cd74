"""What is said when a user's code fails: the module, the window and what it was given, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from recension.core.errors import ModuleError
from recension.core.events import Event
from recension.core.time_kind import describe_time_in_message
from recension.modules.members import Window

SHOWN: Final = 5
"""How many rows of those a module was given are in an error."""


def failure(module: str, reason: str, window: Window, given: Sequence[Any]) -> ModuleError:
    """The error.

    >>> print(failure("Median", "it is tired", Window(0, 5), [1, 2]))
    module Median in the window [0, 5): it is tired; it was given 1, 2
    """
    return ModuleError(f"module {module} in the window {interval(window)}: {reason}; {shown(given)}")


def said(why: Exception) -> str:
    """An exception as one line."""
    return f"{type(why).__name__}: {(str(why).splitlines() or [''])[0]}"


def interval(window: tuple[int, int]) -> str:
    """A lifetime as people write it."""
    start, end = window
    return f"[{describe_time_in_message(start)}, {describe_time_in_message(end)})"


def shown(given: Sequence[Any]) -> str:
    """The first of what was given, and how many more there are."""
    rows = [str(row) if isinstance(row, Event) else repr(row) for row in given[:SHOWN]]
    more = f" and {len(given) - SHOWN} more" if len(given) > SHOWN else ""
    return f"it was given {', '.join(rows) or 'nothing'}{more}"
