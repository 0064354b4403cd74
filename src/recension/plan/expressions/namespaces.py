"""Methods by the kind of value: ``rc.col("site").str.to_uppercase()``, ``rc.col("at").dt.year()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import SchemaError
from recension.plan.expressions.conversion import unknown_method_error
from recension.plan.expressions.tree import Tree, root_name

TimeUnit: TypeAlias = Literal["ns", "us", "ms"]


E_co = TypeVar("E_co", covariant=True)


class _Calling(Protocol[E_co]):
    def _call(self, name: str, /, **arguments: Any) -> E_co: ...


def method_call(name: str, meaning: str = "") -> Callable[[_Calling[E_co]], E_co]:
    """A method without arguments, of an expression or of a namespace."""

    def record(self: _Calling[E_co]) -> E_co:
        return self._call(name)

    record.__name__, record.__doc__ = name, meaning
    return record


class Recorder(Protocol):
    """The part of an expression that its methods need."""

    tree: Tree
    output_name: str | None

    def _call(self, name: str, /, **arguments: Any) -> Self: ...

    def alias(self, name: str) -> Self: ...


E = TypeVar("E", bound=Recorder)


class Methods(Generic[E]):
    """Methods of an expression under a common name."""

    __slots__ = ("_of",)
    _space = ""

    def __init__(self, of: E) -> None:
        self._of = of

    def _call(self, name: str, /, **arguments: Any) -> E:
        return self._of._call(f"{self._space}.{name}", **arguments)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown_method_error(name, type(self), self._of)


def _finds_nothing(pattern: str) -> bool:
    """Does a regular expression match the empty text?"""
    return bool(pc.match_substring_regex(pa.scalar(""), pattern).as_py())


class StringMethods(Methods[E]):
    """Methods of text."""

    _space = "str"

    len_chars = method_call("len_chars", "The number of characters.")
    to_lowercase = method_call("to_lowercase", "The text in lower case.")
    to_uppercase = method_call("to_uppercase", "The text in upper case.")
    to_titlecase = method_call("to_titlecase", "The text in title case.")

    def contains(self, pattern: Any, *, literal: bool = False) -> E:
        """Does it contain the pattern, a regular expression unless ``literal``?"""
        return self._call("contains", pattern=pattern, literal=literal)

    def starts_with(self, prefix: Any) -> E:
        """Does it begin with this?"""
        return self._call("starts_with", prefix=prefix)

    def ends_with(self, suffix: Any) -> E:
        """Does it end with this?"""
        return self._call("ends_with", suffix=suffix)

    def replace(self, pattern: str, value: Any, *, literal: bool = False, n: int = 1) -> E:
        """The first ``n`` matches of a pattern replaced."""
        self._require_text("replace", pattern, literal, n)
        return self._call("replace", pattern=pattern, value=value, literal=literal, n=n)

    def replace_all(self, pattern: str, value: Any, *, literal: bool = False) -> E:
        """All matches of a pattern replaced."""
        self._require_text("replace_all", pattern, literal)
        return self._call("replace_all", pattern=pattern, value=value, literal=literal)

    def _require_text(self, verb: str, pattern: str, literal: bool, n: int = 1) -> None:
        """Refuse a pattern that matches the empty text: Arrow would find it at one place for ever."""
        if (literal and pattern == "") or (n > 1 and not literal and _finds_nothing(pattern)):
            raise SchemaError(
                f"{self._of}.str.{verb}: {pattern!r} matches the empty text; give a pattern that does not"
            )

    def slice(self, offset: int, length: int | None = None) -> E:
        """The characters from an offset on, at most ``length``; a negative offset counts from the end."""
        return self._call("slice", offset=offset, length=length)

    def head(self, n: int = 5) -> E:
        """The first characters."""
        return self._call("head", n=n)

    def tail(self, n: int = 5) -> E:
        """The last characters."""
        return self._call("tail", n=n)

    def split(self, by: str) -> E:
        """The parts between separators, as a list."""
        self._require_text("split", by, literal=True)
        return self._call("split", by=by)

    def strip_chars(self, characters: str | None = None) -> E:
        """The text without these characters (default: white space) at both ends."""
        return self._call("strip_chars", characters=characters)

    def strip_chars_start(self, characters: str | None = None) -> E:
        """The text without these characters (default: white space) at the start."""
        return self._call("strip_chars_start", characters=characters)

    def strip_chars_end(self, characters: str | None = None) -> E:
        """The text without these characters (default: white space) at the end."""
        return self._call("strip_chars_end", characters=characters)

    def pad_start(self, length: int, fill_char: str = " ") -> E:
        """The text padded at the start to a length."""
        return self._call("pad_start", length=length, fill_char=fill_char)

    def pad_end(self, length: int, fill_char: str = " ") -> E:
        """The text padded at the end to a length."""
        return self._call("pad_end", length=length, fill_char=fill_char)

    def zfill(self, width: int) -> E:
        """The text padded with zeros, after a sign if there is one."""
        return self._call("zfill", width=width)

    def to_datetime(self, format: str | None = None) -> E:
        """The text parsed as a timestamp; other text is an error."""
        return self._call("to_datetime", format=format)

    def to_date(self, format: str | None = None) -> E:
        """The text parsed as a date; other text is an error."""
        return self._call("to_date", format=format)

    def to_time(self, format: str | None = None) -> E:
        """The text parsed as a time of day; other text is an error."""
        return self._call("to_time", format=format)


class DateTimeMethods(Methods[E]):
    """Methods of timestamps, dates and durations."""

    _space = "dt"

    date = method_call("date", "The date of a timestamp.")
    year = method_call("year", "The year.")
    month = method_call("month", "The month, from 1.")
    day = method_call("day", "The day of the month, from 1.")
    hour = method_call("hour", "The hour.")
    minute = method_call("minute", "The minute.")
    second = method_call("second", "The second.")
    millisecond = method_call("millisecond", "The milliseconds of the second.")
    microsecond = method_call("microsecond", "The microseconds of the second.")
    nanosecond = method_call("nanosecond", "The nanoseconds of the second.")
    ordinal_day = method_call("ordinal_day", "The day of the year, from 1.")
    weekday = method_call("weekday", "The day of the week, from Monday = 1 to Sunday = 7.")
    total_minutes = method_call("total_minutes", "A duration in whole minutes.")
    total_seconds = method_call("total_seconds", "A duration in whole seconds.")
    total_milliseconds = method_call("total_milliseconds", "A duration in whole milliseconds.")
    total_microseconds = method_call("total_microseconds", "A duration in whole microseconds.")
    total_nanoseconds = method_call("total_nanoseconds", "A duration in nanoseconds.")

    def timestamp(self, time_unit: TimeUnit = "us") -> E:
        """The time since 1970 as a whole number."""
        return self._call("timestamp", time_unit=time_unit)

    def to_string(self, format: str) -> E:
        """As text, by a format such as ``"%Y-%m-%d"``."""
        return self._call("to_string", format=format)

    def replace_time_zone(self, time_zone: str | None) -> E:
        """The same clock time in another time zone, or in none."""
        return self._call("replace_time_zone", time_zone=time_zone)

    def convert_time_zone(self, time_zone: str) -> E:
        """The same instant in another time zone."""
        return self._call("convert_time_zone", time_zone=time_zone)

    def truncate(self, every: str) -> E:
        """The start of the interval it falls into: ``"1h"``, ``"15m"``, ``"1d"``, ``"1mo"``."""
        return self._call("truncate", every=every)

    def offset_by(self, by: str) -> E:
        """The time moved by a duration: ``"1h"``, ``"-3d"``."""
        return self._call("offset_by", by=by)


class ListMethods(Methods[E]):
    """Methods of lists."""

    _space = "list"

    len = method_call("len", "The number of items.")

    def get(self, index: int) -> E:
        """The item at an index, from 0; a list that is too short is an error."""
        return self._call("get", index=index)

    def contains(self, item: Any) -> E:
        """Is this one of the items?"""
        return self._call("contains", item=item)

    def sort(self, *, descending: bool = False, nulls_last: bool = False) -> E:
        """The items in order."""
        return self._call("sort", descending=descending, nulls_last=nulls_last)

    min = method_call("min", "The least item.")
    max = method_call("max", "The greatest item.")
    mean = method_call("mean", "The mean of the items.")
    median = method_call("median", "The median of the items.")
    sum = method_call("sum", "The sum of the items; 0 for an empty list.")


class StructMethods(Methods[E]):
    """Methods of structs."""

    _space = "struct"

    def field(self, name: str) -> E:
        """One of its fields, under that name."""
        return self._call("field", name=name).alias(name)


class NameMethods(Methods[E]):
    """Other names for the column that is made."""

    def keep(self) -> E:
        """The name of the first column in the expression, whatever its alias."""
        return self._of.alias(root_name(self._of.tree))

    def map(self, function: Callable[[str], str]) -> E:
        """A function of the name."""
        return self._of.alias(function(self._of.output_name or root_name(self._of.tree)))

    def prefix(self, prefix: str) -> E:
        """The name with a prefix."""
        return self.map(lambda name: prefix + name)

    def suffix(self, suffix: str) -> E:
        """The name with a suffix."""
        return self.map(lambda name: name + suffix)

    def to_lowercase(self) -> E:
        """The name in lower case."""
        return self.map(str.lower)

    def to_uppercase(self) -> E:
        """The name in upper case."""
        return self.map(str.upper)
