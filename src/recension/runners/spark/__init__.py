"""The Spark runners: queries as batch jobs and as Structured Streaming pipelines.

The only place where pyspark is imported.

    session     a session that can run queries        daemon      what its Python workers are forked from
    batch/      a query as Spark SQL                  types       Spark's types for Arrow's
    stream/     a query as a streaming pipeline       failures    why a job failed, in one line
    sinks/      its output as tables                  job         stream and sinks over folders of files
    refresh     versions of tables that are read again
    listener    a query's progress as flat numbers
"""
