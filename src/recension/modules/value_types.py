"""Is a value of a type as Python's annotations write it? What cannot be looked into takes anything."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, Final, Literal

_NUMBERS: Final[dict[Any, type]] = {int: Integral, float: Real}


def is_of(value: Any, kind: Any) -> bool:
    """Is it? Whole numbers are floats too, NumPy's are numbers, truth values are none.

    >>> is_of([1, 2], list[int]), is_of(["one"], list[int]), is_of("up", Literal["up", "down"])
    (True, False, True)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    plain = origin or kind
    if plain in _NUMBERS:
        return isinstance(value, _NUMBERS[plain]) and not isinstance(value, bool)
    if not isinstance(plain, type) or not _can_be_asked(plain):
        return True
    return isinstance(value, plain) and _holds(value, plain, arguments)


def _holds(value: Any, plain: type, arguments: tuple[Any, ...]) -> bool:
    """Are the values within of their types?"""
    if plain is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(is_of, value, arguments))
    if issubclass(plain, Mapping) and len(arguments) == 2:
        return all(is_of(key, arguments[0]) and is_of(one, arguments[1]) for key, one in value.items())
    if issubclass(plain, Collection) and arguments:
        return all(is_of(one, arguments[0]) for one in value)
    return True


def _can_be_asked(plain: type) -> bool:
    ask: Callable[[Any], bool] = plain.__instancecheck__
    try:
        ask(None)
    except TypeError:  # a protocol that exists for type checkers only
        return False
    return True
