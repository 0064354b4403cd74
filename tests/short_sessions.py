"""Settings of Spark for sessions that live for seconds: those of the tests, and of the programs they start.

A test runs each plan once, on a few rows: to compile it, and what runs it, costs more than it saves. As Spark
does if it is not told otherwise, plans are compiled on Connect and on a cluster (`stream/connect.py`,
`stream/cluster.py`), and for tests that ask for `as_users_run_it`.
"""

from __future__ import annotations

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Java compiles lightly, and tidies up alone: in a minute the better code would not pay.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def short_session(memory: str = "1g", **others: str) -> dict[str, str]:
    """Settings as `rc.spark.session` takes them."""
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        **INTERPRETED,
    }
    return {name.replace(".", "__"): value for name, value in settings.items()} | others
