"""The join method: what is true together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from recension.api.base import StreamBase, key_names, plan_of
from recension.plan.expressions import IntoExpression, expression
from recension.plan.join import How, Join


class JoinMethods(StreamBase):
    """Temporal joins."""

    __slots__ = ()

    def join(
        self,
        other: StreamBase,
        on: str | Iterable[str] | None = None,
        where: IntoExpression | None = None,
        how: How = "inner",
        suffix: str = "_right",
    ) -> Self:
        """Payloads of matching events joined, lifetimes intersected.

        Parameters
        ----------
        other
            The right stream.
        on
            Key columns that both streams have; the result holds one copy of them.
        where
            A condition on the pair. It sees the joined columns, suffix included.
        how
            ``inner``: the pairs. ``semi`` / ``anti``: the left events on the parts of their lifetimes that
            some / no match covers. ``left``: the pairs, and the anti parts with nulls.
        suffix
            Added to right columns whose names the left stream has too.

        >>> import recension as rc
        >>> jobs = rc.source("jobs", {"host": "string", "cpu": "float64"})
        >>> limits = rc.source("limits", {"host": "string", "cpu": "float64"})
        >>> jobs.join(limits, on="host", where=rc.col("cpu") > rc.col("cpu_right")).schema.names
        ['host', 'cpu', 'cpu_right']
        """
        condition = None if where is None else expression(where)
        right = plan_of(other, "join")
        return self._then(Join(self.plan, right, key_names(on, "join"), condition, how, suffix))
