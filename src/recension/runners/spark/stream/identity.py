"""Whose checkpoint is it? State made by one query means nothing to another.

Every head of state names the query it is of; a sink that knows the checkpoint's folder keeps the name there
as well, and compares it before anything runs.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from recension.core.errors import RecensionError
from recension.plan.structure import difference

# Counted up whenever state is kept in another way, or says in another way of which query it is.
FORMAT: Final = 2
# The key under which a pipeline's output carries the query it is of, in the metadata of its column _batch.
OWNER: Final = "recension.owner"
CUT_OVER: Final = (
    "start it with a new checkpoint; to change a running query without a gap see 'cut-over' in the guide"
)


def require_format(found: int) -> None:
    """Refuse state of another format."""
    if found != FORMAT:
        raise RecensionError(
            f"the checkpoint's state has format {found}, this version reads {FORMAT}: {CUT_OVER}"
        )


def require_same(made_by: str, asked: str) -> None:
    """Refuse a checkpoint of another query or another number of shards; the message names the difference."""
    if made_by == asked:
        return
    old, new = json.loads(made_by), json.loads(asked)
    require_format(old.get("format", 1))
    # Labels are for people: a release may word them otherwise.
    if old["shards"] != new["shards"] or _unlabelled(old) != _unlabelled(new):
        raise RecensionError(_refusal(old, new))


def _unlabelled(owner: dict[str, Any]) -> list[Any]:
    return [step[1:] for step in owner["plan"]]


def _refusal(old: dict[str, Any], new: dict[str, Any]) -> str:
    was, now = old["shards"], new["shards"]
    if was != now:
        return f"the checkpoint was made with {was} shards, not {now}: go on with shards={was}, or {CUT_OVER}"
    return f"the checkpoint was made by another query: {_difference(old['plan'], new['plan'])}; {CUT_OVER}"


def _difference(old: list[Any], new: list[Any]) -> str:
    theirs, ours = [node[0] for node in old], [node[0] for node in new]
    gone, fresh = _without(theirs, ours), _without(ours, theirs)
    if gone and fresh:
        return f"it has {gone!r} where this one has {fresh!r}"
    if gone:
        return f"it has {gone!r} and this one does not"
    return f"this one has {fresh!r} and it does not" if fresh else _hidden_difference(old, new)


def _without(steps: list[str], others: list[str]) -> str | None:
    """The first step that the others do not have."""
    left = Counter(steps) - Counter(others)
    return next((step for step in steps if left[step]), None)


def _hidden_difference(old: list[Any], new: list[Any]) -> str:
    """What differs in plans whose steps look alike."""
    for (label, _, was, step), (_, _, now, other) in zip(old, new, strict=True):
        if was != now:
            columns = [", ".join(f"{name} {kind}" for name, kind in schema.items()) for schema in (was, now)]
            return f"{label!r} has the columns {columns[0]} there and {columns[1]} here"
        if step != other:
            return f"{label!r} is another one: {difference(step, other)}"
    return "it has the same steps in another order"
