"""The merge of a case by its name."""

from __future__ import annotations

import pyarrow as pa

from recension.core.errors import RecensionError
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
    """One operator for a case; with ``can_fall`` it goes on as R4, which allows everything, where it must."""

    def make(ports: int) -> LogicalMerge:
        match case:
            case "R0" | "R1" | "R2":
                return _IN_ORDER[case](schema, ports, remembers=can_fall)
            case "R3":
                return R3(schema, ports, policy, lag, repeats=not can_fall)
            case "R3-":
                return R3Minus(schema, ports)
        return R4(schema, ports)

    if not can_fall or case == "R4":
        return make(ports)
    if case == "R3-":
        raise RecensionError("merge: R3- is a baseline and does not fall back; say case='R3'")
    return Fallback(schema, ports, make, lambda ports: R4(schema, ports))
