"""A crew without processes: the same objects and messages, called here. Thousands of plans take seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recension.runners.workers.crew import MOST_AT_ONCE
from recension.runners.workers.parcels import Parcel


class CrewInProcess:
    """Stands for `Crew`; every message goes through a parcel, as it would between processes."""

    def __init__(self, make: Callable[[int], Any], size: int) -> None:
        self._objects = [make(number) for number in range(size)]
        self._parcel = Parcel()
        self._answers: list[dict[int, Any]] = []
        self.pids: list[int] = []

    @property
    def unanswered(self) -> int:
        return len(self._answers)

    @property
    def is_full(self) -> bool:
        return self.unanswered >= MOST_AT_ONCE

    def post(
        self,
        method: str,
        shared: Sequence[Any] = (),
        own: Sequence[Any] | None = None,
        *,
        is_borrowed: bool = False,
    ) -> None:
        answers: dict[int, Any] = {}
        for number, worker in enumerate(self._objects):
            if own is None or own[number] is not None:
                arguments = [*shared, *([] if own is None else [own[number]])]
                try:
                    answers[number] = self._sent(
                        getattr(worker, method)(*self._sent(arguments, is_borrowed=is_borrowed))
                    )
                except Exception as why:
                    answers[number] = why
        self._answers.append(answers)

    def _sent(self, message: Any, *, is_borrowed: bool = False) -> Any:
        """As it comes out on the other side. What is borrowed is overwritten by the next message."""
        return self._parcel.read(self._parcel.write(message), is_borrowed=is_borrowed)

    def collect(self) -> dict[int, Any]:
        answers = self._answers.pop(0)
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        return answers

    def stop(self) -> None:
        self._objects = []
