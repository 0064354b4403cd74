"""Logical Merge: one stream out of several that are physically different and logically the same."""
