"""Span methods: each event by itself, whatever its lifetime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from recension.api.base import StreamBase, plan_of
from recension.core.errors import SchemaError
from recension.plan.expressions import IntoExpression, column, expression, require_columns
from recension.plan.functions import takes_rows
from recension.plan.schemas import IntoSchema, schema_of
from recension.plan.span import Distinct, Map, Project, Union
from recension.plan.timed_steps import filtered, projected


class SpanMethods(StreamBase):
    """Filters, projections, functions, union, distinct."""

    __slots__ = ()

    def where(self, *predicates: IntoExpression) -> Self:
        """Keep the events that satisfy all predicates; null is not true.

        >>> import recension as rc
        >>> leases = rc.source("leases", {"site": "string", "bytes": "float64"})
        >>> print(leases.where(rc.col("bytes") > 0).explain().splitlines()[0])
        where bytes > 0
        """
        if not predicates:
            raise SchemaError("where: give a condition, such as col('bytes') > 0")
        plan = self.plan
        for predicate in map(expression, predicates):
            plan = filtered(plan, predicate)
        return self._then(plan)

    def filter(self, *predicates: IntoExpression) -> Self:
        """Another name of `where`.

        >>> import recension as rc
        >>> leases = rc.source("leases", {"site": "string", "bytes": "float64"})
        >>> print(leases.filter(rc.col("bytes") > 0).explain().splitlines()[0])
        where bytes > 0
        """
        return self.where(*predicates)

    def select(self, *columns: IntoExpression, **named: IntoExpression) -> Self:
        """Only these columns, then the computed ones.

        >>> import recension as rc
        >>> leases = rc.source("leases", {"site": "string", "bytes": "float64"})
        >>> leases.select("site", bits=rc.col("bytes") * 8).schema.names
        ['site', 'bits']
        """
        return self._then(projected(self.plan, self._name_outputs(columns, named, "select"), "select"))

    def with_columns(self, *columns: IntoExpression, **named: IntoExpression) -> Self:
        """All columns; a computed one replaces the column of its name or follows the others.

        >>> import recension as rc
        >>> leases = rc.source("leases", {"site": "string", "bytes": "float64"})
        >>> leases.with_columns(bits=rc.col("bytes") * 8).schema.names
        ['site', 'bytes', 'bits']
        """
        computed = self._name_outputs(columns, named, "with_columns")
        outputs = {name: column(name) for name in self.plan.schema.names} | dict(computed)
        if len(dict(computed)) < len(computed):
            raise SchemaError("with_columns: two columns are given the same name")
        return self._then(projected(self.plan, tuple(outputs.items()), "with_columns"))

    def rename(self, names: Mapping[str, str]) -> Self:
        """All columns in their places, some under new names.

        >>> import recension as rc
        >>> rc.source("s", {"a": "int64", "b": "int64"}).rename({"a": "x"}).schema.names
        ['x', 'b']
        """
        schema = self.plan.schema
        require_columns(names, schema, "rename")
        outputs = tuple((names.get(name, name), column(name)) for name in schema.names)
        return self._then(Project(self.plan, outputs, "rename"))

    def drop(self, *columns: str) -> Self:
        """All columns but these.

        >>> import recension as rc
        >>> rc.source("s", {"a": "int64", "b": "int64"}).drop("a").schema.names
        ['b']
        """
        schema = self.plan.schema
        require_columns(columns, schema, "drop")
        outputs = tuple((name, column(name)) for name in schema.names if name not in columns)
        return self._then(Project(self.plan, outputs, "drop"))

    def map(self, fn: Callable[[Any], Any], schema: IntoSchema, *, per_row: bool | None = None) -> Self:
        """Apply a function to the payload; ``schema`` has the columns of its result.

        The function takes and returns an Arrow record batch; or, per row, a mapping. Recension finds out
        which by a call with an empty batch, unless ``per_row`` says it. Equal payloads must give equal
        results, or retractions would miss their events.

        >>> import recension as rc
        >>> words = rc.source("words", {"word": "string"})
        >>> sizes = words.map(lambda row: {"size": len(row["word"])}, {"size": "int64"})
        >>> print(sizes.explain().splitlines()[0])
        map each row by <lambda>
        """
        columns = schema_of(schema, "map")
        if per_row is None:
            per_row = takes_rows(fn, self.plan.schema, columns)
        return self._then(Map(self.plan, fn, columns, per_row))

    def union(self, *others: StreamBase) -> Self:
        """All events of this stream and of the others, as a bag.

        >>> import recension as rc
        >>> a, b = (rc.source(name, {"x": "int64"}) for name in "ab")
        >>> a.union(b).schema.names
        ['x']
        """
        if not others:
            raise SchemaError("union: give at least one other stream")
        return self._then(Union((self.plan, *(plan_of(other, "union") for other in others))))

    def distinct(self) -> Self:
        """Each payload once at every instant, on maximal lifetimes.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).distinct().properties.has_key
        True
        """
        return self._then(Distinct(self.plan))
