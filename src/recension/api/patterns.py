"""Patterns over streams: what follows what within a time, and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from recension.api.base import StreamBase, key_names, plan_of
from recension.api.stream import Stream
from recension.core.errors import SchemaError, TimeError
from recension.core.ticks import DurationLike, duration
from recension.plan.expressions import Expression, IntoExpression, column, expression
from recension.plan.expressions.tree import substitute
from recension.plan.interval_join import Unless, require_lengths
from recension.plan.lifetimes import require_positive
from recension.plan.node import Node
from recension.plan.pattern import Form, OnLimit, Pattern

MOST: Final = 100_000
"""So many answers one event may add, unless a query says otherwise: one hot key must not explode."""


def sequence(
    parts: Mapping[str, StreamBase],
    *,
    within: DurationLike | None = None,
    on: str | Iterable[str] | None = None,
    absent: StreamBase | None = None,
    where: IntoExpression | None = None,
    most: int | None = MOST,
    on_limit: OnLimit = "raise",
) -> Stream:
    """One event of each part, one after the other within a time: an answer for every choice.

    Starts decide: they increase strictly, in the order of the parts, and the last is less than ``within``
    after the first. An answer lives from the last start until ``within`` after the first. Its columns are the
    keys, then those of each part with the part's name before them.

    Parameters
    ----------
    parts
        The streams by names; two parts may be the same stream.
    within
        The time for all of it.
    on
        The key columns that all streams have; ``on=[]`` for none. Null keys match nothing.
    absent
        A stream of which no event of the key may start between the first and the last.
    where
        A condition on the answer. It sees the answer's columns, ``a_x``.
    most, on_limit
        How many answers one event may add when it comes. One that would add more is an error, or, with
        ``"drop"``, left out and counted by its key. ``most=None``: as many as there are.

    >>> import recension as rc
    >>> clicks = rc.source("clicks", {"user": "string", "page": "string"})
    >>> buys = rc.source("buys", {"user": "string", "sum": "float64"})
    >>> rc.sequence({"click": clicks, "buy": buys}, within="1h", on="user").schema.names
    ['user', 'click_page', 'buy_sum']
    """
    limit = _Limit(most, on_limit)
    return _pattern("sequence", parts, None, within, on, where, limit, absent)


def all_of(
    parts: Mapping[str, StreamBase],
    *,
    within: DurationLike | None = None,
    on: str | Iterable[str] | None = None,
    where: IntoExpression | None = None,
    most: int | None = MOST,
    on_limit: OnLimit = "raise",
) -> Stream:
    """One event of each part within a time, in any order: an answer for every choice.

    As `sequence`, but that the starts need only be different.

    >>> import recension as rc
    >>> smoke, heat = (rc.source(name, {"room": "int64"}) for name in ("smoke", "heat"))
    >>> fire = rc.all_of({"smoke": smoke, "heat": heat}, within=10, on="room")
    >>> events = {"smoke": [rc.Insert({"room": 1}, 7)], "heat": [rc.Insert({"room": 1}, 5)]}
    >>> print(*rc.run(fire, events).history().to_events())
    [7, 15) {'room': 1}
    """
    return _pattern("all_of", parts, None, within, on, where, _Limit(most, on_limit))


def at_least(
    n: int,
    parts: Mapping[str, StreamBase],
    *,
    within: DurationLike | None = None,
    on: str | Iterable[str] | None = None,
    where: IntoExpression | None = None,
    most: int | None = MOST,
    on_limit: OnLimit = "raise",
) -> Stream:
    """One event of each of ``n`` of the parts within a time, in any order: an answer for every choice.

    As `all_of`; the columns of parts that are not in an answer are null.

    >>> import recension as rc
    >>> streams = {name: rc.source(name, {"k": "int64", "x": "int64"}) for name in "abc"}
    >>> two = rc.at_least(2, streams, within=10, on="k")
    >>> events = {"a": [rc.Insert({"k": 1, "x": 7}, 0)], "b": [], "c": [rc.Insert({"k": 1, "x": 9}, 3)]}
    >>> print(*rc.run(two, events).history().to_events())
    [3, 10) {'k': 1, 'a_x': 7, 'b_x': None, 'c_x': 9}
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise SchemaError(f"at_least: n is how many of the parts an answer has, not {n!r}")
    return _pattern("at_least", parts, n, within, on, where, _Limit(most, on_limit))


