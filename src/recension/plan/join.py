"""Temporal joins: payloads of matching events joined, lifetimes intersected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, column, expression, lit, require_boolean, require_columns
from recension.plan.expressions.tree import substitute
from recension.plan.group_apply import Group
from recension.plan.node import FilterRule, Names, Node, PairNode, all_of, columns_named, walk
from recension.plan.properties import Properties
from recension.plan.schemas import require_names, require_same_type
from recension.plan.span import Project, Union, indistinct_columns

How: TypeAlias = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True, eq=False)
class Join(PairNode):
    """Pairs of events with equal keys that satisfy ``where``, alive while both are.

    ``inner`` gives the pairs; ``semi`` and ``anti`` the left events on the parts of their lifetimes that
    some / no match covers; ``left`` the pairs and, with nulls, the anti parts.
    """

    left: Node
    right: Node
    on: tuple[str, ...] = ()
    where: Expression | None = None
    how: How = "inner"
    suffix: str = "_right"
    null_matches: tuple[str, ...] = ()
    """The keys for which null equals null: those of a group."""
    verb: Literal["join", "as_of", "unless"] = "join"
    """The method that was called; errors name it."""

    ports: ClassVar[tuple[str, ...]] = ("left", "right")

    @property
    def label(self) -> str:
        keys = f" on {', '.join(self.on)}" if self.on else ""
        how = "cross" if self.how == "inner" and not self.on and not self.where else self.how
        return f"{how} join{keys}" + (f" where {self.where}" if self.where else "")

    @property
    def right_outputs(self) -> tuple[tuple[str, str], ...]:
        """The right columns of a pair, each with its name there: all but the keys."""
        taken = set(self.left.schema.names)
        names = (name for name in self.right.schema.names if name not in self.on)
        return tuple((name, name + self.suffix if name in taken else name) for name in names)

    @property
    def pair_schema(self) -> pa.Schema:
        """The columns of a pair, which ``where`` sees: the left ones, then the right ones but the keys."""
        right = self.right.schema
        renamed = [pa.field(new, right.field(old).type) for old, new in self.right_outputs]
        return pa.schema([*self.left.schema, *renamed])

    def derive_schema(self) -> pa.Schema:
        if self.how not in get_args(How):
            raise SchemaError(
                f"{self.verb}: how is 'inner', 'left', 'full', 'semi', 'anti' or 'cross', not {self.how!r}"
            )
        require_columns(self.on, self.left.schema, f"{self.verb}(on=...)")
        require_columns(self.on, self.right.schema, f"{self.verb}(on=...), in the right stream")
        for key in self.on:
            require_same_type(key, self.left.schema, self.right.schema, f"{self.verb}(on=...)")
        require_names(
            [*self.left.schema.names, *(new for _, new in self.right_outputs)],
            f"{self.verb}(suffix={self.suffix!r})",
        )
        if self.where is not None:
            require_boolean(self.where, self.pair_schema, f"{self.verb}(where={self.where})")
        return self.pair_schema if self.how in ("inner", "left") else self.left.schema

    def derive_properties(self) -> Properties:
        return _RULES[self.how](self.left.properties, self.right.properties)

    def columns_read(self, needed: Names) -> list[Names]:
        """Where names clash, the left column is kept too: without it the right one would have no suffix."""
        read = (needed | self.where.references) if self.where else needed
        right = {old: new for old, new in self.right_outputs if new in read}
        clashing = {old for old, new in right.items() if old != new}
        left = (read & set(self.left.schema.names)) | clashing | set(self.on)
        return [frozenset(left), frozenset(right) | set(self.on)]

    @property
    def left_columns(self) -> dict[str, Expression]:
        """The columns of a pair that the left input has."""
        return dict(all_of(self.left.schema))

    @property
    def right_columns(self) -> dict[str, Expression]:
        """The columns of a pair that the right input has, as they are called there.

        Keys are the same on both sides, but for floats: there 0.0 matches -0.0, and a condition can tell.
        """
        return self._right_keys | {new: column(old) for old, new in self.right_outputs}

    @property
    def _right_keys(self) -> dict[str, Expression]:
        return indistinct_columns(self.right.schema, self.on)

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """To the left what reads left columns; to the right what reads right columns, in an inner join only.

        A condition on the keys goes to both sides of any join: a right event that fails it matches nothing
        that remains on the left.
        """
        right = self.right_columns if self.how == "inner" else self._right_keys
        return (FilterRule(self.left_columns), FilterRule(right))

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        return () if self.how == "inner" else (self.left,)

    def swapped(self, how: How, suffix: str) -> Join:
        """The same seen from the other side, without the condition, whose columns are called otherwise."""
        return replace(self, left=self.right, right=self.left, where=None, how=how, suffix=suffix)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """A stream that is not of the group meets all groups."""
        left, right = inputs
        if left is self.left:
            return Project(self.with_inputs(inputs), (*columns_named(keys), *all_of(self.schema)), "apply")
        if right is self.right:
            return self.with_inputs(inputs)
        null_matches = (*keys, *self.null_matches)
        return replace(self, left=left, right=right, on=(*keys, *self.on), null_matches=null_matches)


def _inner_join_properties(left: Properties, right: Properties) -> Properties:
    """Pairs end when the first of the two does, so they change as either side changes.

    Inputs interleave: never ordered (ruling C7). Keys are not enough for a key: two left events of one
    payload that overlap a right event starting later give two equal pairs, unless all are points.
    """
    return Properties(
        is_insert_only=left.is_insert_only and right.is_insert_only,
        is_shrink_only=left.is_shrink_only and right.is_shrink_only,
        has_key=left.has_key and right.has_key and left.is_point and right.is_point,
        is_point=left.is_point or right.is_point,
    )


def _semi_join_properties(left: Properties, right: Properties) -> Properties:
    """Matches that arrive lengthen covered parts, unless a part is the one tick of a point."""
    return Properties(
        is_insert_only=left.is_point and left.is_insert_only and right.is_insert_only,
        has_key=left.has_key and left.is_point,
        is_point=left.is_point,
    )


def _anti_join_properties(left: Properties, right: Properties) -> Properties:
    """A match that arrives takes back what was shown; one that is removed joins two parts into one again."""
    return Properties(
        is_shrink_only=left.is_shrink_only and right.is_insert_only,
        has_key=left.has_key and left.is_point,
        is_point=left.is_point,
    )


def _left_join_properties(left: Properties, right: Properties) -> Properties:
    """The inner pairs and the anti parts: what both have in common, and no key.

    A pair whose right columns are null and the part without a match that it replaces are equal rows.
    """
    return Properties(is_shrink_only=left.is_shrink_only and right.is_insert_only, is_point=left.is_point)


_RULES = {
    "inner": _inner_join_properties,
    "left": _left_join_properties,
    "semi": _semi_join_properties,
    "anti": _anti_join_properties,
}


def join_of(
    left: Node,
    right: Node,
    on: tuple[str, ...],
    where: Expression | None,
    how: How | Literal["full", "cross"],
    suffix: str,
) -> Node:
    """The join that somebody asks for; which events match must be said."""
    if how == "cross":
        if given := [name for name, of in (("on", on), ("where", where)) if of]:
            raise SchemaError(
                "join(how='cross'): every pair matches",
                instead=f", so {given[0]}= cannot choose: leave out how='cross'",
            )
        return Join(left, right, (), None, "inner", suffix)
    is_known = how in (*get_args(How), "full")
    if is_known and not on and where is None and not _groups_below(left) & _groups_below(right):
        every = "how='cross' for every pair" if how == "inner" else "where=rc.lit(True) if any event matches"
        advice = f": give on=, the key columns, or where=; or {every}"
        raise SchemaError("join: nothing says which events match", instead=advice)
    if how == "full":
        return full_join(Join(left, right, on, where, "left", suffix))
    return Join(left, right, on, where, how, suffix)


def _groups_below(node: Node) -> set[Group]:
    """The groups that a stream is of: their keys are a condition of joins between their streams."""
    found: set[Group] = set()
    for group in (step for step in walk(node) if isinstance(step, Group)):
        found |= {group} | _groups_below(group.input)
    return found


def full_join(pairs: Join) -> Node:
    """The left join, and the right events, with nulls for the left ones, while no left event matches them.

    The keys of these are the right event's.
    """
    rest = _unmatched_right(pairs)
    nulls = {field.name: expression(lit(None, field.type)) for field in pairs.left.schema}
    right = {new: column(old) for old, new in pairs.right_outputs}
    outputs = nulls | dict(columns_named(pairs.on)) | right
    return Union((pairs, Project(rest, tuple(outputs.items()), "join")))


def _unmatched_right(pairs: Join) -> Join:
    """The right events, on the parts of their lifetimes that no left event covers."""
    left, right, where = pairs.left.schema.names, pairs.right.schema.names, pairs.where
    suffix = "_left"
    while {name + suffix for name in left} & {*left, *right}:
        suffix += "'"
    swapped = pairs.swapped("anti", suffix)
    if where is None:
        return swapped
    known = indistinct_columns(pairs.right.schema, pairs.on)
    if strange := sorted((where.references & set(pairs.on)) - set(known)):
        raise SchemaError(
            f"join(where={where}): in a full join the condition cannot read the key {strange[0]!r}, which is "
            "a float: 0.0 and -0.0 are equal keys; join on another column, or compare it before"
        )
    # Seen from the other side the same columns have other names.
    names = {key: key for key in pairs.on} | dict(swapped.right_outputs)
    names |= {new: old for old, new in pairs.right_outputs}
    return replace(swapped, where=Expression(substitute(where.tree, lambda name: column(names[name]).tree)))
