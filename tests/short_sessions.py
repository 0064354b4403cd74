"""Settings of Spark for sessions that live for seconds: those of the tests, and of the programs they start.

A test runs each plan once, on a few rows: to compile it, and what runs it, or to plan it again with what is
known on the way, costs more than it saves. As Spark does if it is not told otherwise, plans are compiled and
adapted on Connect and on a cluster (`stream/connect.py`, `stream/cluster.py`), and for tests that ask for
`as_users_run_it`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
# Java compiles lightly, and tidies up alone: in a minute the better code would not pay. It takes Spark's
# classes as they are: to verify them is a tenth of the work until a first query has run.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def short_session(memory: str = "1g", **others: str) -> dict[str, str]:
    """Settings as `rc.spark.session` takes them."""
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.ui.showConsoleProgress": "false",
        **INTERPRETED,
    }
    return {name.replace(".", "__"): value for name, value in settings.items()} | others


def use_home_without_archives(folder: Path) -> None:
    """Let Spark take its Python from the installed package, for sessions of this process and of its children.

    Its own home has the same as an archive, which it puts first: every process that it starts compiles anew
    what it imports. Those on the driver that begin a streaming query take three times as long.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (home,) = map(Path, spec.submodule_search_locations)
    for part in home.iterdir():
        if part.name != "python":
            (folder / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(folder)
