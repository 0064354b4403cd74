"""Records: small classes of fields that never change, of which every step makes dozens.

To type checkers a record is a frozen dataclass. While a program runs nothing watches over it: that would take
several times as long as to make one, and for a batch of a few rows as long as the work itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def record(made: type[T]) -> type[T]:
    """A dataclass with slots, which is equal to nothing but itself."""
    return dataclass(slots=True, eq=False)(made)
