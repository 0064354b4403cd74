"""The papers' short way of writing elements and histories, as text.

    I(1, inf, P1)  R(1, inf -> 10, P1)  C(10)       insert, retraction, CTI
    E(0, 8, #4)                                     external CTI: 4 elements with sync in [0, 8)
    open(A, 1)  close(A, 4)                         LMerge's open and close
    S1:I(0, 2, A0)                                  an element of the input S1
    S1@2:I(0, 2, A0)                                an element of its partition 2
    (1, 5, P1)  (8, 9, 4) x2                        rows of a history, the second one twice
    C("2024-03-31T00:00+01:00")                     a timestamp in place of ticks, in quotes

A payload is its values in the order of the schema's columns (``I(1, 5, P1, 3)``) or ``{p: P1, n: 3}``
(absent columns are null). A value is a bare word, a quoted text, ``null``, ``true``, ``false`` or a list
``[1, 2]``, read as its column's type says. Elements stand next to each other, with nothing between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core.errors import TimeError
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER, instant
from recension.testing.model import Close, Open, Written

Tagged: TypeAlias = tuple[str, Written]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text> "[^"\n]*" | '[^'\n]*' )
      | (?P<sign> -> | [(){}\[\],:\#] )
      | (?P<word> (?: (?!->) [^\s(){}\[\],:\#"'] )+ )
    )""",
    re.VERBOSE,
)
_ENDS = {"inf": FOREVER, "∞": FOREVER, "-inf": BEGINNING, "-∞": BEGINNING}
_WORDS = {"null": None, "true": True, "false": False}


class NotationError(ValueError):
    """Text that is not in the notation, with the offset at which that shows."""

    def __init__(self, reason: str, at: int) -> None:
        self.reason, self.at = reason, at
        super().__init__(f"{reason} (at character {at + 1})")


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    quoted: bool = False


def parse_elements(text: str, schemas: Mapping[str, pa.Schema]) -> list[Tagged]:
    """The elements in ``text``, each with the name of its input; a single input need not be named.

    The name of a partition, if there is one, stands behind that of its input: ``S1@2``.

    >>> parse_elements("I(1, inf, P1) C(1)", {"S": pa.schema([("p", "string")])})[1]
    ('S', Cti(t=1))
    """
    return list(_Parser(text, schemas).elements())


def parse_history(text: str, schema: pa.Schema) -> list[Event]:
    """The rows of a history.

    >>> [str(event) for event in parse_history("(8, 9, 4) x2", pa.schema([("n", "int64")]))]
    ["[8, 9) {'n': 4}", "[8, 9) {'n': 4}"]
    """
    return list(_Parser(text, {"": schema}).rows())


def parse_time(text: str) -> int:
    """Ticks, ``inf``, ``-inf`` or a timestamp in quotes."""
    return _Parser(text, {}).time()


