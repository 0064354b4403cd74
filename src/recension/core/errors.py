"""The errors a user can meet: each carries one line that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

Converted = TypeVar("Converted")


class RecensionError(Exception):
    """Base of every error this library raises on purpose.

    ``instead`` is what to write in Python instead. A front end of another language leaves it out: once it
    ``is_said`` in its words (`recension.api.wording`), the text stays.
    """

    def __init__(self, text: str = "", *, instead: str = "") -> None:
        super().__init__(f"{text}{instead}")
        self.instead, self.is_said = instead, False


class ModuleError(RecensionError):
    """An error in a user's function or module: its name, the window, and its arguments."""


class TimeError(RecensionError, ValueError):
    """A time, timestamp or duration that cannot be represented as ticks."""


class SchemaError(RecensionError, ValueError):
    """Columns or types that do not fit together."""


class StreamError(RecensionError, ValueError):
    """An element that no valid stream may contain, with the place it was found.

    ``position`` counts from 0 in what was looked at, whatever file and row are.
    """

    def __init__(
        self, reason: str, *, file: str | None = None, row: int | None = None, position: int | None = None
    ) -> None:
        self.reason, self.file, self.row, self.position = reason, file, row, position
        place = "".join([f"{file}: " if file else "", f"row {row}: " if row is not None else ""])
        super().__init__(place + reason)


class ElementTimeError(TimeError, StreamError):
    """An element with times of another kind than those before it, such as timestamps among ticks."""


class FormatError(StreamError):
    """A file that cannot be read as a stream or a history."""


def suggest_name(name: str, there: Sequence[str]) -> str:
    """A suggestion in brackets: the nearest name, if one is near."""
    near = [other for other in there if other.lower() == name.lower()] or get_close_matches(name, there, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def first_line(why: BaseException) -> str:
    """The first line of an error's text."""
    return (str(why).strip().splitlines() or [""])[0]


def describe_error(why: BaseException) -> str:
    """An error of any class in one line: the class and the first line of its text."""
    return f"{type(why).__name__}: {first_line(why)}"


def before_fault(
    size: int, first_row: int, convert: Callable[[int], Converted]
) -> tuple[Converted, StreamError | None]:
    """What is made of the rows before the first that makes nothing, and what is wrong with that one.

    ``convert(n)`` takes the first n of ``size`` rows, of which the first is number ``first_row``.
    """
    fault: StreamError | None = None
    while True:
        try:
            return convert(size), fault
        except StreamError as why:
            before = -1 if why.row is None else why.row - first_row
            if not 0 <= before < size:
                raise
            fault, size = why, before


def first_failure(size: int, fails: Callable[[int], bool]) -> int:
    """The first of ``size`` rows that fails; ``fails(n)`` says whether one of the first n rows does.

    >>> first_failure(10, lambda n: n > 7)
    7
    """
    good, bad = 0, size
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return good
