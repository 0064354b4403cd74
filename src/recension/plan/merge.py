"""The logical merge of streams that stand for one history, and which LMerge algorithm its inputs allow.

Source      LMerge technical report, §III-C (the cases) and §IV-G (choosing one); rulings B15 and 31.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING
from recension.plan.node import ManyInputsNode, Needs, Node, TimedNode, columns_named, walk
from recension.plan.properties import Properties, meet
from recension.plan.source import Source
from recension.plan.structure import NOT_STRUCTURE, memory_structure

Case: TypeAlias = Literal["R0", "R1", "R2", "R3", "R3-", "R4"]


class CaseChoice(NamedTuple):
    """A case and why it is the one."""

    case: Case
    reason: str


def lmerge_case(*inputs: Properties, ties_alike: bool = True) -> CaseChoice:
    """The most restricted case that all inputs are known to satisfy.

    ``ties_alike``: inputs that put events of equal start in a fixed order all have the same order.

    >>> lmerge_case(Properties(has_key=True), Properties(is_strictly_increasing=True)).case
    'R3'
    """
    known = meet(*inputs)
    if known.is_strictly_increasing:
        return CaseChoice("R0", "insert-only, starts strictly increasing")
    if known.is_perfect and known.has_deterministic_ties and ties_alike:
        return CaseChoice("R1", "insert-only, ordered, events of equal start in a fixed order")
    if known.is_perfect and known.has_key:
        return CaseChoice("R2", "insert-only, ordered, (vs, payload) is a key")
    if known.has_key:
        return CaseChoice("R3", f"(vs, payload) is a key, but {_describe_lacking(known)}")
    return CaseChoice("R4", "(vs, payload) may not be a key")


def _describe_lacking(known: Properties) -> str:
    missing = [] if known.is_insert_only else ["there may be retractions"]
    return " and ".join(missing + ([] if known.is_ordered else ["order is not assured"]))


MergeCase: TypeAlias = Literal["auto", "R0", "R1", "R2", "R3", "R3-", "R4"]
MergePolicy: TypeAlias = Literal["first", "eager", "hf", "ff", "lead", "quorum"]
Leader: TypeAlias = Literal["stable", "starts", "unfrozen"]
OnMismatch: TypeAlias = Literal["raise", "fallback"]
OnAnomaly: TypeAlias = Literal["warn", "raise"]


@dataclass(frozen=True, eq=False)
class Merge(ManyInputsNode, TimedNode):
    """One stream out of several that are physically different and logically the same."""

    streams: tuple[Node, ...]
    case: MergeCase = "auto"
    policy: MergePolicy = "first"
    lag: int = 0
    feedback: bool = False
    on_mismatch: OnMismatch = "raise"
    leader: Leader = "stable"
    quorum: float = 0.5
    is_open: bool = False
    """Does its only stream stand for all those that will join while it runs?"""
    since: tuple[int, ...] = ()
    """Where it is given: from what time on each stream is complete, and counts once the others are there."""
    on_anomaly: OnAnomaly = field(default="warn", metadata=NOT_STRUCTURE)
    are_inputs_told: bool = field(default=False, metadata=NOT_STRUCTURE)
    """Are inputs told what is final by other means than ``feedback``, so that they need not send it?"""

    ignores_ctis = False
    named_times = ()

    def __post_init__(self) -> None:
        kinds = {"case": MergeCase, "policy": MergePolicy, "on_mismatch": OnMismatch, "leader": Leader}
        kinds["on_anomaly"] = OnAnomaly
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(map(repr, get_args(kind)))
                raise RecensionError(f"merge: {name} is one of {known}, not {getattr(self, name)!r}")
        if self.lag < 0:
            raise RecensionError(f"merge: lag is a duration from 0, not {self.lag}")
        if self.is_open and len(self.streams) != 1:
            raise RecensionError(f"merge: one stream stands for all that join, not {len(self.streams)}")
        if not 0 < self.quorum <= 1:
            raise RecensionError(f"merge: quorum is a part of the inputs up to 1, not {self.quorum}")
        super().__post_init__()
        self.choose_case()

    def identity(self) -> tuple[Any, ...]:
        """Merges that differ in what they do on a contradiction are two; a state fits both."""
        return (*super().identity(), self.on_anomaly, self.are_inputs_told)

    @property
    def label(self) -> str:
        usual = {"lag": 0, "feedback": False, "on_mismatch": "raise", "leader": "stable", "quorum": 0.5}
        usual["on_anomaly"] = "warn"
        parts = [
            f"{name} {getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value
        ]
        joining = ["of all that join"] if self.is_open else []
        joining += [f"input {port} from {t}" for port, t in enumerate(self.since) if t > BEGINNING]
        return ", ".join([f"merge {self.policy}", *parts, *joining])

    def derive_schema(self) -> pa.Schema:
        return self.require_alike("merge", "nothing to merge")

    def choose_case(self) -> CaseChoice:
        """The case that runs, and why."""
        known = [stream.properties for stream in self.streams]
        if self.case != "auto":
            self._require_r3(self.case)
            return CaseChoice(self.case, "as the query says")
        choice = lmerge_case(*known, ties_alike=len({_form(stream) for stream in self.streams}) == 1)
        if self._is_plain:
            return choice
        if meet(*known).has_key:
            return CaseChoice("R3", "(vs, payload) is a key, and only R3 has policies and lag")
        self._require_r3(choice.case)
        return choice

    @property
    def _is_plain(self) -> bool:
        return self.policy == "first" and self.lag == 0

    def _require_r3(self, case: str) -> None:
        if case != "R3" and not self._is_plain:
            asked = f"policy={self.policy!r}" if self.policy != "first" else f"lag={self.lag}"
            raise RecensionError(
                f"merge: {asked} needs case R3, and this is {case}; say case='R3' if (vs, payload) is a key"
            )

    def derive_properties(self) -> Properties:
        """Cases that demand order keep it; the others follow now one input, now another, and keep little."""
        known = replace(meet(*(stream.properties for stream in self.streams)), cti_frequency=None)
        case = self.choose_case().case
        duration = known.constant_duration
        if self.on_mismatch == "fallback" or case == "R4":
            return Properties(constant_duration=duration if self.on_mismatch == "raise" else None)
        if case in ("R0", "R1", "R2"):
            return _in_order(case, known)
        return Properties(is_insert_only=self.policy == "ff", has_key=True, constant_duration=duration)

    why_single = "compares its inputs as wholes: by their order, or to follow or leave one"

    def needs(self) -> Needs:
        """R3 and R4 decide by payload and by the inputs' stables, which every shard knows.

        All other merges need one shard: cases with an order, policies that compare whole inputs (``lead``),
        and merges that may fall back, which do so as a whole.
        """
        is_by_payload = self.choose_case().case in ("R3", "R3-", "R4") and self.policy != "lead"
        names = self.schema.names if is_by_payload and self.on_mismatch == "raise" else []
        return (columns_named(names),) * len(self.streams)

    kept_columns = Node.every_column
    # Payloads are compared whole.
    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def is_keyed(self, grouped: Set[Node]) -> bool:
        """Not in the cases that demand an order: it is that of each group, not of all."""
        return self.case not in ("R0", "R1", "R2")

    with_group_keys = Node.with_grouped_inputs


def describe_sources(stream: Node) -> str:
    """An input in words: the sources that it reads."""
    return ", ".join(sorted({node.name for node in walk(stream) if isinstance(node, Source)}))


def _form(node: Node) -> tuple[object, ...]:
    """What decides the order of ties: the same for copies of one plan and for sources alike.

    Users' functions are compared as themselves: two that print alike may map payloads differently.
    """
    if isinstance(node, Source):
        return (tuple(node.schema.names), node.start, node.end)
    kind, *values = node.identity()
    own = (memory_structure(value) for value in values if not _is_input(value, node))
    return (kind, *own, *map(_form, node.inputs))


def _is_input(value: object, node: Node) -> bool:
    """Is the value of a field an input of the node, or all of them?"""
    return value is node.inputs or any(value is child for child in node.inputs)


def _in_order(case: str, known: Properties) -> Properties:
    """What a case demands of its inputs holds for its output, even if the inputs do not declare it."""
    return Properties(
        is_insert_only=True,
        is_ordered=True,
        is_strictly_increasing=case == "R0",
        has_deterministic_ties=case == "R1" or known.has_deterministic_ties,
        has_key=case == "R2" or known.has_key,
        constant_duration=known.constant_duration,
    )
