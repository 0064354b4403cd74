"""Patterns: choices of one event of each part, of one key, whose starts lie within a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.ticks import describe_duration
from recension.plan.expressions import Expression, column, require_boolean, require_columns
from recension.plan.interval_join import require_starts
from recension.plan.node import FilterRule, ManyInputsNode, Names, Needs, Node, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.schemas import require_names, require_same_type
from recension.plan.span import indistinct_columns

OnLimit: TypeAlias = Literal["raise", "drop"]
Form: TypeAlias = Literal["sequence", "all_of", "at_least"]


@dataclass(frozen=True, eq=False)
class Pattern(ManyInputsNode, TimedNode):
    """Choices of one event of each of ``size`` parts, all starts different and less than ``within`` apart.

    In a sequence they come in the order of the parts. If there is one stream more than parts, none of its
    events starts between the first and the last of them.
    """

    streams: tuple[Node, ...]
    names: tuple[str, ...]
    on: tuple[str, ...]
    within: int
    form: Form
    size: int
    where: Expression | None = None
    most: int | None = None
    on_limit: OnLimit = "raise"
    null_matches: tuple[str, ...] = ()
    """The keys for which null equals null: those of a group."""

    narrows_inputs = True
    ignores_ctis = True
    named_times = ()

    @property
    def label(self) -> str:
        return self._label(str)

    @property
    def label_with_units(self) -> str:
        """The label over timestamps."""
        return self._label(describe_duration)

    def _label(self, length: Any) -> str:
        verb = {"sequence": "sequence of", "all_of": "all of", "at_least": f"at least {self.size} of"}
        keys = f" on {', '.join(self.on)}" if self.on else ""
        absent = ", none of another stream between" if self.has_absent else ""
        condition = f" where {self.where}" if self.where else ""
        return (
            f"{verb[self.form]} {', '.join(self.names)}{keys} within {length(self.within)}{absent}{condition}"
        )

    @property
    def parts(self) -> tuple[Node, ...]:
        """The streams that answers are made of."""
        return self.streams[: len(self.names)]

    @property
    def has_absent(self) -> bool:
        """Is there a stream of which no event may lie between?"""
        return len(self.streams) > len(self.names)

    @property
    def in_order(self) -> bool:
        """Do the parts follow each other?"""
        return self.form == "sequence"

    @property
    def outputs(self) -> list[list[tuple[str, str]]]:
        """Of each part, its columns but the keys, each with its name in an answer."""
        return [
            [(old, f"{name}_{old}") for old in part.schema.names if old not in self.on]
            for name, part in zip(self.names, self.parts, strict=True)
        ]

    def derive_schema(self) -> pa.Schema:
        self._require_parts()
        for node, where in zip(self.streams, self._places(), strict=True):
            require_columns(self.on, node.schema, f"{self.form}(on=...){where}")
            for key in self.on:
                require_same_type(key, self.streams[0].schema, node.schema, f"{self.form}(on=...)")
        require_starts(self.streams, self.form)
        found = [self.streams[0].schema.field(key) for key in self.on]
        for part, outputs in zip(self.parts, self.outputs, strict=True):
            found += [pa.field(new, part.schema.field(old).type) for old, new in outputs]
        require_names([field.name for field in found], self.form)
        schema = pa.schema(found)
        if self.where is not None:
            require_boolean(self.where, schema, f"{self.form}(where={self.where})")
        return schema

    def _places(self) -> list[str]:
        """Where an error is, for each stream."""
        return [
            *(f", in part {name!r}" for name in self.names),
            *([", in absent"] if self.has_absent else []),
        ]

    def _require_parts(self) -> None:
        if strange := [name for name in self.names if not isinstance(name, str) or not name.isidentifier()]:
            raise SchemaError(
                f"{self.form}: {strange[0]!r} is no name for a part; write a word: its columns begin with it"
            )
        if len(self.names) < 2:
            raise SchemaError(f"{self.form}: a pattern has two parts or more, not {len(self.names)}")
        if not 1 <= self.size <= len(self.names):
            raise SchemaError(
                f"{self.form}: n is from 1 to the number of parts, {len(self.names)}, not {self.size!r}"
            )
        if len(self.streams) - len(self.names) not in (0, self.in_order):
            raise SchemaError(f"{self.form}: {len(self.names)} names for {len(self.streams)} streams")
        is_whole = isinstance(self.most, int) and not isinstance(self.most, bool)
        if self.most is not None and not (is_whole and self.most >= 1):
            raise SchemaError(f"{self.form}: most is how many answers one event may add, not {self.most!r}")
        if self.on_limit not in get_args(OnLimit):
            raise SchemaError(f"{self.form}: on_limit is 'raise' or 'drop', not {self.on_limit!r}")

    def derive_properties(self) -> Properties:
        """Answers come and go as a whole."""
        is_insert_only = all(node.properties.is_insert_only for node in self.streams)
        return Properties(is_insert_only=is_insert_only and not self.has_absent, is_shrink_only=True)

    def needs(self) -> Needs:
        return tuple(columns_named(self.on) for _ in self.streams)

    def kept_columns(self) -> Mapping[str, str]:
        """Only the keys are in all inputs."""
        return {name: name for name in self.on}

    def columns_read(self, needed: Names) -> list[Names]:
        read = (needed | self.where.references) if self.where else needed
        own = [
            frozenset(old for old, new in outputs if new in read) | set(self.on) for outputs in self.outputs
        ]
        return [*own, *([frozenset(self.on)] if self.has_absent else [])]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """To a part what reads its columns, if it is in every answer; to all streams what reads keys.

        Which events are dropped for adding too many answers depends on those that are there.
        """
        if self.on_limit == "drop":
            return self.no_filters()
        rules = [FilterRule(indistinct_columns(node.schema, self.on)) for node in self.streams]
        if self.size == len(self.names):
            for at, outputs in enumerate(self.outputs):
                own = {new: column(old) for old, new in outputs}
                rules[at] = FilterRule(dict(rules[at].columns) | own)
            keys = dict(columns_named(self.on))
            rules[0] = FilterRule(dict(rules[0].columns) | keys)
        return tuple(rules)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        on, nulls = (*keys, *self.on), (*keys, *self.null_matches)
        return replace(self, streams=tuple(inputs), on=on, null_matches=nulls)
