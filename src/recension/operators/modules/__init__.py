"""Modules that users write, over all kinds of windows."""