class _Parser:
    """Reads tokens from left to right; every method consumes what it names."""

    def __init__(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._schemas = schemas

    def elements(self) -> Iterator[Tagged]:
        while self._peek():
            name = self._word("an element such as I(1, 5, A)")
            tag = next(iter(self._schemas)) if len(self._schemas) == 1 else ""
            if self._peek() == ":":
                self._sign(":")
                tag, name = name.text, self._word("an element after the input's name")
            if tag.partition("@")[0] not in self._schemas:
                inputs = ", ".join(self._schemas)
                raise NotationError(
                    f"say which input it belongs to, as in S1:I(...); there are {inputs}", name.at
                )
            yield tag, self._element(name, self._schemas[tag.partition("@")[0]])

    def _element(self, name: _Token, schema: pa.Schema) -> Written:
        self._sign("(")
        match name.text:
            case "I":
                element: Written = self._insert(schema)
            case "R":
                element = self._retract(schema)
            case "C":
                element = Cti(self.time())
            case "E":
                element = self._external()
            case "open" | "close":
                values = self._values(schema, last_is_time=True)
                element = (Open if name.text == "open" else Close)(values, self.time())
            case other:
                raise NotationError(f"{other!r} is not an element; write I, R, C, E, open or close", name.at)
        self._sign(")")
        return element

    def _insert(self, schema: pa.Schema) -> Insert:
        vs, ve = self.time(), self._after_comma()
        return Insert(self._payload(schema), vs, ve)

    def _retract(self, schema: pa.Schema) -> Retract:
        vs, ve = self.time(), self._after_comma()
        self._sign("->")
        new_ve = self.time()
        return Retract(self._payload(schema), vs, ve, new_ve)

    def _external(self) -> ExternalCti:
        vs, ve = self.time(), self._after_comma()
        self._sign(",")
        if self._peek() == "#":
            self._sign("#")
        return ExternalCti(vs, ve, self._integer("a count"))

    def rows(self) -> Iterator[Event]:
        while self._peek():
            self._sign("(")
            vs, ve = self.time(), self._after_comma()
            event = Event(self._payload(self._schemas[""]), vs, ve)
            self._sign(")")
            yield from [event] * self._times()

    def _times(self) -> int:
        if re.fullmatch(r"x\d+", self._peek() or "") is None:
            return 1
        return int(self._word("a multiplicity").text[1:])

    def time(self) -> int:
        token = self._tokens[self._next] if self._peek() is not None else None
        if token is None or not (token.quoted or token.text in _ENDS):
            return self._integer("a time: ticks, inf or -inf")
        self._next += 1
        if not token.quoted:
            return _ENDS[token.text]
        try:
            return instant(token.text)
        except TimeError as why:
            raise NotationError(str(why), token.at) from None

    def _after_comma(self) -> int:
        self._sign(",")
        return self.time()

    def _integer(self, wanted: str) -> int:
        token = self._word(wanted)
        if re.fullmatch(r"-?\d+", token.text) is None:
            raise NotationError(f"{token.text!r} is not {wanted}", token.at)
        return int(token.text)

    def _payload(self, schema: pa.Schema) -> dict[str, Any]:
        if len(schema):
            self._sign(",")
        return self._values(schema, last_is_time=False)

    def _values(self, schema: pa.Schema, *, last_is_time: bool) -> dict[str, Any]:
        """Positional or named values; ``last_is_time``: a comma follows, and then a time."""
        named = self._peek() == "{"
        values = self._struct(schema) if named else self._positional(schema)
        if last_is_time and len(schema):
            self._sign(",")
        return values

    def _positional(self, fields: Any) -> dict[str, Any]:
        values = {}
        for position, field in enumerate(fields):
            if position:
                self._sign(",")
            values[field.name] = self._value(field.type)
        return values

    def _struct(self, fields: Any) -> dict[str, Any]:
        """``{name: value, ...}`` for a payload or a struct column."""
        types, values = {field.name: field.type for field in fields}, dict.fromkeys(f.name for f in fields)
        self._sign("{")
        while self._peek() != "}":
            name = self._word("a column name")
            if name.text not in types:
                raise NotationError(f"no column {name.text!r}; there are {', '.join(types)}", name.at)
            self._sign(":")
            values[name.text] = self._value(types[name.text])
            if self._peek() != "}":
                self._sign(",")
        self._sign("}")
        return values

    def _value(self, kind: pa.DataType) -> Any:
        if self._peek() == "[":
            return self._list(kind)
        if self._peek() == "{" and pa.types.is_struct(kind):
            return self._struct([kind.field(i) for i in range(kind.num_fields)])
        token = self._word(f"a value of type {kind}")
        if not token.quoted and token.text in _WORDS and (token.text == "null" or pa.types.is_boolean(kind)):
            return _WORDS[token.text]
        try:
            return pa.scalar(token.text).cast(kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise NotationError(f"{token.text!r} is not a value of type {kind}", token.at) from None

    def _list(self, kind: pa.DataType) -> list[Any]:
        items = []
        self._sign("[")
        while self._peek() != "]":
            items.append(self._value(kind.value_type))
            if self._peek() != "]":
                self._sign(",")
        self._sign("]")
        return items

    def _peek(self) -> str | None:
        return self._tokens[self._next].text if self._next < len(self._tokens) else None

    def _end(self) -> int:
        last = self._tokens[-1] if self._tokens else _Token("", 0)
        return last.at + len(last.text)

    def _sign(self, sign: str) -> None:
        if self._peek() != sign:
            at = self._tokens[self._next].at if self._peek() else self._end()
            raise NotationError(f"expected {sign!r}, found {self._peek() or 'the end'!r}", at)
        self._next += 1

    def _word(self, wanted: str) -> _Token:
        token = self._tokens[self._next] if self._peek() is not None else _Token("the end", self._end())
        is_sign = not token.quoted and token.text in ("->", *"(){}[],:#")
        if self._peek() is None or is_sign:
            raise NotationError(f"expected {wanted}, found {token.text!r}", token.at)
        self._next += 1
        return token


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotationError("a quote that is not closed", at)
        kind = str(match.lastgroup)
        body = match[kind]
        yield _Token(body[1:-1] if kind == "text" else body, match.start(kind), kind == "text")
        at = match.end()


def render(element: Element) -> str:
    """An element in the notation."""
    match element:
        case Insert(payload, vs, ve):
            return f"I({_ticks(vs)}, {_ticks(ve)}{_render_payload(payload)})"
        case Retract(payload, vs, ve, new_ve):
            return f"R({_ticks(vs)}, {_ticks(ve)} -> {_ticks(new_ve)}{_render_payload(payload)})"
        case Cti(t):
            return f"C({_ticks(t)})"
        case ExternalCti(vs, ve, count):
            return f"E({_ticks(vs)}, {_ticks(ve)}, #{count})"


def _ticks(t: int) -> str:
    return {FOREVER: "inf", BEGINNING: "-inf"}.get(t, str(t))


def _render_payload(payload: Mapping[str, Any]) -> str:
    return "".join(f", {'null' if value is None else value}" for value in payload.values())
