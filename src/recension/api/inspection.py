"""Ways to look at a query before it runs."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from recension.api.base import StreamBase, key_names
from recension.plan.explain import Format, explain, explain_html
from recension.plan.fragments import cut, describe_fragments
from recension.plan.properties import Properties, describe_properties
from recension.plan.rewrites import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.plan.schemas import describe_columns


class InspectionMethods(StreamBase):
    """Schema, properties, plan."""

    __slots__ = ()

    @property
    def schema(self) -> pa.Schema:
        """The payload columns and their types.

        >>> import recension as rc
        >>> rc.source("s", {"x": "int64"}).schema.names
        ['x']
        """
        return self.plan.schema

    @property
    def properties(self) -> Properties:
        """The properties that every physical output of this query has.

        >>> import recension as rc
        >>> known = rc.Properties(is_insert_only=True, is_ordered=True)
        >>> s = rc.source("s", {"x": "int64"}, properties=known)
        >>> s.agg(n=rc.count()).properties.is_strictly_increasing
        True
        """
        return self.plan.properties

    def explain(self, format: Format = "text", *, rewrite: bool = True) -> str:
        """The plan, with columns and properties; as it will run, or with ``rewrite=False`` as it was written.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64", "y": "int64"})
        >>> print(s.where(rc.col("x") > 0).select("y").explain(), end="")
        span where x > 0; select y
        │  columns: y int64
        │  known: nothing
        └─ source s
              columns: x int64, y int64
              known: nothing
              lifetimes: rows live from _vs to _ve; without _ve, for ever
        """
        from recension.lowering import describe_choice  # loads all operators

        return explain(
            optimize([self.plan]) if rewrite else [self.plan], annotate=describe_choice, format=format
        )

    def fragments(self, *, skew: str | Iterable[str] | None = None) -> str:
        """How the query is distributed over shards on Spark: what runs where, and what is shuffled.

        ``skew`` as for `rc.spark.stream`.

        >>> import recension as rc
        >>> s = rc.source("s", {"user": "string", "site": "string"})
        >>> sites = s.group_by("site").agg(n=rc.count())
        >>> print(sites.agg(most=rc.max("n")).fragments(), end="")  # doctest: +ELLIPSIS
        fragment 1, in every shard
           reads s by site
           gives aggregate n = count() by site, speculate perfect
        fragment 2, in one shard
           reads aggregate n = count() by site, speculate perfect to one shard
           gives aggregate most = max(n), speculate perfect
           in one shard because 'aggregate most = max(n), speculate perfect' has no key, and max and min...
        """
        return describe_fragments(cut(preaggregate(optimize([self.plan]), key_names(skew, "skew"))))

    def describe(self) -> str:
        """The last step, the columns and what is known, in a few lines.

        >>> import recension as rc
        >>> print(rc.source("s", {"x": "int64"}).to_points().describe())
        to points
        columns: x int64
        known: point events
        """
        plan = self.plan
        return "\n".join(
            [
                plan.label,
                f"columns: {describe_columns(plan.schema)}",
                f"known: {describe_properties(plan.properties)}",
            ]
        )

    def _repr_html_(self) -> str:
        """For notebooks: the plan as it will run, with the answer at the top and its inputs below."""
        from recension.lowering import describe_choice  # loads all operators

        (root,) = optimize([self.plan])
        return explain_html(root, describe_choice)

    def __repr__(self) -> str:
        return f"<Stream {self.plan.label}: {describe_columns(self.plan.schema)}>"
