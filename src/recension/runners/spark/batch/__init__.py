"""Queries as batch jobs: what the plan means, distributed as Spark SQL.

Inside, a history is a `Frame`: starts and ends as int64 ticks, payload columns under names by position, so
that no name of the user's meets Spark's rules for names.
"""
