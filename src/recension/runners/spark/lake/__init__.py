"""Tables in lake formats: a query's output in Delta or Iceberg, and their tables as its inputs.

What every format shares:
    places      which table an address means, and in which format it is
    sinks       micro-batches into a changelog or a history: whose table, which micro-batch, once
    shape       the columns of a history table; how its rows are compared
    changes     what a micro-batch changes, as rows with a count; ordinals of equal events
    merging     the MERGE statement, and the part of a table that it need look at
    session     the session in which tables are written
    reading     what was written, as DataFrames
What a format does itself:
    table       the interface: create, append once, merge once, what the last commits say
    delta       Delta; `delta_commit` a driver's own commits to it, `roaring` their deletion vectors
    iceberg     Iceberg; `iceberg_snapshots` what its metadata says
"""
