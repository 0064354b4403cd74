"""Kafka topics as inputs of a pipeline, and as the place where its output goes.

topics      the broker, asked through the client that Spark's connector brings
source      messages into packets: they are read where they arrive, by the tasks that send events to shards
sink        the output into messages: each partition gets its own in order, and every CTI
"""

from recension.runners.spark.kafka.sink import write_kafka
from recension.runners.spark.kafka.source import KafkaInput, read_kafka

__all__ = ["KafkaInput", "read_kafka", "write_kafka"]
