"""What the clocks of time zones show: Arrow's own answers where they are right, ours where they are not.

Arrow knows the changes of clocks that the zone database lists, up to 2037 for most zones, and not the rule
that holds from then on. It also refuses to cut or move a time to one that the clock shows twice or never.
So here a moment becomes what the clock shows, a plain timestamp; that is cut or moved; and what comes out
becomes a moment again. Of a time that is shown twice the earlier is taken, and one that is skipped is where
the clock goes on, as for the windows of calendars.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index
from recension.core.calendar import find_zone
from recension.core.errors import RecensionError

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_QUARTER: Final = 900
"""In seconds: from 2038 on clocks change at quarters of an hour only."""
_LISTED: Final = 2_145_830_400
"""2037-12-31, in seconds since 1970: up to there Arrow knows how clocks change."""
_LAST: Final = 253_402_214_400
"""9999-12-31: from there on there is no rule."""
_EPOCH: Final = dt.datetime(1970, 1, 1)
_STEP: Final = dt.timedelta(seconds=_QUARTER)
_SECOND: Final = dt.timedelta(seconds=1)
_DAYS: Final = frozenset({"d", "w", "mo", "q", "y"})


def is_zoned(kind: pa.DataType) -> bool:
    """Is it a timestamp whose clock may change?"""
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    return zone is not None and zone != "UTC" and zone[:1] not in "+-"


def to_clock(moments: pa.Array) -> pa.Array:
    """What the clock of their zone shows, as plain timestamps."""
    zone, kind = moments.type.tz, pa.timestamp(moments.type.unit)
    if not is_zoned(moments.type):
        return pc.local_timestamp(moments)
    _refuse_first_days(moments)

    def find_far(far: pa.Array) -> pa.Array:
        rules = find_zone(zone)
        return _move(far, kind, _each_quarter(far, lambda quarter: _offset_at(rules, quarter)))

    return _by_distance(moments, pc.local_timestamp, find_far)


def from_clock(shown: pa.Array, zone: str, *, latest: bool = False, strict: bool = False) -> pa.Array:
    """The moments at which the clock of a zone shows plain timestamps.

    Of two it is the earlier one, or the ``latest``. A ``strict`` one refuses what is shown twice or never.
    """
    _refuse_first_days(shown)

    def find_near(near: pa.Array) -> pa.Array:
        twice = "raise" if strict else "latest" if latest else "earliest"
        never = "raise" if strict else "latest"
        return pc.assume_timezone(near, zone, ambiguous=twice, nonexistent=never)

    def find_far(far: pa.Array) -> pa.Array:
        rules, kind = find_zone(zone), pa.timestamp(shown.type.unit, zone)

        def offset(quarter: int) -> int:
            clock = _EPOCH + quarter * _STEP
            first, second = (_offset(rules, clock.replace(fold=fold)) for fold in (0, 1))
            if strict and first != second:
                what = "shows twice" if first > second else "never shows"
                raise RecensionError(f"{clock} is a time that the clock of {zone} {what}")
            return second if latest and first > second else first

        moved = _move(far, kind, -_each_quarter(far, offset))
        return moved if strict else _leave_gaps(moved, far, rules)

    return _by_distance(shown, find_near, find_far)


def truncate(moments: pa.Array, unit: str, floor: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The start of the interval that each lies in, by the clock; ``floor`` cuts what it shows.

    An hour that comes twice are two intervals; a day on which it does is one.
    """
    shown = floor(to_clock(moments))
    start = from_clock(shown, moments.type.tz)
    if unit in _DAYS:
        return start
    later = from_clock(shown, moments.type.tz, latest=True)
    return pc.if_else(pc.less_equal(later, moments), later, start)


def move_days(moments: pa.Array, by: pa.Scalar) -> pa.Array:
    """The same time of the clock so many days away."""
    return from_clock(pc.add_checked(to_clock(moments), by), moments.type.tz)


def is_far(moments: pa.Array) -> bool:
    """Are they moments of a zone, some of them such that Arrow does not know what its clock shows?"""
    return is_zoned(moments.type) and bool(pc.any(_are_far(moments)).as_py())


