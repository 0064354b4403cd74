"""A Kafka broker of one process, on loopback, for tests, benchmarks and examples.

Its jars come from `scripts/kafka_jars.py`. It is started in a few seconds, keeps its port over a restart, and
is ended by its own process id. Topics are made by two messages of Kafka's own protocol: no client is needed.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.kafka_jars import NoJarsError, jars

_JAVA = 17
_START = 60.0  # seconds; some five on a machine with nothing else to do
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=4194304
"""


class NoBrokerError(Exception):
    """No broker can be started here; the message says why, in one line."""


def java() -> str:
    """The Java that `scripts/setup.sh` finds."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    try:
        said = subprocess.run(
            [command or "java", "-version"], capture_output=True, text=True, check=False
        ).stderr
    except OSError:
        raise NoBrokerError("there is no Java: install a JRE of 17 or newer, or set JAVA_HOME") from None
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _JAVA:
        raise NoBrokerError(f"a broker needs Java {_JAVA} or newer, and {command} is {said.splitlines()[0]}")
    return command or "java"


class Broker:
    """One broker, with its log in ``folder``."""

    def __init__(self, folder: Path, memory: str = "512m") -> None:
        try:
            found = jars("broker")
        except NoJarsError as why:
            raise NoBrokerError(str(why)) from None
        self._java, self._jars = java(), str(found[0].parent / "*")
        self._folder, self._memory = folder, memory
        self._process: subprocess.Popen[bytes] | None = None
        self.port, control = free_ports(2)
        folder.mkdir(parents=True, exist_ok=True)
        settings = _SETTINGS.format(port=self.port, control=control, logs=folder / "logs")
        (folder / "server.properties").write_text(settings)
        # What Kafka's own tool writes, which would take another start of Java.
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / "meta.properties").write_text(f"version=1\ncluster.id={name}\nnode.id=1\n")

    @property
    def address(self) -> str:
        """What clients take as ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = self._run()
        limit = time.monotonic() + _START
        while time.monotonic() < limit:
            if (code := self._process.poll()) is not None:
                raise NoBrokerError(f"the broker ended with code {code}: {self._last_line()}")
            try:
                # A controller that is not ready answers with an error, and before that nobody answers.
                self.create_topic(f"ready-{uuid.uuid4().hex}", 1)
                return
            except (OSError, RuntimeError, struct.error):
                time.sleep(0.2)
        self.stop()
        raise NoBrokerError(f"the broker did not answer in {_START:.0f} s: {self._last_line()}")

    def stop(self) -> None:
        """End it in order, as an operator does; by force if it takes long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop, and start on the same port with the same log."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int) -> str:
        """Make a topic; gives its name."""
        topic = _text(name) + struct.pack(">ihii", partitions, 1, 0, 0)
        self._ask(19, 2, struct.pack(">i", 1) + topic + struct.pack(">ib", 30_000, 0))
        return name

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions: so many in all."""
        topic = _text(name) + struct.pack(">ii", partitions, -1)
        self._ask(37, 0, struct.pack(">i", 1) + topic + struct.pack(">ib", 30_000, 0))

    def _ask(self, key: int, version: int, body: bytes) -> None:
        """One request about one topic; its error, if it has one, is raised."""
        message = struct.pack(">hhi", key, version, 1) + _text("recension tests") + body
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=35) as line,
            line.makefile("rb") as answers,
        ):
            line.sendall(struct.pack(">i", len(message)) + message)
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        # The number of the request, the throttle time, how many topics; then topic, error, reason.
        size = struct.unpack(">h", answer[12:14])[0]
        code, reason = struct.unpack(">hh", answer[14 + size : 18 + size])
        if code:
            raise RuntimeError(
                f"Kafka's error {code}: {answer[18 + size : 18 + size + max(reason, 0)].decode()}"
            )

    def _run(self) -> subprocess.Popen[bytes]:
        # It starts a third faster if it does not compile much, and a test is over before that pays.
        command = [
            *ends_with_parent(),
            self._java,
            f"-Xmx{self._memory}",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            self._jars,
            "kafka.Kafka",
            "server.properties",
        ]
        with (self._folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _last_line(self) -> str:
        lines = (self._folder / "broker.log").read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


@contextmanager
def running_broker(folder: Path, memory: str = "512m") -> Iterator[Broker]:
    """A broker that runs meanwhile; `NoBrokerError` says why there can be none."""
    broker = Broker(folder, memory)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def ends_with_parent() -> list[str]:
    """Before a command: it ends with who started it, also if that is killed; where Linux has the tool."""
    tool = shutil.which("setpriv")
    return [] if tool is None else [tool, "--pdeathsig", "KILL"]


def free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data
