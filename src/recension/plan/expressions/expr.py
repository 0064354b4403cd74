"""The expression as users write it: operators and methods.

Every method here is computed row by row, so that it means the same on any batch. What is not here is refused
by name (`conversion`). `values` says how each is computed; a page of the guide lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from recension.core.errors import SchemaError
from recension.plan.expressions.conversion import (
    IntoType,
    argument,
    data_type,
    member_values,
    operand,
    other_rows_error,
    unknown_method_error,
)
from recension.plan.expressions.namespaces import (
    DateTimeMethods,
    ListMethods,
    NameMethods,
    StringMethods,
    StructMethods,
    method_call,
)
from recension.plan.expressions.tree import Call, Column, Tree, render

Closed: TypeAlias = Literal["both", "left", "right", "none"]
NO_DEFAULT: Any = ...


def _binary(sign: str, output_name: str | None = None) -> Callable[[Expr, Any], Expr]:
    def record(self: Expr, other: Any) -> Expr:
        return Expr(Call(sign, (self.tree, operand(other))), output_name or self.output_name)

    return record


def _reflected_method(sign: str) -> Callable[[Expr, Any], Expr]:
    def record(self: Expr, other: Any) -> Expr:
        return Expr(Call(sign, (operand(other), self.tree)), "literal")

    return record


class Expr:
    """One value per row: a column, a literal, or what is computed from them.

    Operators are Python's own: ``+ - * / // % **``, comparisons, and ``& | ~`` for and, or, not. Plain values
    next to them are literals. If an input is null, the result is null, except with `is_null`, `fill_null`,
    and ``&`` and ``|`` if the other side decides.

    >>> import recension as rc
    >>> (rc.col("bytes") > 0) & ~rc.col("site").is_in(["a", "b"])
    Expr((bytes > 0) & ~site.is_in(['a', 'b']))
    """

    __slots__ = ("output_name", "tree")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's values leave operators to this, and its functions refuse it

    def __init__(self, tree: Tree, output_name: str | None) -> None:
        self.tree = tree
        self.output_name = output_name
        """The name of the column it makes if it is not given another one; None: it has to be given one."""

    def __str__(self) -> str:
        return render(self.tree)

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __bool__(self) -> NoReturn:
        raise SchemaError(
            f"{self} is true or false of each row, not as a whole; write & for 'and', | for 'or', "
            "~ for 'not', and is_between(low, high) for low <= x <= high"
        )

    def __iter__(self) -> NoReturn:
        raise SchemaError(f"{self} is one value per row and cannot be iterated over")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown_method_error(name, type(self), self)

    def _call(self, name: str, /, **arguments: Any) -> Expr:
        """A method of this, by its name and with all of its arguments."""
        given = tuple((key, argument(value)) for key, value in arguments.items())
        return Expr(Call(name, (self.tree,), given), self.output_name)

    __eq__ = _binary("==")  # type: ignore[assignment]
    __ne__ = _binary("!=")  # type: ignore[assignment]
    __lt__ = _binary("<")
    __le__ = _binary("<=")
    __gt__ = _binary(">")
    __ge__ = _binary(">=")
    __and__ = _binary("&")
    __rand__ = _binary("&", "literal")
    __or__ = _binary("|")
    __ror__ = _binary("|", "literal")
    __invert__ = method_call("not")
    __add__ = _binary("+")
    __radd__ = _binary("+", "literal")
    __sub__ = _binary("-")
    __rsub__ = _reflected_method("-")
    __mul__ = _binary("*")
    __rmul__ = _binary("*", "literal")
    __truediv__ = _binary("/")
    __rtruediv__ = _reflected_method("/")
    __floordiv__ = _binary("//")
    __rfloordiv__ = _reflected_method("//")
    __mod__ = _binary("%")
    __rmod__ = _reflected_method("%")
    __pow__ = _binary("**")
    __rpow__ = _reflected_method("**")
    __neg__ = method_call("negate")
    __abs__ = method_call("abs")

    def alias(self, name: str) -> Expr:
        """The same with another name, for ``select`` and ``with_columns``."""
        return Expr(self.tree, name)

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``function(self, ...)``, for chains of methods."""
        return function(self, *args, **kwargs)

    def cast(self, dtype: IntoType) -> Expr:
        """The value as another type: its name (``"float64"``), an Arrow type or a narwhals type.

        A value that does not fit is an error, but an integer becomes the nearest float.
        """
        return self._call("cast", dtype=data_type(dtype, "cast"))

    abs = method_call("abs", "The absolute value.")

    def round(self, decimals: int = 0) -> Expr:
        """The value rounded to this many decimals, halves away from 0."""
        return self._call("round", decimals=decimals)

    floor = method_call("floor", "The value rounded down.")
    ceil = method_call("ceil", "The value rounded up.")
    exp = method_call("exp", "The exponential function.")

    def log(self, base: float = 2.718281828459045) -> Expr:
        """The logarithm to a base, by default the natural one."""
        return self._call("log", base=base)

    sqrt = method_call("sqrt", "The square root.")
    sin = method_call("sin", "The sine.")
    cos = method_call("cos", "The cosine.")

    def clip(self, lower_bound: Any = None, upper_bound: Any = None) -> Expr:
        """The value, limited to the bounds; text names a column."""
        bounds = [None if x is None else or_column(x) for x in (lower_bound, upper_bound)]
        return self._call("clip", lower_bound=bounds[0], upper_bound=bounds[1])

    is_null = method_call("is_null", "Is it null?")
    is_nan = method_call("is_nan", "Is it NaN? (NaN is a value, null is not.)")
    is_finite = method_call("is_finite", "Is it neither infinite nor NaN?")

    def is_in(self, other: Iterable[Any]) -> Expr:
        """Is it one of these values?"""
        return self._call("is_in", other=member_values(other))

    def is_between(self, lower_bound: Any, upper_bound: Any, closed: Closed = "both") -> Expr:
        """Is it between two bounds? ``closed`` says which bounds are included; text names a column."""
        low, high = or_column(lower_bound), or_column(upper_bound)
        return self._call("is_between", lower_bound=low, upper_bound=high, closed=closed)

    def is_close(
        self, other: Any, *, abs_tol: float = 0.0, rel_tol: float = 1e-09, nans_equal: bool = False
    ) -> Expr:
        """Are they equal within a tolerance?"""
        return self._call("is_close", other=other, abs_tol=abs_tol, rel_tol=rel_tol, nans_equal=nans_equal)

    def fill_null(self, value: Any = None, strategy: None = None, limit: None = None) -> Expr:
        """``value`` in place of null."""
        if strategy is not None or limit is not None:
            raise other_rows_error(f"fill_null(strategy={strategy!r})")
        if value is None:
            raise SchemaError(f"{self}.fill_null: give the value that stands for null")
        return self._call("fill_null", value=value)

    def fill_nan(self, value: float | None) -> Expr:
        """``value``, which may be None, in place of NaN."""
        return self._call("fill_nan", value=value)

    def replace_strict(
        self,
        old: Sequence[Any] | Mapping[Any, Any],
        new: Sequence[Any] | None = None,
        *,
        default: Any = NO_DEFAULT,
        return_dtype: IntoType | None = None,
    ) -> Expr:
        """Replace each old value by its new one. Other values are an error, or become ``default``."""
        if new is None and not isinstance(old, Mapping):
            raise SchemaError("replace_strict: give old and new values, or a mapping from one to the other")
        pairs = dict(old) if isinstance(old, Mapping) else None
        return self._call(
            "replace_strict",
            old=tuple(pairs if pairs is not None else old),
            new=tuple(pairs.values() if pairs is not None else new or ()),
            default=default,
            return_dtype=None if return_dtype is None else data_type(return_dtype, "replace_strict"),
        )

    # Last: below, `str` and `list` no longer name types.
    @property
    def str(self) -> StringMethods[Expr]:
        """Methods of text."""
        return StringMethods(self)

    @property
    def dt(self) -> DateTimeMethods[Expr]:
        """Methods of timestamps, dates and durations."""
        return DateTimeMethods(self)

    @property
    def list(self) -> ListMethods[Expr]:
        """Methods of lists."""
        return ListMethods(self)

    @property
    def struct(self) -> StructMethods[Expr]:
        """Methods of structs."""
        return StructMethods(self)

    @property
    def name(self) -> NameMethods[Expr]:
        """Other names for the column that is made."""
        return NameMethods(self)


def or_column(value: Any) -> Expr:
    """An expression; here text names a column."""
    if isinstance(value, Expr):
        return value
    return Expr(Column(value), value) if isinstance(value, str) else Expr(operand(value), "literal")
