"""Queries as batch jobs: what the plan means, distributed as Spark SQL.

Inside, a history is a `Frame`: starts and ends as int64 ticks, payload columns under names by position, so
that no name of the user's meets Spark's rules for names.

    run, inputs        a query over DataFrames; DataFrames as frames
    lower              which function for which node
    frame, times       a history in Spark; ticks as columns
    span, lifetimes    steps event by event
    aggregates, grid   snapshots and windows
    joins, coalescing, merging
    expressions        in Spark, where it computes what Arrow computes
    local_operators    in workers, where Spark has no equal step
"""
