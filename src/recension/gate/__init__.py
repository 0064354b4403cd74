"""What turns the rows of any input into valid elements: one list of small steps (see gate.py)."""
