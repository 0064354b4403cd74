"""Sinks of streaming queries: the stream itself as a changelog, and its current history as a table.

writing         start a query that writes; every micro-batch goes to all of its tables
tasks           a large one is written by tasks, a bucket each
checkpoint      whose checkpoint it is, and what a micro-batch was made of
micro_batch     its rows in order; is it the next one?
changelog       append it, a Parquet file each or a piece per bucket
history_table   or commit it to the history: one manifest each
revision          what it changes, and the files of the next manifest
table_files       the files that are there, and the rows that may still be retracted
files           directories of tables; files that survive a kill
reading         what was written, as DataFrames
"""
