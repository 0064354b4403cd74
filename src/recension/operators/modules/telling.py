"""Telling the state of an incremental module what comes and goes, and keeping it as bytes.

`add` and `remove` may change the state in place. To call them twice, where that is verified, the state is
stored before and restored for the second call: so what is compared is what is stored, and states may be
objects of any class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recension.core.errors import ModuleError, RecensionError
from recension.modules.members import Payloads, Window
from recension.modules.module import Incremental
from recension.modules.repetition import require_same
from recension.modules.stored_state import from_bytes, to_bytes
from recension.operators.modules.answers import Hosted
from recension.operators.modules.calling import Given


class Told:
    """The states of one module, one at a time."""

    def __init__(self, hosted: Hosted) -> None:
        assert isinstance(hosted.module, Incremental)
        self._module, self._caller = hosted.module, hosted.caller

    def timed(self, window: Window) -> tuple[Window, ...]:
        """What time-sensitive modules are told beside the rest."""
        return (window,) if self._module.is_time_sensitive else ()

    def fresh(self, members: Payloads, window: Window) -> Any:
        """The state of these members alone."""
        begun = self._made("initial: ", lambda: self._module.initial(*self.timed(window)), window, members)
        return self.added(begun, members, window) if len(members) else begun

    def added(self, state: Any, members: Payloads, window: Window) -> Any:
        """The state with these members more."""
        return self._after("add", state, members, window)

    def removed(self, state: Any, members: Payloads, window: Window) -> Any:
        """The state with these members less."""
        return self._after("remove", state, members, window)

    def merged(self, a: Any, b: Any, window: Window, given: Given) -> Any:
        """The state of the members of both."""
        merge = self._module.merge
        assert merge is not None
        return self._made("merge: ", lambda: merge(a, b), window, given)

    def _made(self, verb: str, make: Callable[[], Any], window: Window, given: Given) -> Any:
        """A new state, which nothing else was changed for."""

        def checked() -> Any:
            state = make()
            self._require_same(state, make())
            return state

        return self._caller.guarded(checked if self._caller.verify else make, window, given, verb)

    def _after(self, verb: str, state: Any, members: Payloads, window: Window) -> Any:
        method = getattr(self._module, verb)

        def change(before: Any) -> Any:
            return method(before, members, *self.timed(window))

        def checked() -> Any:
            before = self.stored(state)
            after = change(state)
            self._require_same(after, change(self.restored(before)))
            return after

        tell = checked if self._caller.verify else lambda: change(state)
        return self._caller.guarded(tell, window, members, f"{verb}: ")

    def _require_same(self, state: Any, again: Any) -> None:
        require_same(self._module.stored(state), self._module.stored(again))

    def stored(self, state: Any) -> bytes:
        """A state as bytes."""
        try:
            return to_bytes(self._module.stored(state))
        except RecensionError as why:
            raise ModuleError(f"{self._module.name}: {why}") from None

    def restored(self, stored: bytes) -> Any:
        """The state that these bytes are."""
        return self._module.restored(from_bytes(stored))
