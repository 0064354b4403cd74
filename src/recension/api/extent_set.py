"""Several coalescing queries over one stream and window, which share what they can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from recension.api.base import key_names, plan_of
from recension.api.stream import Stream
from recension.core.errors import SchemaError
from recension.plan.coalesce import Coalescing
from recension.plan.equivalences import IntoEquivalence, equivalence_of
from recension.plan.expressions import col, column, expression
from recension.plan.extent_set import CoalesceMany
from recension.plan.extents import Range, Rows, Scheme, Weights, checked_weights
from recension.plan.span import Project, Where


class ExtentSet(Mapping[str, Stream]):
    """Coalescing queries by name, each a stream; queries that ask the same are one.

    Readings that often coalesce had better be coalesced as they come, in an *eager* extent of the query's
    own; queries over others share one *lazy* extent, coalesced as it is scanned. Which is which follows from
    how likely the readings of each query are to coalesce and to come late, learned while the queries run, by
    the cost of memory, updates and scans. The answers do not depend on it.

    Parameters
    ----------
    stream
        The readings: events taken at their starts.
    window
        `rc.range` or `rc.rows`.
    weights
        How much memory, updates and scans matter beside each other.
    scheme
        ``auto``, or ``eager`` or ``lazy`` for all.
    queries
        By name, each an `rc.coalescing`.

    >>> import recension as rc
    >>> s = rc.source("s", {"room": "string", "heat": "int64", "damp": "int64"})
    >>> warm, damp = (rc.coalescing(on=name, group_by="room") for name in ("heat", "damp"))
    >>> both = rc.ExtentSet(s, rc.range(4, slide=5), warm=warm, damp=damp)
    >>> told = [rc.Insert({"room": "a", "heat": h, "damp": 7}, t) for t, h in [(1, 20), (3, 20), (4, 21)]]
    >>> rc.run(both["warm"], {"s": told}, close=True).show()
    _vs  _ve  room  heat  valid_start  valid_end
    5    10   a     20    1            4
    5    10   a     21    4            4
    """

    def __init__(
        self,
        stream: Stream,
        window: Range | Rows,
        *,
        weights: Weights = (1.0, 1.0, 1.0),
        scheme: Scheme = "auto",
        **queries: Coalescing,
    ) -> None:
        if not isinstance(window, Range | Rows):
            raise SchemaError(f"ExtentSet: a window is rc.range(...) or rc.rows(...), not {window!r}")
        for name, query in queries.items():
            if not isinstance(query, Coalescing):
                raise SchemaError(f"ExtentSet: {name} is an rc.coalescing(on=...), not {query!r}")
        asked = {query.question: query for query in queries.values()}
        self._numbers = {name: list(asked).index(query.question) for name, query in queries.items()}
        plan = plan_of(stream, "ExtentSet")
        self._node = CoalesceMany(
            plan, tuple(asked.values()), window, scheme, checked_weights(weights, "ExtentSet")
        )

    def __getitem__(self, name: str) -> Stream:
        number = self._numbers[name]
        own = Where(self._node, expression(col(self._node.number) == number))
        names = self._node.answers(number).names
        return Stream(Project(own, tuple((each, column(each)) for each in names)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def explain(self) -> str:
        """The plan of what they share, with costs and choice as far as they can be told before it runs.

        A session that runs the queries tells more: ``session.explain()``.
        """
        return Stream(self._node).explain()


def coalescing(
    on: str | Iterable[str],
    group_by: str | Iterable[str] | None = None,
    equivalence: IntoEquivalence = None,
    expected: tuple[float, float] | None = None,
) -> Coalescing:
    """A coalescing query of an `rc.ExtentSet`; the arguments are those of ``coalesce``.

    ``expected`` is how likely readings are thought to coalesce with the one before them in their group, and
    to come out of order: schemes are chosen by it, or by a guess, until more is learned.

    >>> print(coalescing(on="heat", group_by=["floor", "room"], equivalence="increasing"))
    heat by floor, room, increasing
    """
    keys = key_names(group_by, "coalescing")
    return Coalescing(key_names(on, "coalescing"), keys, equivalence_of(equivalence), expected)
