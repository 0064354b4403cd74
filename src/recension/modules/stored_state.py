"""States of incremental modules as bytes, and back: plain values, written so that reading them runs nothing.

Scalars are themselves in JSON; everything else is a list that begins with a word for what it is.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from recension.core.errors import RecensionError

_SCALARS: Final = (bool, int, float, str, type(None))


def to_bytes(state: Any) -> bytes:
    """A state of plain values as bytes; any other value is an error that names its type."""
    return json.dumps(_encode(state), ensure_ascii=False).encode()


def from_bytes(stored: bytes) -> Any:
    """The state that `to_bytes` wrote."""
    return _decode(json.loads(stored))


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return ["scalar", *_encode(np.asarray(value))[1:]]
    if kind not in _WORDS:
        raise RecensionError(
            f"a state holds a {kind.__name__}, which cannot be stored: keep numbers, text, times, arrays and "
            "lists, tuples, sets or dicts of them, or give the module stored(state) and restored(stored)"
        )
    word, encode, _ = _WORDS[kind]
    return [word, *encode(value)]


def _decode(stored: Any) -> Any:
    if not isinstance(stored, list):
        return stored
    word, *rest = stored
    if word == "scalar":
        return _array(*rest)[()]
    return _READERS[word](*rest)


def _encode_items(values: Any) -> list[Any]:
    return [[_encode(value) for value in values]]


def _encode_pairs(values: Any) -> list[Any]:
    return [[[_encode(key), _encode(value)] for key, value in values.items()]]


def _array_bytes(array: Any) -> list[str]:
    if array.dtype.hasobject:
        raise RecensionError("a state holds an array of objects, which cannot be stored: give it a type")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return [b64encode(file.getvalue()).decode()]


def _array(text: str) -> Any:
    return np.load(io.BytesIO(b64decode(text)), allow_pickle=False)


def _decode_items(made: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda items: made(_decode(item) for item in items)


def _decode_pairs(made: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda pairs: made({_decode(key): _decode(value) for key, value in pairs})


_Word = tuple[str, Callable[[Any], list[Any]], Callable[..., Any]]
_WORDS: Final[dict[type, _Word]] = {
    list: ("list", _encode_items, _decode_items(list)),
    tuple: ("tuple", _encode_items, _decode_items(tuple)),
    set: ("set", _encode_items, _decode_items(set)),
    frozenset: ("frozenset", _encode_items, _decode_items(frozenset)),
    deque: (
        "deque",
        lambda q: [*_encode_items(q), q.maxlen],
        lambda items, most: deque(map(_decode, items), most),
    ),
    dict: ("dict", _encode_pairs, _decode_pairs(dict)),
    Counter: ("counter", _encode_pairs, _decode_pairs(Counter)),
    bytes: ("bytes", lambda b: [b64encode(b).decode()], b64decode),
    Decimal: ("decimal", lambda d: [str(d)], Decimal),
    dt.datetime: ("datetime", lambda t: [t.isoformat()], dt.datetime.fromisoformat),
    dt.date: ("date", lambda d: [d.isoformat()], dt.date.fromisoformat),
    dt.timedelta: ("timedelta", lambda d: [d.days, d.seconds, d.microseconds], dt.timedelta),
    np.ndarray: ("array", _array_bytes, _array),
}
_READERS: Final = {word: read for word, _, read in _WORDS.values()}
