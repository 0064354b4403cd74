"""Calling a user's code: whatever goes wrong is told with the module, the window and its payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.modules.members import Payloads, Window

_SHOWN: Final = 5


class Caller:
    """Calls one module; ``verify`` makes every call twice and compares."""

    def __init__(self, name: str, *, verify: bool) -> None:
        self.name, self._verify = name, verify

    def call(self, fn: Callable[[], Any], window: Window | None, payloads: Payloads | None) -> Any:
        """What the module's code gives."""
        try:
            answer = fn()
            if not self._verify:
                return answer
            answer = kept(answer)
            again = kept(fn())
        except RecensionError:
            raise
        except Exception as why:
            said = (str(why).splitlines() or [""])[0]
            raise self.failure(f"{type(why).__name__}: {said}", window, payloads) from why
        if not same(answer, again):
            reason = f"is not deterministic: it gave {answer!r}, then {again!r} of the same"
            raise self.failure(reason, window, payloads)
        return answer

    def failure(self, reason: str, window: Window | None, payloads: Payloads | None) -> RecensionError:
        """An error in one line."""
        where = "" if window is None else f" in the window {interval(window)}"
        return RecensionError(f"module {self.name}{where}: {reason}{_shown(payloads)}")


def interval(window: Window) -> str:
    """A window as people write it."""
    return f"[{window.start}, {'∞' if window.end == FOREVER else window.end})"


def _shown(payloads: Payloads | None) -> str:
    if payloads is None:
        return ""
    rows = [str(row) if isinstance(row, Event) else repr(row) for row in payloads[:_SHOWN]]
    more = f" and {len(payloads) - _SHOWN} more" if len(payloads) > _SHOWN else ""
    return f"; it was given {', '.join(rows) or 'nothing'}{more}"


def kept(answer: Any) -> Any:
    """An answer that can be looked at twice: what only iterates becomes a list."""
    if isinstance(answer, str | bytes | Mapping | np.ndarray | pa.RecordBatch | pa.Table):
        return answer
    return list(answer) if hasattr(answer, "__iter__") else answer


def same(a: Any, b: Any) -> bool:
    """Are two answers equal? NaN equals NaN."""
    if isinstance(a, Event) and isinstance(b, Event):
        return (a.vs, a.ve) == (b.vs, b.ve) and same(a.payload, b.payload)
    if isinstance(a, pa.RecordBatch | pa.Table):
        return bool(a.equals(b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return same(a.tolist(), b.tolist())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if a is pa.NA or b is pa.NA:
        return a is b
    return bool(a == b) or (a != a and b != b)
