"""From what a query says to how it is done: the only place where a variant or algorithm is chosen."""

from recension.lowering.operators import operator_of
from recension.lowering.physical_plan import PhysicalPlan, Vertex, lower
from recension.lowering.words import chosen

__all__ = ["PhysicalPlan", "Vertex", "chosen", "lower", "operator_of"]
