"""The Spark runners: queries as batch jobs and as Structured Streaming pipelines.

The only place where pyspark is imported.
"""
