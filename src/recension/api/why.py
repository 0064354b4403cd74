"""Why an answer is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recension.api.base import StreamBase, plan_of
from recension.core.errors import RecensionError, TimeError
from recension.core.events import Event, Insert
from recension.core.ticks import TimeLike, instant
from recension.runners.local import BATCH_SIZE

if TYPE_CHECKING:
    from recension.lineage import Why


def why(
    query: StreamBase,
    inputs: Mapping[str, Any],
    answer: Event | Insert | Mapping[str, Any] | None = None,
    *,
    at: TimeLike | None = None,
    close: bool = False,
    biography: bool = True,
    marks: bool = True,
    batch_size: int = BATCH_SIZE,
) -> Why:
    """Why an answer is what it is: the input events it rests on, step by step, and how it came about.

    Lineage is about the events that remain when every retraction is applied, with all inputs closed. The
    named events are enough for the answer, and no other event matters to it. An event is *needed* if the
    answer would be different without it, otherwise *shared*: one of several reasons. The biography uses the
    elements in the order of arrival.

    The query runs only over events that can matter: the keys and times of the answer are followed down to the
    inputs.

    Parameters
    ----------
    query
        A stream built with the API.
    inputs
        For each source by name, as for `rc.run`.
    answer
        Some columns of the answer, ``{"site": "Oslo"}``, or the whole of it, as an event.
    at
        A time at which the answer is true.
    close
        Close every input at its end, as for `rc.run`. This affects only the biography.
    biography
        Whether to compute it: how the answer changed, when, and by which elements.
    marks
        Whether to find out which events are needed. This runs a part of the query for each event. Without it,
        all events count as shared.
    batch_size
        How many elements of an input are processed at a time, as for `rc.run`; the biography follows that
        order.

    >>> import recension as rc
    >>> leases = rc.source("leases", {"user": "string", "site": "string"})
    >>> feed = [rc.Insert({"user": user, "site": "Oslo"}, 5, 12) for user in ("ann", "bob")]
    >>> reason = rc.why(leases.group_by("site").agg(n=rc.count()), {"leases": feed}, {"site": "Oslo"}, at=9)
    >>> print(reason.answer)
    [5, 12) {'site': 'Oslo', 'n': 2}
    >>> for one in reason.named["leases"]:
    ...     print(one.mark, one.event)
    needed [5, 12) {'user': 'ann', 'site': 'Oslo'}
    needed [5, 12) {'user': 'bob', 'site': 'Oslo'}
    """
    from recension.lineage import explain_answer

    plan = plan_of(query, "why")
    if answer is None and at is None:
        raise RecensionError("why: say which answer, as in rc.why(query, inputs, {'site': 'Oslo'}, at=9)")
    if isinstance(answer, Insert):
        answer = Event(answer.payload, answer.vs, answer.ve)
    if not isinstance(answer, Event | Mapping | None):
        raise RecensionError(f"why: an answer is an event or a mapping of columns to values, not {answer!r}")
    try:
        moment = None if at is None else instant(at)
    except TimeError as reason:
        raise TimeError(f"why: at: {reason}") from None
    return explain_answer(
        plan,
        inputs,
        {} if answer is None else answer,
        moment,
        close=close,
        biography=biography,
        marks=marks,
        batch_size=batch_size,
    )
