"""A Spark session that can run queries: made here, or the user's own, checked.

A user's own session needs no settings beforehand: what a query needs is set when the query is built. It is
refused, with the reason, if it lacks what cannot be set while it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from recension.core.errors import RecensionError

# The API names these types in its signatures, and imports pyspark only through here.
__all__ = ["DataFrame", "SparkSession", "StreamingQuery"]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# May be set on a running session; read when a streaming query starts.
RUNTIME_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting rows reads before every write, and nobody looks at the count.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
# Only when the session is made.
SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # On a busy machine a Python process may take longer than the usual 15 s to say who it is.
    "spark.python.authenticate.socketTimeout": "120s",
}
# On one machine only: executors elsewhere must find the driver, and may not have our daemon.
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "recension.runners.spark.daemon",
}
# `transformWithState` dies on start without them.
NEEDED = {"google.protobuf": "protobuf", "grpc": "grpcio", "grpc_status": "grpcio-status"}


def session(master: str = "local[2,4]", name: str = "recension", **settings: str) -> SparkSession:
    """A session ready for queries. ``settings`` override ours, with ``__`` for each dot in a name.

    On a cluster Python is what Spark takes there: ``PYSPARK_PYTHON``, or ``python3``.
    """
    if is_local_master(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    given = {key.replace("__", "."): value for key, value in settings.items()}
    here = LOCAL_SETTINGS if is_local_master(master) else {}
    for key, value in (SESSION_SETTINGS | here | RUNTIME_SETTINGS | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def quiet_session(log: Path, **settings: str) -> SparkSession:
    """A session of a command's own: Spark and its workers talk to a file, the command to the user."""
    quietly = {"spark__ui__showConsoleProgress": "false"} | settings
    try:
        with _redirect_standard_error(log):
            return session("local[*,4]", "recension run", **quietly)
    except PySparkException as why:
        reason = " ".join(str(why).split())
        raise RecensionError(f"Spark does not start: {reason}; is there a Java 17 or later?") from None


@contextmanager
def _redirect_standard_error(file: Path) -> Iterator[None]:
    """What is started meanwhile inherits the file as its standard error, and keeps it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    mine = os.dup(2)
    try:
        with file.open("ab") as target:
            os.dup2(target.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(mine, 2)
        os.close(mine)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Let a Ctrl-C take effect at the end only.

    A Java process that has started ends with ours; one that is interrupted while it starts hangs forever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread
        return
    wanted = False

    def note(*_: Any) -> None:
        nonlocal wanted
        wanted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if wanted:
            signal.raise_signal(signal.SIGINT)


def check(spark: Any) -> None:
    """Refuse, with the reason, what is no session; set what can still be set."""
    if is_connect(spark):
        return
    if not isinstance(spark, SparkSession):
        raise RecensionError(f"a SparkSession is needed, not a {type(spark).__name__}")
    use_this_interpreter(spark)
    show_py_files(spark.sparkContext)


def is_connect(spark: Any) -> bool:
    """Is it a session of Spark Connect, which has no JVM at hand? Its class is loaded by those who use it."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local_master(master: str) -> bool:
    """Does Spark run on this machine alone?"""
    return master.startswith("local")


def default_parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # A client of Connect is not told: a range has as many partitions, unless its session says otherwise.
    return int(spark.range(1 << 16).select(F.spark_partition_id()).distinct().count())


def use_this_interpreter(spark: SparkSession) -> None:
    """Workers on this machine run what runs here, unless the user has named another interpreter."""
    context = spark.sparkContext
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if is_local_master(context.master) and not is_named:
        context.pythonExec = sys.executable


def prepare_streaming(spark: SparkSession) -> None:
    """Set on a running session what streaming queries need; refuse what cannot be set."""
    check(spark)
    require_streaming_packages()
    if not is_connect(spark):
        require_interpreter(spark.sparkContext)
    for key, value in RUNTIME_SETTINGS.items():
        spark.conf.set(key, value)


def require_streaming_packages() -> None:
    """Refuse an environment that lacks what streaming queries need."""
    if missing := [package for module, package in NEEDED.items() if not _is_installed(module)]:
        raise RecensionError(f"streaming queries need {', '.join(missing)}: pip install 'recension[spark]'")


def require_interpreter(context: SparkContext) -> None:
    """Refuse an interpreter that only the executors have: Spark starts a process on the driver, too.

    So it is with an archive of an environment: executors unpack it where they run, the driver elsewhere.
    """
    python = str(context.pythonExec)
    if os.sep in python and not Path(python).exists():
        raise RecensionError(
            f"PYSPARK_PYTHON is {python}, which is not here, and streaming queries start it on the driver as "
            "well: unpack the archive of the environment where the driver is started, under the same name"
        )


def show_py_files(context: SparkContext) -> None:
    """Let the processes that Spark starts beside tasks import what came by ``--py-files`` or ``addPyFile``.

    Tasks are told where such files are. The process on the driver that asks a query for its state, and our
    daemon, have only the path in their environment.
    """
    root = Path(SparkFiles.getRootDirectory())
    # Spark has put packages on the path of this process.
    shipped = [path for path in reversed(sys.path) if Path(path).parent == root and Path(path).is_file()]
    shipped += [str(root)] if any(root.glob("*.py")) else []
    if shipped:
        path = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([*path, *shipped])))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
