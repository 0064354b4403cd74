"""Temporal streams for Spark pipelines."""
