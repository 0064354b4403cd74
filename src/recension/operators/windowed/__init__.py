"""Aggregates and modules over windows: an index of windows, a measure of what they hold, one emission."""
