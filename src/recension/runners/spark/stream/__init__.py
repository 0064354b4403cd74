"""Queries as Structured Streaming pipelines: fragments of a plan, one stateful operator a level.

blobs     events as bytes                        chunks    an engine's state as bytes, what changed only
routing   which event goes to which shard        live      engines that stay in a worker between micro-batches
packing   rows of an input into packets          host      the engines of one shard at one level
unpacking packets into rows of the output        pipeline  all of it as one streaming DataFrame
"""
