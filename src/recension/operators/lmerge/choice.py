"""The merge of a case by its name."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from recension.operators.lmerge.fallback import Fallback
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.lmerge.policies import Policy, policy_of
from recension.operators.lmerge.r0 import R0
from recension.operators.lmerge.r1 import R1
from recension.operators.lmerge.r2 import R2
from recension.operators.lmerge.r3 import R3
from recension.operators.lmerge.r3_minus import R3Minus
from recension.operators.lmerge.r4 import R4

__all__ = ["merge_of", "policy_of"]

_IN_ORDER: dict[str, type[R0] | type[R1] | type[R2]] = {"R0": R0, "R1": R1, "R2": R2}


def merge_of(
    case: str,
    schema: pa.Schema,
    ports: int,
    policy: Policy | None = None,
    lag: int = 0,
    *,
    can_fall: bool = False,
) -> LogicalMerge:
    """One operator for a case; with ``can_fall`` it goes on as a stronger one where it must."""
    strong: list[Callable[[int], LogicalMerge]] = [
        lambda ports: R3(schema, ports, policy, lag),
        lambda ports: R4(schema, ports),
    ]
    if case == "R3-":
        first: Callable[[int], LogicalMerge] = lambda ports: R3Minus(schema, ports)  # noqa: E731
    elif case in _IN_ORDER:
        first = lambda ports: _IN_ORDER[case](schema, ports, remembers=can_fall)  # noqa: E731
    else:
        first, strong = (strong[0], strong[1:]) if case == "R3" else (strong[1], [])
    return Fallback(schema, ports, [first, *strong]) if can_fall and strong else first(ports)
