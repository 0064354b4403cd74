"""Sessions fed from and written to Kafka, without Spark.

The only place where confluent_kafka is imported.

    client      what comes from topics, and what goes there: offsets, ranges, deliveries
    messages    messages as tables that a session takes, and those that cannot be read
    journal     the folder: a snapshot, and what came and went since
    service     all of it together
"""
