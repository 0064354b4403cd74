"""Our idea of where Spark sends a row, against Spark's own."""

from __future__ import annotations

from typing import Any

from recension.runners.spark.stream.routing import murmur3, partition_keys


def test_the_hash_is_sparks(spark: Any) -> None:
    rows = spark.range(200).selectExpr("CAST(id AS INT) AS k", "hash(CAST(id AS INT)) AS h").collect()
    assert [row.h for row in rows] == [murmur3(row.k) for row in rows]


def test_every_partition_gets_a_key_of_its_own() -> None:
    for partitions in (1, 2, 3, 8, 50):
        assert [murmur3(key) % partitions for key in partition_keys(partitions)] == list(range(partitions))
