"""The merge of streams that stand for one history."""

from __future__ import annotations

from recension.api.base import plan_of
from recension.api.stream import Stream
from recension.core.ticks import DurationLike, duration
from recension.plan.merge import Leader, Merge, MergeCase, MergePolicy, OnMismatch


def merge(
    *streams: Stream,
    case: MergeCase = "auto",
    policy: MergePolicy = "first",
    lag: DurationLike = 0,
    feedback: bool = False,
    on_mismatch: OnMismatch = "raise",
    leader: Leader = "stable",
    quorum: float = 0.5,
) -> Stream:
    """One trustworthy stream out of several that are physically different and logically the same.

    Inputs may differ in order, in what they say first and take back, and in how far they have come; they may
    stop, and join or leave while the query runs (`Session.attach`, `Session.detach`). The output neither
    repeats nor omits.

    Parameters
    ----------
    streams
        Streams of equal payload: replicas of a query, or different plans of one.
    case
        What the algorithm may rely on, from ``R0`` (insert-only, starts strictly increase) to ``R4``
        (nothing); ``auto`` takes the cheapest that the inputs' properties allow. ``R3-`` is the paper's
        baseline.
    policy
        For R3, when what an input says is shown: ``first`` (the first word on a key, corrected when it is
        final), ``eager`` (every change), ``hf`` (when a stable has passed the start), ``ff`` (when it is
        final), ``lead`` (follow one input), ``quorum`` (when enough inputs say so).
    lag
        For R3: the output's CTI stays so far behind the leading input's, which spares corrections.
    feedback
        Tell slower inputs what is no longer wanted, so that they can skip it.
    on_mismatch
        What happens when an element is not what the case allows: ``raise``, or ``fallback`` to R4, for which
        events that may still change are kept; an insert that is repeated then counts as a second event.
    leader
        For ``lead``: the input of the last effective ``stable``, or, for first words only, the one with the
        latest ``starts`` or with the most ``unfrozen`` events.
    quorum
        For ``quorum``: the part of the inputs that must have an event.

    >>> import recension as rc
    >>> a, b = (rc.source(name, {"job": "string"}) for name in ("a", "b"))
    >>> live = rc.session(rc.merge(a, b))
    >>> live.push("a", [rc.Insert({"job": "x"}, 1, 5)])
    >>> live.push("b", [rc.Insert({"job": "x"}, 1, 7), rc.Cti(9)])
    >>> [str(element) for element in live.read().elements()]
    ["insert [1, 5) {'job': 'x'}", "retract [1, 5) -> 7 {'job': 'x'}", 'cti 9']
    """
    plans = tuple(plan_of(stream, "merge") for stream in _alike(streams))
    return Stream(Merge(plans, case, policy, duration(lag), feedback, on_mismatch, leader, quorum))


def _alike(streams: tuple[Stream, ...]) -> list[Stream]:
    """The streams with their columns in the order of the first one's, where they have the same."""
    for stream in streams:
        plan_of(stream, "merge")
    names = streams[0].schema.names if streams else []
    turned = [stream.schema.names != names and set(stream.schema.names) == set(names) for stream in streams]
    return [s.select(*names) if is_turned else s for s, is_turned in zip(streams, turned, strict=True)]
