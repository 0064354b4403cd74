"""Pinned jars are those for the Spark that is installed, or it is said in words that there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import jars

GROUPS: dict[str, list[str | None]] = {
    "4.1": [
        "spark-sql-kafka-0-10_2.13-4.1.3.jar",
        "delta-spark_4.1_2.13-4.4.0.jar",
        "iceberg-spark-runtime-4.1",
    ],
    "4.2": ["spark-sql-kafka-0-10_2.13-4.2.0.jar", "delta-spark_4.2_2.13-4.4.0.jar", None],
    "4.3": ["spark-sql-kafka-0-10_2.13-4.2.0.jar", None, None],
}


@pytest.mark.parametrize("spark", GROUPS)
def test_each_spark_has_its_own(spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "spark_version", lambda: spark)
    for group, wanted in zip(("connector", "delta", "iceberg"), GROUPS[spark], strict=True):
        name = "kafka_jars.lock" if group == "connector" else "lake_jars.lock"
        own = jars.LockedJars(Path(jars.__file__).with_name(name))
        if wanted is None:
            with pytest.raises(jars.NoJarsError, match=f"{group} only for Spark .*; Spark here: {spark}"):
                own.jars(group)
        else:
            assert any(file.startswith(wanted) for file in own.locked(group))
