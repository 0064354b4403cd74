"""Reading YAML with the place of everything kept, so that an error can point at line and column."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

import yaml

from recension.core.errors import RecensionError
from recension.testing.notation import NotationError

T = TypeVar("T")


class TranscriptError(RecensionError, ValueError):
    """A transcript file that cannot be read, with the place that is wrong."""

    def __init__(self, reason: str, file: Path, line: int, column: int) -> None:
        self.reason, self.file, self.line, self.column = reason, file, line, column
        super().__init__(f"{file}:{line}:{column}: {reason}")


class Place:
    """A YAML value and where it stands."""

    def __init__(self, node: yaml.Node, file: Path) -> None:
        self.node, self.file = node, file

    def error(self, reason: str) -> TranscriptError:
        """An error that points at the beginning of this value."""
        return self._error_at(reason, self.node.start_mark.line, self.node.start_mark.column)

    def _error_at(self, reason: str, line: int, column: int) -> TranscriptError:
        return TranscriptError(reason, self.file, line + 1, column + 1)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def items(self) -> list[Place]:
        """The members of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error("expected a list")
        return [Place(node, self.file) for node in self.node.value]

    def fields(
        self, known: Collection[str] | None = None, required: Collection[str] = ()
    ) -> dict[str, Place]:
        """The members of a mapping; unknown, repeated and missing names are errors."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error("expected a mapping of names to values")
        found: dict[str, Place] = {}
        for key_node, value in self.node.value:
            key = Place(key_node, self.file)
            name = key.text()
            if name in found:
                raise key.error(f"{name!r} is there twice")
            if known is not None and name not in known:
                raise key.error(f"unknown key {name!r}; there are {', '.join(known)}")
            found[name] = Place(value, self.file)
        if missing := [name for name in required if name not in found]:
            raise self.error(f"{missing[0]!r} is missing")
        return found

    def text(self) -> str:
        """A scalar, as written."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error("expected text")
        return str(self.node.value).strip()

    def read(self, parse: Callable[[str], T]) -> T:
        """The scalar parsed; an error in the notation points at its line and column."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error("expected text in the notation")
        try:
            return parse(self.node.value)
        except NotationError as why:
            raise self._error_at(why.reason, *self._position(why.at)) from None

    def _position(self, at: int) -> tuple[int, int]:
        """Line and column of an offset into the scalar, exact for one-line scalars and ``|`` blocks."""
        mark, style = self.node.start_mark, getattr(self.node, "style", None)
        if style == "|":
            before = self.node.value[:at].split("\n")
            line = mark.line + len(before)
            return line, self._indent(line) + len(before[-1])
        if mark.line != self.node.end_mark.line:
            return mark.line, mark.column
        return mark.line, mark.column + at + (1 if style else 0)

    def _indent(self, line: int) -> int:
        """YAML drops a block's indentation; the file still has it."""
        written = self.file.read_text(encoding="utf-8").splitlines()[line]
        body = self.node.value.splitlines()[line - self.node.start_mark.line - 1]
        return len(written) - len(body)


def compose(file: Path) -> Place:
    """The whole of a YAML file."""
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as why:
        mark = why.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise TranscriptError(why.problem or "not YAML", file, line, column) from None
    if node is None:
        raise TranscriptError("the file is empty", file, 1, 1)
    return Place(node, file)
