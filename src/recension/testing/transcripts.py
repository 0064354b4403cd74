"""Transcripts: what a stream or a query does, step by step, written once in YAML and run on every runner.

A file is a list of transcripts::

    - name: join, CEDR tables 1 to 4        # unique over all files
      source: CEDR operators §4.3           # paper and section, or ruling
      inputs: {S1: {p: string}, S2: {p: string}}
      query: S1.join(S2, on="p")
      output: {p: string}                   # columns of the result
      steps:
        - input: S1:I(0, 2, A0) S1:C(1)     # in the notation of `recension.testing.notation`
          expect: []                        # the exact elements this step puts out, in order
        - input: S1:I(2, 6, A1) S2:I(3, 5, A1)
          expect: I(3, 5, A1)
          history: (3, 5, A1)               # the canonical history after this step
        - cti: 10                           # a CTI on every input, after the step's elements
      broken_on: {spark: why}               # strict: it must fail there

Without ``query`` a transcript is about the inputs themselves: each must have the ``history`` stated, so a
history stated once for several inputs says that they are equivalent, and a step with ``refused: reason``
holds the one element that makes the stream invalid.

An element of a partition is written ``input@2:I(...)``; the query then declares its source itself.

``inputs`` may be a list of names that share ``schema``; with neither there is one input, called ``input``,
with one text column ``p``. ``input``, ``cti`` and, without a query, ``expect`` and ``history`` may be
mappings by input. Elements may be one text or a list of texts; use ``|`` where YAML would see a ``#`` or a
``: `` in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import yaml

from recension.core.errors import RecensionError
from recension.core.events import Cti, Element, Event
from recension.testing import modules
from recension.testing.model import Close, Open, Written
from recension.testing.notation import NotationError, parse_elements, parse_history, parse_time

T = TypeVar("T")
Schemas: TypeAlias = Mapping[str, pa.Schema]

OUTPUT = "output"
_KEYS = ("name", "source", "schema", "inputs", "query", "output", "steps", "broken_on")
_STEP_KEYS = ("input", "cti", "expect", "history", "refused")


@dataclass(frozen=True, slots=True)
class Step:
    """Elements to feed, and what must come out, by output; ``None`` where that is not stated."""

    line: int
    input: Sequence[tuple[str, Written]]
    expect: Mapping[str, Sequence[Element]] | None
    history: Mapping[str, Sequence[Event]] | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """One story: inputs, perhaps a query over them, and the steps."""

    name: str
    source: str
    file: Path
    line: int
    inputs: Schemas
    outputs: Schemas
    query: str | None
    steps: Sequence[Step]
    broken_on: Mapping[str, str]

    @property
    def has_partitions(self) -> bool:
        """Are elements of partitions of an input?"""
        return any("@" in name for step in self.steps for name, _ in step.input)

    def build(self, scope: Mapping[str, Any]) -> Any:
        """The query, evaluated with ``scope`` as its names: the API and one source per input.

        ``modules`` names the sample modules of `recension.testing.modules`.
        """
        if self.query is None:
            raise ValueError(f"transcript {self.name!r} has no query")
        return eval(
            compile(self.query.strip(), f"{self.file}:{self.name}", "eval"), {"modules": modules, **scope}
        )


def load_transcripts(paths: Iterable[Path]) -> list[Transcript]:
    """The transcripts of several files; a folder stands for its ``*.yaml``. A name may occur once."""
    files = [f for path in paths for f in (sorted(path.rglob("*.yaml")) if path.is_dir() else [path])]
    found: dict[str, Transcript] = {}
    for transcript, node in (pair for file in files for pair in _load(file)):
        if earlier := found.get(transcript.name):
            where = f"{earlier.file}:{earlier.line}"
            raise node.error(f"the name {transcript.name!r} is taken already, see {where}")
        found[transcript.name] = transcript
    return list(found.values())


def _load(file: Path) -> list[tuple[Transcript, YamlNode]]:
    return [(_transcript(node), node) for node in _compose(file).items()]


def _transcript(node: YamlNode) -> Transcript:
    fields = node.fields(_KEYS, required=("name", "source", "steps"))
    inputs = _inputs(fields)
    query = fields["query"].text() if "query" in fields else None
    if OUTPUT in fields and query is None:
        raise fields[OUTPUT].error("without a query the outputs are the inputs")
    outputs = inputs if query is None else {OUTPUT: _output_schema(fields, inputs)}
    steps = [_step(item, inputs, outputs) for item in fields["steps"].items()]
    for step, item in zip(steps[:-1], fields["steps"].items(), strict=False):
        if step.refused is not None:
            raise item.error("only the last step can be refused: an invalid stream does not go on")
    broken = fields["broken_on"].fields() if "broken_on" in fields else {}
    return Transcript(
        name=fields["name"].text(),
        source=fields["source"].text(),
        file=node.file,
        line=node.line,
        inputs=inputs,
        outputs=outputs,
        query=query,
        steps=steps,
        broken_on={runner: reason.text() for runner, reason in broken.items()},
    )


def _inputs(fields: Mapping[str, YamlNode]) -> Schemas:
    shared = _schema(fields["schema"]) if "schema" in fields else pa.schema([("p", pa.string())])
    if "inputs" not in fields:
        return {"input": shared}
    node = fields["inputs"]
    if node.is_list:
        return {name.text(): shared for name in node.items()}
    if "schema" in fields:
        raise node.error("inputs with schemas of their own leave no room for a shared schema")
    return {name: _schema(schema) for name, schema in node.fields().items()}


def _output_schema(fields: Mapping[str, YamlNode], inputs: Schemas) -> pa.Schema:
    if OUTPUT in fields:
        return _schema(fields[OUTPUT])
    return next(iter(inputs.values()))


def _schema(node: YamlNode) -> pa.Schema:
    return pa.schema([(name, _type(kind)) for name, kind in node.fields().items()])


def _type(node: YamlNode) -> pa.DataType:
    name = node.text()
    try:
        inner = name.removeprefix("list<").removesuffix(">")
        return pa.type_for_alias(name) if inner == name else pa.list_(pa.type_for_alias(inner))
    except ValueError:
        raise node.error(f"{name!r} is not the name of an Arrow type") from None


def _step(node: YamlNode, inputs: Schemas, outputs: Schemas) -> Step:
    fields = node.fields(_STEP_KEYS)
    elements = _input_elements(fields, inputs)
    refused = fields["refused"].text() if "refused" in fields else None
    if refused is not None and (len(elements) != 1 or len(fields) != 2):
        raise node.error("a refused step holds one input element and nothing else")
    return Step(
        line=node.line,
        input=elements,
        expect=_expected_elements(fields["expect"], outputs) if "expect" in fields else None,
        history=_histories(fields["history"], outputs) if "history" in fields else None,
        refused=refused,
    )


def _input_elements(fields: Mapping[str, YamlNode], inputs: Schemas) -> list[tuple[str, Written]]:
    elements = _elements(fields["input"], inputs) if "input" in fields else []
    if "cti" in fields:
        node = fields["cti"]
        ctis = node.fields(inputs) if node.is_mapping else dict.fromkeys(inputs, node)
        elements += [(name, Cti(t.read(parse_time))) for name, t in ctis.items()]
    return elements


def _elements(node: YamlNode, schemas: Schemas) -> list[tuple[str, Written]]:
    """Elements as one text, a list of texts, or a mapping from names to either."""
    if node.is_mapping:
        named = node.fields(schemas).items()
        return [pair for name, value in named for pair in _elements(value, {name: schemas[name]})]
    if node.is_list:
        return [pair for item in node.items() for pair in _elements(item, schemas)]
    return node.read(lambda text: parse_elements(text, schemas))


def _expected_elements(node: YamlNode, outputs: Schemas) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {name: [] for name in outputs}
    for name, written in _elements(node, outputs):
        if isinstance(written, Open | Close):
            raise node.error("open and close are ways to write an input, not elements that come out")
        found[name].append(written)
    return found


def _histories(node: YamlNode, outputs: Schemas) -> dict[str, list[Event]]:
    named = node.fields(outputs) if node.is_mapping else dict.fromkeys(outputs, node)
    return {name: _history(value, outputs[name]) for name, value in named.items()}


def _history(node: YamlNode, schema: pa.Schema) -> list[Event]:
    items = node.items() if node.is_list else [node]
    return [event for item in items for event in item.read(lambda text: parse_history(text, schema))]


class TranscriptError(RecensionError, ValueError):
    """A transcript file that cannot be read, with the place that is wrong."""

    def __init__(self, reason: str, file: Path, line: int, column: int) -> None:
        self.reason, self.file, self.line, self.column = reason, file, line, column
        super().__init__(f"{file}:{line}:{column}: {reason}")


class YamlNode:
    """A YAML value that knows its place in the file, so that an error can point at line and column."""

    def __init__(self, node: yaml.Node, file: Path) -> None:
        self._node, self.file = node, file

    @property
    def line(self) -> int:
        """The line it begins in, counted from 1."""
        return int(self._node.start_mark.line) + 1

    def error(self, reason: str) -> TranscriptError:
        """An error that points at the beginning of this value."""
        return self._error_at(reason, self._node.start_mark.line, self._node.start_mark.column)

    def _error_at(self, reason: str, line: int, column: int) -> TranscriptError:
        return TranscriptError(reason, self.file, line + 1, column + 1)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self._node, yaml.SequenceNode)

    def items(self) -> list[YamlNode]:
        """The members of a list."""
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error("expected a list")
        return [YamlNode(node, self.file) for node in self._node.value]

    def fields(
        self, known: Collection[str] | None = None, required: Collection[str] = ()
    ) -> dict[str, YamlNode]:
        """The members of a mapping; unknown, repeated and missing names are errors."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error("expected a mapping of names to values")
        found: dict[str, YamlNode] = {}
        for key_node, value in self._node.value:
            key = YamlNode(key_node, self.file)
            name = key.text()
            if name in found:
                raise key.error(f"{name!r} is there twice")
            if known is not None and name not in known:
                raise key.error(f"unknown key {name!r}; there are {', '.join(known)}")
            found[name] = YamlNode(value, self.file)
        if missing := [name for name in required if name not in found]:
            raise self.error(f"{missing[0]!r} is missing")
        return found

    def text(self) -> str:
        """A scalar, as written."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.error("expected text")
        return str(self._node.value).strip()

    def read(self, parse: Callable[[str], T]) -> T:
        """The scalar parsed; an error in the notation points at its line and column."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.error("expected text in the notation")
        try:
            return parse(self._node.value)
        except NotationError as why:
            raise self._error_at(why.reason, *self._position(why.at)) from None

    def _position(self, at: int) -> tuple[int, int]:
        """Line and column of an offset into the scalar, exact for one-line scalars and ``|`` blocks."""
        mark, style = self._node.start_mark, getattr(self._node, "style", None)
        if style == "|":
            before = self._node.value[:at].split("\n")
            line = mark.line + len(before)
            return line, self._indent(line) + len(before[-1])
        if mark.line != self._node.end_mark.line:
            return mark.line, mark.column
        return mark.line, mark.column + at + (1 if style else 0)

    def _indent(self, line: int) -> int:
        """YAML drops a block's indentation; the file still has it."""
        written = self.file.read_text(encoding="utf-8").splitlines()[line]
        body = self._node.value.splitlines()[line - self._node.start_mark.line - 1]
        return len(written) - len(body)


def _compose(file: Path) -> YamlNode:
    """The whole of a YAML file."""
    try:
        node = _compose_node(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as why:
        mark = why.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise TranscriptError(why.problem or "not YAML", file, line, column) from None
    if node is None:
        raise TranscriptError("the file is empty", file, 1, 1)
    return YamlNode(node, file)


def _compose_node(text: str) -> Any:
    """In C, where PyYAML was built with it, which is fast; in Python errors say better where they are."""
    with suppress(AttributeError, yaml.YAMLError):
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=yaml.SafeLoader)
