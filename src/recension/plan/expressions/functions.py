"""`rc.col`, `rc.lit`, `rc.when`, and functions of several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recension.core.errors import SchemaError
from recension.plan.expressions.conversion import IntoType, data_type, refuse_foreign
from recension.plan.expressions.expr import Expr, or_column
from recension.plan.expressions.tree import Call, Column, Literal, Tree
from recension.plan.schemas import END, START


class Then(Expr):
    """The value where a condition is true; null elsewhere, unless ``otherwise`` follows."""

    __slots__ = ("_chain",)

    def __init__(self, chain: tuple[tuple[Tree, Tree], ...], output_name: str | None) -> None:
        self._chain = chain
        super().__init__(_when_tree(chain, None), output_name)

    def otherwise(self, value: Any) -> Expr:
        """The value where no condition is true; text names a column."""
        return Expr(_when_tree(self._chain, or_column(value).tree), self.output_name)

    def when(self, *conditions: Any) -> When:
        """A further condition, for rows in which those before are not true."""
        return When(_conjunction(conditions), self._chain, self.output_name)


class When:
    """A condition that still needs a value."""

    __slots__ = ("_chain", "_condition", "_name")

    def __init__(
        self, condition: Tree, chain: tuple[tuple[Tree, Tree], ...] = (), name: str | None = None
    ) -> None:
        self._condition, self._chain, self._name = condition, chain, name

    def then(self, value: Any) -> Then:
        """The value where the condition is true; text names a column."""
        chosen = or_column(value)
        name = self._name if self._chain else chosen.output_name
        return Then((*self._chain, (self._condition, chosen.tree)), name)


def _when_tree(chain: tuple[tuple[Tree, Tree], ...], otherwise: Tree | None) -> Tree:
    for condition, value in reversed(chain):
        otherwise = Call("when", (condition, value) if otherwise is None else (condition, value, otherwise))
    assert otherwise is not None
    return otherwise


def _conjunction(conditions: Sequence[Any]) -> Tree:
    if not conditions:
        raise SchemaError("when: give a condition, such as col('bytes') > 0")
    first, *others = (or_column(condition).tree for condition in conditions)
    for other in others:
        first = Call("&", (first, other))
    return first


def col(name: str) -> Expr:
    """A column of the payload.

    >>> import recension as rc
    >>> rc.col("bytes") * 8
    Expr(bytes * 8)
    """
    if not isinstance(name, str):
        raise SchemaError(f"col: a column's name is text, not {name!r}; name each column by itself")
    return Expr(named_column(name), name)


def named_column(name: str) -> Column:
    """The column that a user names."""
    if name in (START, END):
        raise SchemaError(f"{name!r} is no column: write rc.{name}")
    return Column(name)


def start() -> Expr:
    """When the event begins: ticks, or a timestamp if the source says that its times are timestamps.

    >>> import recension as rc
    >>> jobs = rc.source("jobs", {"job": "int64"})
    >>> rc.run(jobs.select("job", began=rc.start()), {"jobs": [rc.Insert({"job": 1}, 3, 8)]}).show()
    _vs  _ve  job  began
    3    8    1    3
    """
    return Expr(Column(START), "start")


def end() -> Expr:
    """When the event ends, in the type of `start`; null while it has no end.

    The end of an event may still move. What is computed from it is then revised from the event's start on.

    >>> import recension as rc
    >>> jobs = rc.source("jobs", {"job": "int64"})
    >>> rc.run(jobs.where(rc.end().is_null()), {"jobs": [rc.Insert({"job": 1}, 3)]}).show()
    _vs  _ve  job
    3    ∞    1
    """
    return Expr(Column(END), "end")


def lifetime() -> Expr:
    """How long the event lives, ``rc.end() - rc.start()``: ticks or a duration; null while it has no end.

    >>> import recension as rc
    >>> jobs = rc.source("jobs", {"rate": "float64"})
    >>> costs = jobs.select(cost=rc.lifetime() * rc.col("rate"))
    >>> rc.run(costs, {"jobs": [rc.Insert({"rate": 0.5}, 3, 13)]}).show()
    _vs  _ve  cost
    3    13   5.0
    """
    return Expr(Call("-", (Column(END), Column(START))), "lifetime")


def lit(value: Any, dtype: IntoType | None = None) -> Expr:
    """A value, the same for every row; ``dtype`` sets its type.

    >>> import recension as rc
    >>> rc.lit(0, "int32")
    Expr(lit(0, 'int32'))
    """
    if isinstance(value, Expr):
        raise SchemaError(f"lit: {value} is an expression already")
    refuse_foreign(value)
    return Expr(Literal(value, None if dtype is None else data_type(dtype, "lit")), "literal")


def when(*conditions: Any) -> When:
    """One value where all conditions are true, another where they are not.

    Null is not true. Errors in a branch that is not taken are ignored: integers may overflow there, casts and
    parsing may fail.

    >>> import recension as rc
    >>> rc.when(rc.col("n") > 0).then(rc.col("total") // rc.col("n")).otherwise(rc.lit(0))
    Expr(when(n > 0).then(total // n).otherwise(0))
    """
    return When(_conjunction(conditions))


def _function(name: str, columns: Sequence[Any], **arguments: Any) -> Expr:
    """A function of several columns; it makes a column of the name of the first."""
    flat = [x for given in columns for x in (given if isinstance(given, list | tuple) else [given])]
    if not flat:
        raise SchemaError(f"{name}: give at least one column")
    operands = [or_column(value) for value in flat]
    return Expr(
        Call(name, tuple(x.tree for x in operands), tuple(arguments.items())), operands[0].output_name
    )


def coalesce(*columns: Any) -> Expr:
    """The first value that is not null; text names a column.

    >>> import recension as rc
    >>> rc.coalesce("nickname", "name", rc.lit("nobody"))
    Expr(coalesce(nickname, name, 'nobody'))
    """
    return _function("coalesce", columns)


def all_horizontal(*columns: Any, ignore_nulls: bool = False) -> Expr:
    """Are all of these true? Nulls count as true if they are ignored."""
    return _function("all_horizontal", columns, ignore_nulls=ignore_nulls)


def any_horizontal(*columns: Any, ignore_nulls: bool = False) -> Expr:
    """Is one of these true? Nulls count as false if they are ignored."""
    return _function("any_horizontal", columns, ignore_nulls=ignore_nulls)


def min_horizontal(*columns: Any) -> Expr:
    """The least of these values; nulls are ignored."""
    return _function("min_horizontal", columns)


def max_horizontal(*columns: Any) -> Expr:
    """The greatest of these values; nulls are ignored."""
    return _function("max_horizontal", columns)


def sum_horizontal(*columns: Any) -> Expr:
    """The sum of these values; nulls count as 0."""
    return _function("sum_horizontal", columns)


def mean_horizontal(*columns: Any) -> Expr:
    """The mean of these values; nulls are ignored, and it is null if there is nothing else."""
    return _function("mean_horizontal", columns)


def concat_str(*columns: Any, separator: str = "", ignore_nulls: bool = False) -> Expr:
    """The texts of these columns joined; null if one is null, unless nulls are ignored."""
    return _function("concat_str", columns, separator=separator, ignore_nulls=ignore_nulls)
