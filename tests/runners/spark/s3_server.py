"""An S3 server on loopback, a process of its own, for tests: `moto[server]`."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from scripts.kafka_broker import ends_with_parent, free_ports

BUCKET = "lake"


@contextmanager
def running_s3() -> Iterator[str]:
    """The address of a server with an empty bucket, which runs meanwhile and takes what nobody has signed."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        [*ends_with_parent(), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(port)
        put(f"http://127.0.0.1:{port}/{BUCKET}", "")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def put(address: str, text: str) -> None:
    """Make a bucket, or an object with a text."""
    # Without a type it would be taken for a form, and be empty.
    kind = {"Content-Type": "application/octet-stream"}
    urlopen(Request(address, data=text.encode(), headers=kind, method="PUT"), timeout=60).close()


def s3_settings(address: str) -> dict[str, str]:
    """For Hadoop's client of the server."""
    return {
        "spark.hadoop.fs.s3a.endpoint": address,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "a",
        "spark.hadoop.fs.s3a.secret.key": "b",
        # The server does not have the upload that this would make.
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
    }


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the S3 server does not start")
