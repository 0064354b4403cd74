"""Where in a file something is wrong, and errors that say so in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

import pyarrow as pa

from recension.core.errors import FormatError, TimeError

Convert = Callable[[pa.Array], pa.Array]


def one_line(why: BaseException) -> str:
    """The gist of an error that may run over many lines."""
    if isinstance(why, OSError) and why.errno:
        # Not why.strerror: Arrow writes more there than the system says.
        reason = os.strerror(why.errno)
        return reason[0].lower() + reason[1:]
    if isinstance(why, UnicodeError):
        return f"not UTF-8: {getattr(why, 'reason', why)}"
    text = " ".join(str(why).split()) or type(why).__name__
    # Arrow appends advice for its own callers and the place in its sources.
    return text.split(" Detail: ")[0].split(". If these timestamps")[0][:300]


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Errors of the file system and of Arrow become errors that name the file."""
    try:
        yield
    except FormatError:
        raise
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except MemoryError:
        # Lengths in a damaged file are anything; that there is no room for them is all one learns.
        raise FormatError("it needs more memory than there is; is it damaged?", file=file) from None
    except (OSError, pa.ArrowException, UnicodeError, OverflowError, TimeError) as why:
        raise FormatError(one_line(why), file=file) from None


def require_regular(file: Path) -> None:
    """Refuse what is not a file, such as a pipe, which one would wait for, or a link that leads nowhere."""
    with reading(str(file)):
        mode = file.stat().st_mode
    if not S_ISREG(mode):
        raise FormatError("not a regular file", file=str(file))


def converted(column: pa.Array, convert: Convert, *, name: str, file: str, first_row: int) -> pa.Array:
    """``convert(column)``, or an error that names the first row it fails on."""
    try:
        return convert(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TimeError) as why:
        at = _first_failure(column, convert)
        if at is None:
            raise FormatError(f"column {name}: {one_line(why)}", file=file) from None
        reason = _reason(column.slice(at, 1), convert, why)
        reason = reason.removeprefix(f"column {name}: ")
        raise FormatError(f"column {name}: {reason}", file=file, row=first_row + at) from None


def _fails(column: pa.Array, convert: Convert) -> bool:
    try:
        convert(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TimeError):
        return True
    return False


def _first_failure(column: pa.Array, convert: Convert) -> int | None:
    """The first row that cannot be converted, by halving; None if the type itself is the trouble."""
    if _fails(column.slice(0, 0), convert):
        return None
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(column.slice(low, middle - low), convert) else (middle, high)
    return low


def _reason(cell: pa.Array, convert: Convert, otherwise: BaseException) -> str:
    try:
        convert(cell)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TimeError) as why:
        return one_line(why)
    return one_line(otherwise)
