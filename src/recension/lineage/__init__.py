"""Why an answer is what it is: the input events it rests on, what absence it rests on, and its biography."""

from recension.lineage.result import Why
from recension.lineage.search import explain_answer

__all__ = ["Why", "explain_answer"]
