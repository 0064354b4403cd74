"""Flink SQL: windows are final when the watermark passes them, rows behind it are dropped; two cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.peers.clock import run

_INPUT = """
    CREATE TABLE {name} (ts TIMESTAMP_LTZ(6), `key` STRING, `value` DOUBLE {more},
        t AS CAST(ts AS TIMESTAMP_LTZ(3)), WATERMARK FOR t AS t - INTERVAL '30' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = '{folder}/{name}.parquet', 'format' = 'parquet')
"""
_OUTPUT = """
    CREATE TABLE answer ({columns})
    WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet')
"""
_WINDOWS = """
    INSERT INTO answer
    SELECT `key`, CAST(window_start AS TIMESTAMP(6)), COUNT(*), SUM(`value`)
    FROM TABLE({window}) GROUP BY `key`, window_start, window_end
"""
_WINDOW_COLUMNS = "`key` STRING, `start` TIMESTAMP(6), n BIGINT, s DOUBLE"
_JOIN = """
    INSERT INTO answer
    SELECT l.`key`, l.`value`, r.`value`, CAST(GREATEST(l.ts, r.ts) AS TIMESTAMP(6)),
           CAST(LEAST(l.`until`, r.`until`) AS TIMESTAMP(6))
    FROM `left` l JOIN `right` r ON l.`key` = r.`key` AND l.ts < r.`until` AND r.ts < l.`until`
         AND l.t BETWEEN r.t - INTERVAL '60' SECOND AND r.t + INTERVAL '60' SECOND
"""
_JOIN_COLUMNS = (
    "`key` STRING, left_value DOUBLE, right_value DOUBLE, `start` TIMESTAMP(6), `stop` TIMESTAMP(6)"
)
_WORKLOADS = {
    "W1": _WINDOWS.format(window="HOP(TABLE feed, DESCRIPTOR(t), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"),
    "W2": _JOIN,
    "W3": _WINDOWS.format(window="TUMBLE(TABLE feed, DESCRIPTOR(t), INTERVAL '10' SECOND)"),
}
_OPTIONS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "parquet.utc-timezone": "true",
    "execution.checkpointing.interval": "10 s",
}


def answer(workload: str, folder: Path, out: Path) -> None:
    """By one job."""
    tables = environment(_OPTIONS)
    names, more = (("left", "right"), ", `until` TIMESTAMP_LTZ(6)") if workload == "W2" else (("feed",), "")
    for name in names:
        created = _INPUT.format(name=name, more=more, folder=folder)
        tables.execute_sql(created.replace(f"TABLE {name}", f"TABLE `{name}`"))
    columns = _JOIN_COLUMNS if workload == "W2" else _WINDOW_COLUMNS
    tables.execute_sql(_OUTPUT.format(columns=columns, out=out))
    tables.execute_sql(_WORKLOADS[workload]).wait()


def environment(options: dict[str, str]) -> Any:
    """With the jars for Parquet beside this environment."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    jars = sorted(Path(os.environ["FLINK_JARS"]).glob("*.jar"))
    for name, value in (options | {"pipeline.jars": ";".join(f"file://{jar}" for jar in jars)}).items():
        tables.get_config().set(name, value)
    return tables


if __name__ == "__main__":
    run(answer)
