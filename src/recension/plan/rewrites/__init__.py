"""Rewrites: the same meaning at less cost. Each is named for its effect and carries its reason."""

from recension.plan.rewrites.optimize import optimize

__all__ = ["optimize"]
