"""Errors in the words of a front end: who writes SQL reads of SELECT, and not of ``with_columns``.

    with said_as("SELECT", at="line 3, column 8"):
        stream.with_columns(bits=...)

Methods say which of them found what is wrong, and what to write instead in Python. A front end that compiles
another language into calls of methods says its own clause, with the place, and leaves the Python out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from recension.core.errors import RecensionError, StreamError

# ``join: ...``, ``having(n > 1): ...``, ``join(on=...), in the right stream: ...``
_METHOD: Final = re.compile(r"(\w+)(?:\(.*?\))?(,[^:]*)?: ", re.DOTALL)


@contextmanager
def said_as(clause: str, at: str = "") -> Iterator[None]:
    """Errors of the methods that are called here, in the words of a front end.

    ``clause`` is what the user wrote, ``at`` where. The innermost of several says it.

    >>> import recension as rc
    >>> leases = rc.source("leases", {"user": "string"})
    >>> try:
    ...     with said_as("WHERE", at="line 2"):
    ...         leases.where(rc.col("usr") == "ann")
    ... except rc.SchemaError as why:
    ...     print(why)
    line 2: WHERE: there is no column 'usr' (did you mean 'user'?); the columns are user (string)
    """
    try:
        yield
    except RecensionError as why:
        if not why.is_said:
            why.args, why.instead, why.is_said = (_reworded(why, clause, at),), "", True
        raise


def _reworded(why: RecensionError, clause: str, at: str) -> str:
    text, place = str(why), f"{at}: " if at else ""
    if why.instead:
        text = text.removesuffix(why.instead)
    # An error in data begins with its file or source, which may have any name.
    found = None if isinstance(why, StreamError) else _METHOD.match(text)
    if found is None or found[1] not in method_names():
        return f"{place}{clause}: {text}"
    return f"{place}{clause}{found[2] or ''}: {text[found.end() :]}"


@cache
def method_names() -> frozenset[str]:
    """What messages may begin with: the methods of streams, and the functions that make them."""
    from recension.api import names
    from recension.api.aggregation import GroupedStream
    from recension.api.stream import Stream
    from recension.api.windows import WindowedStream
    from recension.plan.expressions import Expr

    methods = (name for kind in (Stream, GroupedStream, WindowedStream, Expr) for name in dir(kind))
    return frozenset(name for name in (*methods, *names.__all__, "windows") if not name.startswith("_"))
