"""From what a query says to how it is done: the only place where a variant or algorithm is chosen."""

from recension.lowering.explain_choices import describe_choice
from recension.lowering.operators import operator_of
from recension.lowering.physical_plan import PhysicalPlan, Vertex, extend, lower

__all__ = ["PhysicalPlan", "Vertex", "describe_choice", "extend", "lower", "operator_of"]
