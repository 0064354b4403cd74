"""What the page asks for, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from recension.core.errors import RecensionError
from recension.inspector.page_data import Shown, split_edge_id
from recension.inspector.reasons import Reasons
from recension.inspector.replay import Replay
from recension.inspector.server import Answer
from recension.plan.node import Node
from recension.runners.recording import Recording


class Questions:
    """The questions that the page asks, by name. With the query of the first recording there are more."""

    def __init__(self, shown: Shown, readers: Sequence[Callable[[], Recording]], query: Node | None) -> None:
        """``readers`` read the recordings as they are now: one may be growing."""
        self._shown, self._readers, self._query = shown, readers, query

    @property
    def answers(self) -> dict[str, Answer]:
        """What is asked, and who answers."""
        return {"data": self.data, "export": self.export, "effect": self.effect, "why": self.why}

    def data(self, words: dict[str, str]) -> dict[str, Any]:
        """All that is shown, or with ``after`` what came after a step."""
        if "after" in words:
            return self._again().since(int(words["after"]))
        return {**self._again().whole(), "can": self._can}

    def export(self, words: dict[str, str]) -> dict[str, Any]:
        """The same for a page that can ask nothing: what it may ask about answers is in it."""
        told = {**self._again().whole(), "live": False}
        if self._query is None:
            return told
        try:
            reasons, left_out = self._reasons.explain_answers()
        except RecensionError as why:
            reasons, left_out = [], f"this page does not explain its answers: {why}"
        told["left_out"] += [left_out] if left_out else []
        return {**told, "reasons": reasons}

    def effect(self, words: dict[str, str]) -> dict[str, Any]:
        """What the event of these elements changed."""
        recording, edge = split_edge_id(words["edge"])
        if recording != 0:
            raise RecensionError("the query of that recording is not known")
        return self._replay.effect(edge, _numbers(words["elements"]))

    def why(self, words: dict[str, str]) -> dict[str, Any]:
        """What the event of these elements rests on, by what had come until a step."""
        recording, edge = split_edge_id(words["edge"])
        if recording != 0:
            raise RecensionError("the query of that recording is not known")
        return self._reasons.explain(edge, _numbers(words["elements"]), int(words["until"]))

    def _again(self) -> Shown:
        names = [name for name, _ in self._shown.recordings]
        found = [read() for read in self._readers]
        return replace(self._shown, recordings=list(zip(names, found, strict=True)))

    @cached_property
    def _can(self) -> dict[str, bool]:
        return {"effect": self._query is not None, "why": self._query is not None}

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self._readers[0](), self._known_query())

    @cached_property
    def _reasons(self) -> Reasons:
        # It needs what a replay needs: all inputs, and the same query.
        _ = self._replay
        return Reasons(self._readers[0](), self._known_query())

    def _known_query(self) -> Node:
        if self._query is None:
            raise RecensionError("the query of the recording is not known: give it with --query")
        return self._query


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
