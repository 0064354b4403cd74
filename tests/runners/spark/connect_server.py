"""A server of Spark Connect on loopback, a process of its own at a port of its own, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts.kafka_broker import ends_with_parent, free_ports
from tests.runners.spark.standalone import HOME

_START = 120.0  # seconds; some ten on a machine with nothing else to do
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def running_server(master: str, settings: Mapping[str, str], log: Path) -> Iterator[str]:
    """The address of a server that runs meanwhile; it ends with this process, also if that is killed."""
    (port,) = free_ports(1)
    given = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        **settings,
    }
    options = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    command = [f"{HOME}/bin/spark-submit", "--master", master, *options, "--class", _SERVER, "spark-internal"]
    own = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with log.open("ab") as words:
        server = subprocess.Popen(
            [*ends_with_parent(), *command], env=os.environ | own, stdout=words, stderr=words
        )
    try:
        _wait(server, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit = time.monotonic() + _START
    while server.poll() is None and time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the Connect server does not start: {log.read_text(errors='replace')[-2000:]}")
