"""Whatever revisions a stream has, and however it is fed, the history is that of its final rows.

Every query of `tests.properties.queries` is fed the same rows in many ways: revised, in one batch, one by
one, cut anywhere, in another order, with restored sessions; and once without any revision. All must give what
the query means. What depends on when things arrive by its nature is not among the queries: a finite memory of
`finalize`, `rc.WEAK`, late elements that are dropped, lossy merges, clocks on the wall.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.queries import Query, queries
from tests.properties.small_state import small_state

import recension as rc
from recension.core.errors import RecensionError
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.order import History
from recension.runners.local import Session
from recension.testing.assertions import assert_equivalent
from recension.testing.cases import Case, Feeding
from recension.testing.model import StreamModel

QUERIES = queries()
EXAMPLES = examples(40)
SEEDS = st.sampled_from(range(2**20))


def final_rows(case: Case) -> Feeding:
    """Nothing but the rows that remain, at once."""
    rows = {name: [Insert(e.payload, e.vs, e.ve) for e in found] for name, found in case.histories.items()}
    return Feeding("final rows", [(name, [*inserts, Cti(FOREVER)]) for name, inserts in rows.items()])


class Play:
    """A session of the query, fed."""

    def __init__(self, query: Query, case: Case, known: rc.Properties) -> None:
        self.query, self._case, self._known = query, case, known
        self.shown, self._watermark = StreamModel(), BEGINNING
        self._came = {name: StreamModel() for name in case.streams}

    def run(self, feeding: Feeding) -> History:
        session = self._session()
        half = len(feeding.turns) // 2
        for at, (name, elements) in enumerate(feeding.turns):
            if at in feeding.restores:
                chunks, session = session.snapshot(), self._session()
                session.restore(chunks)
            if at == half and self.query.other == "table":
                rows = [dict(e.payload) for e in self._case.histories["t"]]
                session.push("t", pa.Table.from_pylist(rows, self._reads["t"].schema))
            if name != "t" or self.query.other != "table":
                for data in self.query.data(elements):
                    session.push(name, data)
            self._follow(session, name, elements)
            if feeding.name in ("one by one", "cut"):
                self._check_now()
        return self.shown.events()

    def _session(self) -> Session:
        self._reads = self.query.build(self._known)
        reads: dict[str, Any] = dict(self._reads)
        return rc.session(**reads)

    def _check_now(self) -> None:
        """What shows everything at once means what has come so far."""
        came = {name: model.events() for name, model in self._came.items()}
        meaning = self.query.meaning_now(came, self._watermark)
        if meaning is not None:
            assert_equivalent(self.shown.events(), meaning)

    def _follow(self, session: Session, name: str, elements: list[Element]) -> None:
        for element in elements:
            self._came[name].take(element)
            if not isinstance(element, Retract | ExternalCti):
                at = element.t if isinstance(element, Cti) else element.vs
                self._watermark = max(self._watermark, at)
        for element in session.read("out").elements():
            assert (fault := self.shown.fault(element)) is None, f"{element} {fault}"
            self.shown.take(element)


def check(query: Query, seed: int) -> None:
    """All feedings of a case, against what the query means."""
    case, known = query.case(query.dice(seed))
    try:
        meaning: History | None = query.meaning(case.histories)
    except RecensionError:
        meaning = None
    for feeding in [final_rows(case), *case.feedings]:
        # Only some: what holds for small pieces may not hold for large ones.
        is_small = feeding.name in ("cut", "restored")
        try:
            with small_state() if is_small else nullcontext():
                judge(query, case, known, feeding, meaning)
        except BaseException as why:
            why.add_note(f"{query}, {known}, fed {feeding.name}: {feeding}")
            raise


def judge(query: Query, case: Case, known: rc.Properties, feeding: Feeding, meaning: History | None) -> None:
    """One feeding; where the query means nothing, as its windows never end, it is refused."""
    if meaning is not None:
        assert_equivalent(Play(query, case, known).run(feeding), meaning)
        return
    with pytest.raises(RecensionError):
        Play(query, case, known).run(feeding)


@pytest.mark.parametrize("query", QUERIES, ids=repr)
@given(seed=SEEDS)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_history_is_that_of_the_final_rows(query: Query, seed: int) -> None:
    check(query, seed)
