"""Queries as Structured Streaming pipelines.

A plan is split at each shuffle. What lies between two shuffles is a level: one stateful operator.

pipeline    all of it as one streaming DataFrame; its stages are, in order:
inputs        streaming DataFrames, folders, roots whose streams join and leave
packing       the rows of an input into packets, in tasks of Spark
packets         what travels: one row with the events for a shard
routing         which shard an event goes to
clocks          what a shard must know of the rows of others
membership      which streams of a root have joined and left
processor     the stateful operator: a shard's engine, from its worker or from the state
host            the engines of one shard at one level: packets in, packets out
chunks          their state as bytes, of which only changes are stored
feedback        what readers no longer need
unpacking     packets into rows of the output
topology    the pipeline as plain data, and whose state is whose
metrics     what every shard reports, and the totals
task        what a task knows of its micro-batch
"""