class _Limit(NamedTuple):
    most: int | None
    on_limit: OnLimit


def _pattern(
    form: Form,
    parts: Mapping[str, StreamBase],
    size: int | None,
    within: DurationLike | None,
    on: str | Iterable[str] | None,
    where: IntoExpression | None,
    limit: _Limit,
    absent: StreamBase | None = None,
) -> Stream:
    if not isinstance(parts, Mapping):
        raise SchemaError(f"{form}: the parts are streams by name, as in {{'a': a, 'b': b}}, not {parts!r}")
    others = () if absent is None else (plan_of(absent, f"{form}(absent=...)"),)
    streams = (*(plan_of(part, f"{form}, part {name!r}") for name, part in parts.items()), *others)
    return Stream(
        Pattern(
            streams,
            tuple(parts),
            _require_keys(on, form),
            _require_within(within, streams, form),
            form,
            len(parts) if size is None else size,
            None if where is None else expression(where),
            *limit,
        )
    )


def unless(
    a: StreamBase,
    b: StreamBase,
    *,
    within: DurationLike | None = None,
    on: str | Iterable[str] | None = None,
    where: IntoExpression | None = None,
) -> Stream:
    """The events of one stream that none of another follows within a time: what did not happen.

    Parameters
    ----------
    a
        The stream whose events are answers. An answer lives from the event's start on, for ``within``.
    b
        What must not start after the event's start and before ``within`` is over.
    within
        The time for it.
    on
        The key columns that both streams have; ``on=[]`` for none. An event whose key is null is never
        followed.
    where
        A condition on the two: only an event of ``b`` for which it is true counts. Columns of ``b`` have the
        suffix ``_right``; those that ``a`` does not have may be written without it.

    >>> import recension as rc
    >>> orders = rc.source("orders", {"order": "int64"})
    >>> shipped = rc.source("shipped", {"order": "int64"})
    >>> late = rc.unless(orders, shipped, within=10, on="order")
    >>> events = {"orders": [rc.Insert({"order": n}, n) for n in (1, 2)]}
    >>> events["shipped"] = [rc.Insert({"order": 1}, 5)]
    >>> print(*rc.run(late, events).history().to_events())
    [2, 12) {'order': 2}
    """
    left, right = plan_of(a, "unless"), plan_of(b, "unless")
    keys, length = _require_keys(on, "unless"), _require_within(within, (left, right), "unless")
    pairs = Unless(left, right, keys, how="anti", verb="unless", low=1, high=length - 1, within=length)
    if where is None:
        return Stream(pairs)
    condition = _with_suffix(expression(where), pairs)
    return Stream(
        Unless(left, right, keys, condition, "anti", verb="unless", low=1, high=length - 1, within=length)
    )


def _with_suffix(condition: Expression, pairs: Unless) -> Expression:
    """A condition in which every right column may have the suffix, also one that does not need it."""
    known = set(pairs.pair_schema.names)
    names = {old + pairs.suffix: new for old, new in pairs.right_outputs if old + pairs.suffix not in known}

    def rename(name: str) -> Expression:
        return column(names.get(name, name))

    return Expression(substitute(condition.tree, lambda name: rename(name).tree))


def _require_keys(on: str | Iterable[str] | None, verb: str) -> tuple[str, ...]:
    if on is None:
        raise SchemaError(f"{verb}: on= is missing; name the columns of the key, or write on=[] for none")
    return key_names(on, verb)


def _require_within(within: DurationLike | None, parts: tuple[Node, ...], verb: str) -> int:
    if within is None:
        raise TimeError(f"{verb}: within= is missing; say how long it may take, as in within='2d'")
    try:
        ticks = duration(within)
    except TimeError as why:
        raise TimeError(f"{verb}(within=...): {why}") from None
    require_positive(ticks, verb, "within")
    require_lengths((within,), parts, verb, "within")
    return ticks
