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

``inputs`` may be a list of names that share ``schema``; with neither there is one input, called ``input``,
with one text column ``p``. ``input``, ``cti`` and, without a query, ``expect`` and ``history`` may be
mappings by input. Elements may be one text or a list of texts; use ``|`` where YAML would see a ``#`` or a
``: `` in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core.events import Cti, Element, Event
from recension.testing import modules
from recension.testing.notation import parse_elements, parse_history, parse_time
from recension.testing.openclose import Close, Open, Written
from recension.testing.yaml_nodes import Place, TranscriptError, compose

Schemas: TypeAlias = Mapping[str, pa.Schema]

OUTPUT = "output"
_KEYS = ("name", "source", "schema", "inputs", "query", "output", "steps", "broken_on")
_STEP_KEYS = ("input", "cti", "expect", "history", "refused")


@dataclass(frozen=True, slots=True)
class Step:
    """Elements to feed and what must then be seen, by output; ``None`` where nothing is said."""

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
    for transcript, place in (pair for file in files for pair in _load(file)):
        if earlier := found.get(transcript.name):
            where = f"{earlier.file}:{earlier.line}"
            raise place.error(f"the name {transcript.name!r} is taken already, see {where}")
        found[transcript.name] = transcript
    return list(found.values())


def _load(file: Path) -> list[tuple[Transcript, Place]]:
    return [(_transcript(place), place) for place in compose(file).items()]


def _transcript(place: Place) -> Transcript:
    fields = place.fields(_KEYS, required=("name", "source", "steps"))
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
        file=place.file,
        line=place.node.start_mark.line + 1,
        inputs=inputs,
        outputs=outputs,
        query=query,
        steps=steps,
        broken_on={runner: reason.text() for runner, reason in broken.items()},
    )


def _inputs(fields: Mapping[str, Place]) -> Schemas:
    shared = _schema(fields["schema"]) if "schema" in fields else pa.schema([("p", pa.string())])
    if "inputs" not in fields:
        return {"input": shared}
    place = fields["inputs"]
    if place.is_list:
        return {name.text(): shared for name in place.items()}
    if "schema" in fields:
        raise place.error("inputs with schemas of their own leave no room for a shared schema")
    return {name: _schema(schema) for name, schema in place.fields().items()}


def _output_schema(fields: Mapping[str, Place], inputs: Schemas) -> pa.Schema:
    if OUTPUT in fields:
        return _schema(fields[OUTPUT])
    return next(iter(inputs.values()))


def _schema(place: Place) -> pa.Schema:
    return pa.schema([(name, _type(kind)) for name, kind in place.fields().items()])


def _type(place: Place) -> pa.DataType:
    name = place.text()
    try:
        inner = name.removeprefix("list<").removesuffix(">")
        return pa.type_for_alias(name) if inner == name else pa.list_(pa.type_for_alias(inner))
    except ValueError:
        raise place.error(f"{name!r} is not the name of an Arrow type") from None


def _step(place: Place, inputs: Schemas, outputs: Schemas) -> Step:
    fields = place.fields(_STEP_KEYS)
    elements = _fed(fields, inputs)
    refused = fields["refused"].text() if "refused" in fields else None
    if refused is not None and (len(elements) != 1 or len(fields) != 2):
        raise place.error("a refused step holds one input element and nothing else")
    return Step(
        line=place.node.start_mark.line + 1,
        input=elements,
        expect=_expected(fields["expect"], outputs) if "expect" in fields else None,
        history=_histories(fields["history"], outputs) if "history" in fields else None,
        refused=refused,
    )


def _fed(fields: Mapping[str, Place], inputs: Schemas) -> list[tuple[str, Written]]:
    fed = _elements(fields["input"], inputs) if "input" in fields else []
    if "cti" in fields:
        place = fields["cti"]
        ctis = place.fields(inputs) if place.is_mapping else dict.fromkeys(inputs, place)
        fed += [(name, Cti(t.read(parse_time))) for name, t in ctis.items()]
    return fed


def _elements(place: Place, schemas: Schemas) -> list[tuple[str, Written]]:
    """Elements as one text, a list of texts, or a mapping from names to either."""
    if place.is_mapping:
        named = place.fields(schemas).items()
        return [pair for name, value in named for pair in _elements(value, {name: schemas[name]})]
    if place.is_list:
        return [pair for item in place.items() for pair in _elements(item, schemas)]
    return place.read(lambda text: parse_elements(text, schemas))


def _expected(place: Place, outputs: Schemas) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {name: [] for name in outputs}
    for name, written in _elements(place, outputs):
        if isinstance(written, Open | Close):
            raise place.error("open and close are ways to write an input, not elements that come out")
        found[name].append(written)
    return found


def _histories(place: Place, outputs: Schemas) -> dict[str, list[Event]]:
    named = place.fields(outputs) if place.is_mapping else dict.fromkeys(outputs, place)
    return {name: _history(value, outputs[name]) for name, value in named.items()}


def _history(place: Place, schema: pa.Schema) -> list[Event]:
    items = place.items() if place.is_list else [place]
    return [event for item in items for event in item.read(lambda text: parse_history(text, schema))]


__all__ = ["OUTPUT", "Step", "Transcript", "TranscriptError", "load_transcripts"]