def reads_clock(kind: pa.DataType) -> bool:
    """Is a moment as this type what the clock of its zone shows?"""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_date(kind))


def cast_clock(moments: pa.Array, kind: pa.DataType) -> pa.Array:
    """Moments as dates, or as texts with the offset of the clock."""
    shown = to_clock(moments)
    if pa.types.is_date(kind):
        return pc.cast(shown, kind, safe=False)
    unit = _PER_SECOND[moments.type.unit]
    minutes = pc.divide(pc.subtract(shown.cast(pa.int64()), moments.cast(pa.int64())), 60 * unit)
    coded = minutes.dictionary_encode()
    parts = [("-" if by < 0 else "+", *divmod(abs(by), 60)) for by in coded.dictionary.to_pylist()]
    texts = [f"{sign}{hours:02d}{rest:02d}" for sign, hours, rest in parts]
    offsets = pa.array(texts, pa.string()).take(coded.indices)
    return pc.binary_join_element_wise(shown.cast(pa.string()), offsets, "").cast(kind)


def _are_far(times: pa.Array) -> pa.Array:
    return pc.greater_equal(times.cast(pa.int64()), pa.scalar(_LISTED * _PER_SECOND[times.type.unit]))


def _by_distance(
    times: pa.Array, find_near: Callable[[pa.Array], pa.Array], find_far: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Arrow's answers for times up to 2037, and ours beyond."""
    are_far = _are_far(times)
    if not pc.any(are_far).as_py():
        return find_near(times)
    nothing = pa.scalar(None, times.type)
    far = find_far(pc.if_else(are_far, times, nothing))
    return pc.if_else(are_far, far, find_near(pc.if_else(are_far, nothing, times)))


def _refuse_first_days(times: pa.Array) -> None:
    """Where times begin, what the clock shows may not fit."""
    unit = _PER_SECOND[times.type.unit]
    first = pc.min(times.cast(pa.int64())).as_py()
    if first is not None and first < -(2**63) + 2 * 86_400 * unit:
        raise RecensionError(f"a time near the beginning of {times.type} has no clock time in a zone")


def _each_quarter(times: pa.Array, offset: Callable[[int], int]) -> Index:
    """The offset at the quarter of an hour in which each time lies, in the unit of the times."""
    unit = _PER_SECOND[times.type.unit]
    count = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    quarters, place = np.unique(count // (_QUARTER * unit), return_inverse=True)
    if len(quarters) and int(quarters[-1]) * _QUARTER >= _LAST:
        raise RecensionError("a time beyond the year 9999 has no clock time in a zone")
    found: Index = np.array([offset(quarter) for quarter in quarters.tolist()], np.int64)[place]
    return found * unit


def _offset_at(zone: ZoneInfo, quarter: int) -> int:
    """In seconds, at a moment."""
    return _offset(zone, (_EPOCH + quarter * _STEP).replace(tzinfo=dt.UTC).astimezone(zone))


def _offset(zone: ZoneInfo, clock: dt.datetime) -> int:
    offset = zone.utcoffset(clock)
    return 0 if offset is None else offset // _SECOND


def _move(times: pa.Array, kind: pa.DataType, by: Index) -> pa.Array:
    try:
        return pc.add_checked(times.cast(pa.int64()), pa.array(by)).cast(kind)
    except pa.ArrowInvalid:
        raise RecensionError(f"a time does not fit in {kind}") from None


def _leave_gaps(moments: pa.Array, shown: pa.Array, zone: ZoneInfo) -> pa.Array:
    """Of what the clock never shows, the moment at which it goes on."""
    wrong = pc.fill_null(pc.not_equal(to_clock(moments), shown), False)
    if not pc.any(wrong).as_py():
        return moments
    unit, count = _PER_SECOND[moments.type.unit], moments.cast(pa.int64()).to_pylist()
    for row in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
        # With the offset from before the gap it lies as far after its end as the time does after its start.
        quarter = count[row] // (_QUARTER * unit)
        while _offset_at(zone, quarter - 1) == _offset_at(zone, quarter):
            quarter -= 1
        count[row] = quarter * _QUARTER * unit
    return pa.array(count, pa.int64()).cast(moments.type)
