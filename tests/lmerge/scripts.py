"""What may happen to a merge: 2 to 6 witnesses of one history, some of which come late, die or leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from recension.core.events import Cti, Element, Event
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams, sort_inserts

SHAPES: dict[str, dict[str, bool]] = {
    "R0": {"insert_only": True, "ordered": True},
    "R1": {"insert_only": True, "ordered": True},
    "R2": {"insert_only": True, "ordered": True, "keyed": True},
    "R3": {"keyed": True},
    "R3-": {"keyed": True},
    "R4": {},
}


def examples(usual: int) -> int:
    """How many examples to try: in proportion to what the profile asks for; ``usual`` is for 60.

    Two at least, but for `make quick`: Hypothesis begins with the simplest example, which shows little.
    """
    wanted = settings().max_examples
    return max(2 if wanted > 5 else 1, usual * wanted // 60)


@dataclass
class Witness:
    """One stream in batches; ``since`` is None if it is there from the start, ``leaves`` if it detaches."""

    batches: list[list[Element]]
    since: int | None = None
    leaves: bool = False
    port: int | None = None


@dataclass
class Script:
    """The history, its witnesses, and whose turn it is."""

    history: list[Event]
    witnesses: list[Witness]
    turns: list[int] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Does any witness not tell everything?"""
        return any(w.since is not None or w.leaves or not _is_closed(w) for w in self.witnesses)


def _is_closed(witness: Witness) -> bool:
    return any(isinstance(e, Cti) and e.t == 2**63 - 1 for batch in witness.batches for e in batch)


@st.composite
def scripts(draw: DrawFn, case: str, *, faithful: bool = False) -> Script:
    """One witness, somewhere among the first, is there from the start and tells everything."""
    shape = SHAPES[case]
    history = draw(histories(keyed=shape.get("keyed", False), strict=case == "R0", max_size=5))
    count = draw(st.integers(2, 6))
    survivor = draw(st.integers(0, count - 1))
    witnesses = []
    for number in range(count):
        if faithful or number == survivor:
            stream = draw(_streams(case, history, shape))
            witnesses.append(Witness(draw(batchings(stream))))
        else:
            witnesses += draw(_mortals(case, history, shape))
    # Ports are numbered in order of arrival: those from the start come first.
    witnesses.sort(key=lambda witness: witness.since is not None)
    turns = [
        n for n, w in enumerate(witnesses) for _ in range(len(w.batches) + (w.since is not None) + w.leaves)
    ]
    return Script(history, witnesses, draw(st.permutations(turns)))


@st.composite
def _streams(draw: DrawFn, case: str, history: list[Event], shape: dict[str, Any]) -> list[Element]:
    stream = draw(physical_streams(history, schema=SCHEMA, **shape))
    return sort_inserts(stream) if case == "R1" else stream


@st.composite
def _mortals(draw: DrawFn, case: str, history: list[Event], shape: dict[str, Any]) -> list[Witness]:
    """A witness that may come late and lack what ended before, lose its tail, or leave.

    One that lost its tail may be started again: it then joins anew, and repeats itself from its first word.
    """
    since = draw(st.one_of(st.none(), st.integers(0, 9)))
    told = [e for e in history if since is None or e.ve >= since or draw(st.booleans())]
    stream = draw(_streams(case, told, shape))
    leaves = draw(st.booleans())
    if not draw(st.booleans()):
        return [Witness(draw(batchings(stream)), since, leaves)]
    first = Witness(draw(batchings(stream[: draw(st.integers(0, len(stream)))])), since, leaves)
    if not draw(st.booleans()):
        return [first]
    event("started again")
    return [first, Witness(draw(batchings(stream)), 0 if since is None else since)]
